/*!
 * Operations of vectors on two elements at once: arithmetic of half_t, and the conversion of narrow
 * elements to half_t and bfloat16_t by a few integer instructions. Results are those of the
 * operations on one element; the conversions are exact.
 */
#pragma once

#include <tl/half.h>
#include <tl/vec.h>

namespace tl {
template <typename Format>
struct Float8;
template <typename Format>
struct SubByte;
struct E2M1Format;

namespace detail {

/*! Bytes of `a`, by numbers 0 to 3, and of `b`, 4 to 7: a number in each byte of `numbers`, 12 for
 * zero (CDNA3 ISA, V_PERM_B32, whose first operand has the upper bytes). */
TL_DEVICE uint32_t bytes_at(uint32_t a, uint32_t b, uint32_t numbers) {
  return __builtin_amdgcn_perm(b, a, numbers);
}

/*! The same, by four bits each; 8 is zero. */
TL_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t bytes = 0;
  TL_UNROLL for (int i = 0; i < 4; ++i) {
    const uint32_t chosen = selector >> 4 * i & 15;
    bytes |= (chosen == 8 ? 12 : chosen) << 8 * i;
  }
  return bytes_at(a, b, bytes);
}

/*! A constant: LLVM keeps those of a loop in scalar registers. */
template <uint32_t constant>
TL_DEVICE uint32_t kept_in_register() {
  return constant;
}

#define TL_PAIR(name, expression)                                               \
  static TL_DEVICE uint32_t name(uint32_t x, uint32_t y) {                      \
    _Pragma("clang fp contract(off)") const HalfPair a = bit_cast<HalfPair>(x), \
                                                     b = bit_cast<HalfPair>(y); \
    return bit_cast<uint32_t>(HalfPair(expression));                            \
  }
template <>
struct PairArithmetic<half_t> {
  static constexpr bool exists = true;
  TL_PAIR(add, a + b)
  TL_PAIR(sub, a - b)
  TL_PAIR(mul, a* b)
};
#undef TL_PAIR

#if __GFX9__
/*! CDNA3 ISA, V_PK_ADD_F32, V_PK_MUL_F32; a product and a sum become V_PK_FMA_F32, as they do
 * element by element. */
template <>
struct PairArithmetic<float> {
  static constexpr bool exists = true;
  static TL_DEVICE uint64_t add(uint64_t x, uint64_t y) { return bits(floats(x) + floats(y)); }
  static TL_DEVICE uint64_t sub(uint64_t x, uint64_t y) { return bits(floats(x) - floats(y)); }
  static TL_DEVICE uint64_t mul(uint64_t x, uint64_t y) { return bits(floats(x) * floats(y)); }

 private:
  static TL_DEVICE FloatPair floats(uint64_t x) { return bit_cast<FloatPair>(x); }
  static TL_DEVICE uint64_t bits(FloatPair x) { return bit_cast<uint64_t>(x); }
};
#endif

/*! By float, for conversions, whose results need no rounding. */
template <>
struct PairArithmetic<bfloat16_t> {
  static constexpr bool exists = false;  // for vectors
  static TL_DEVICE uint32_t add(uint32_t x, uint32_t y) { return upper(floats(x) + floats(y)); }
  static TL_DEVICE uint32_t mul(uint32_t x, uint32_t y) { return upper(floats(x) * floats(y)); }

 private:
  static TL_DEVICE FloatPair floats(uint32_t x) {
    return FloatPair{bit_cast<float>(x << 16), bit_cast<float>(x & 0xffff0000u)};
  }
  static TL_DEVICE uint32_t upper(FloatPair x) {
    return permute_bytes(bit_cast<uint32_t>(x.x), bit_cast<uint32_t>(x.y), 0x7632);
  }
};

#if __gfx950__
// CDNA4 ISA, V_CVT_SCALEF32_PK_F16_FP4, V_CVT_SCALEF32_PK_F16_FP8 and their like.
#define TL_CONVERTED(type, from, word, i) \
  bit_cast<uint32_t>(__builtin_amdgcn_cvt_scalef32_pk_##type##_##from(word, 1.0f, i))
#define TL_FLOAT8_PAIR(T, type, Format, from)                                                  \
  template <>                                                                                  \
  struct PairCast<T, Float8<Format>> {                                                         \
    static constexpr bool exists = true;                                                       \
    static TL_DEVICE uint32_t pair(uint32_t word, int i) {                                     \
      return i ? TL_CONVERTED(type, from, word, true) : TL_CONVERTED(type, from, word, false); \
    }                                                                                          \
  };
#define TL_FLOAT4_PAIR(T, type)                                                \
  template <>                                                                  \
  struct PairCast<T, SubByte<E2M1Format>> {                                    \
    static constexpr bool exists = true;                                       \
    static TL_DEVICE uint32_t pair(uint32_t word, int i) {                     \
      switch (i) {                                                             \
        case 0:                                                                \
          return TL_CONVERTED(type, fp4, word, 0);                             \
        case 1:                                                                \
          return TL_CONVERTED(type, fp4, word, 1);                             \
        case 2:                                                                \
          return TL_CONVERTED(type, fp4, word, 2);                             \
        default:                                                               \
          return TL_CONVERTED(type, fp4, word, 3);                             \
      }                                                                        \
    }                                                                          \
    static TL_DEVICE uint32_t distant_pair(uint32_t word, int i) {             \
      return pair((word >> 4 * i & 0xfu) | (word >> (4 * i + 12) & 0xf0u), 0); \
    }                                                                          \
  };
TL_FLOAT8_PAIR(half_t, f16, E4M3Format, fp8)
TL_FLOAT8_PAIR(half_t, f16, E5M2Format, bf8)
TL_FLOAT8_PAIR(bfloat16_t, bf16, E4M3Format, fp8)
TL_FLOAT8_PAIR(bfloat16_t, bf16, E5M2Format, bf8)
TL_FLOAT4_PAIR(half_t, f16)
TL_FLOAT4_PAIR(bfloat16_t, bf16)
#undef TL_FLOAT4_PAIR
#undef TL_FLOAT8_PAIR
#undef TL_CONVERTED
#endif

}  // namespace detail
}  // namespace tl

#include <tl/byte_pairs.h>
#include <tl/nibble_pairs.h>
#if !__gfx950__
#include <tl/narrow_pairs.h>
#endif
