/*!
 * Operations of vectors on two elements at once: arithmetic of half_t and bfloat16_t, and the
 * conversion of narrow elements to them by a few integer instructions. Results are those of the
 * operations on one element; the conversions are exact.
 *
 * An integer of few bits becomes a float when it is put below the bits of a power of two whose
 * mantissa has room for it: 0x6400 | u is the half_t 1024 + u, 0x4300 | u the bfloat16_t 128 + u.
 * One fused multiply-add takes the power away (Y. J. Kim et al., "Who Says Elephants Can't Run",
 * 2022, section 4.3). A float of few bits has its exponent and mantissa at the low end of those of
 * the wider one; a multiplication by a power of two makes up for the difference of their biases.
 */
#pragma once

#include <tl/half.h>
#include <tl/vec.h>

namespace tl {
template <bool is_signed>
struct Int4Format;
struct E2M1Format;
template <typename Format>
struct SubByte;
template <typename Format>
struct Float8;

namespace detail {

/*! Four bytes of `a`, by numbers 0 to 3, and of `b`, 4 to 7 (PTX ISA, prmt). */
TL_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

#define TL_PAIR(name, instruction)                              \
  static TL_DEVICE uint32_t name(uint32_t x, uint32_t y) {      \
    uint32_t d;                                                 \
    asm(instruction " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y)); \
    return d;                                                   \
  }
#define TL_FMA_PAIR(type)                                                      \
  static TL_DEVICE uint32_t fma(uint32_t x, uint32_t y, uint32_t z) {          \
    uint32_t d;                                                                \
    asm("fma.rn." type " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z)); \
    return d;                                                                  \
  }

template <>
struct PairArithmetic<half_t> {
  static constexpr bool exists = true;
  TL_PAIR(add, "add.rn.f16x2")
  TL_PAIR(sub, "sub.rn.f16x2")
  TL_PAIR(mul, "mul.rn.f16x2")
  TL_FMA_PAIR("f16x2")
};

// As in formats.h, add is 1 * x + y and mul x * y + (-0): sm_80 has no other instruction.
template <>
struct PairArithmetic<bfloat16_t> {
  static constexpr bool exists = true;
  TL_FMA_PAIR("bf16x2")
  static TL_DEVICE uint32_t add(uint32_t x, uint32_t y) { return fma(x, 0x3f803f80u, y); }
  static TL_DEVICE uint32_t sub(uint32_t x, uint32_t y) { return fma(y, 0xbf80bf80u, x); }
  static TL_DEVICE uint32_t mul(uint32_t x, uint32_t y) { return fma(x, y, 0x80008000u); }
};
#undef TL_PAIR
#undef TL_FMA_PAIR

/*! Bytes: 1024 + u, less 1024, or less 1152 where u has the sign's bit flipped. */
template <bool is_signed>
struct ByteToHalf {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t u = is_signed ? word ^ 0x80808080u : word;
    const uint32_t wide = permute_bytes(u, 0x64, i ? 0x4342 : 0x4140);
    return PairArithmetic<half_t>::sub(wide, is_signed ? 0x64806480u : 0x64006400u);
  }
};
template <>
struct PairCast<half_t, int8_t> : ByteToHalf<true> {};
template <>
struct PairCast<half_t, uint8_t> : ByteToHalf<false> {};

/*! The byte i in both halves. The first element is in the low four bits of its half, the second one
 * four bits higher, so 16 times itself: u - 8 is 1024 + u - 1032, and (1024 + 16 u) / 16 - 72. */
template <bool is_signed>
struct PairCast<half_t, SubByte<Int4Format<is_signed>>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    constexpr uint32_t kPower = 0x64006400u | (is_signed ? 0x00800008u : 0u);
    const uint32_t halves = permute_bytes(word, 0, 0x4040 + 0x101 * i);
    return PairArithmetic<half_t>::fma((halves & 0x00f0000fu) ^ kPower, 0x2c003c00u,
                                       is_signed ? 0xd480e408u : 0xd400e400u);
  }
};

/*! Each element in the low four bits of its half: there is no room for it four bits higher. */
template <bool is_signed>
struct PairCast<bfloat16_t, SubByte<Int4Format<is_signed>>> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    constexpr uint32_t kPower = 0x43004300u | (is_signed ? 0x00080008u : 0u);
    const uint32_t halves = permute_bytes(word, word >> 4, 0x400 + 0x101 * i);
    return PairArithmetic<bfloat16_t>::add((halves & 0x000f000fu) ^ kPower,
                                           is_signed ? 0xc308c308u : 0xc300c300u);
  }
};

/*! Each element in the high four bits of its half: the sign's bit stays, the other three go to the
 * end of the exponent and the start of the mantissa. */
template <typename To, int shift, uint32_t mask, uint32_t power>
struct E2M1Cast {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t halves = permute_bytes(word << 4, word, 0x4000 + 0x1010 * i);
    const uint32_t bits = (halves & 0x80008000u) | (halves >> shift & mask);
    return PairArithmetic<To>::mul(bits, power);
  }
};
template <>  // 2 ** 14
struct PairCast<half_t, SubByte<E2M1Format>> : E2M1Cast<half_t, 3, 0x0e000e00u, 0x74007400u> {};
template <>  // 2 ** 126
struct PairCast<bfloat16_t, SubByte<E2M1Format>>
    : E2M1Cast<bfloat16_t, 6, 0x01c001c0u, 0x7e807e80u> {};

#if __CUDA_ARCH__ >= 890
#define TL_FLOAT8_TO_HALF(Format, type)                                                 \
  template <>                                                                           \
  struct PairCast<half_t, Float8<Format>> {                                             \
    static constexpr bool exists = true;                                                \
    static TL_DEVICE uint32_t pair(uint32_t word, int i) {                              \
      uint32_t d;                                                                       \
      asm("cvt.rn.f16x2." type "x2 %0, %1;" : "=r"(d) : "h"(uint16_t(word >> 16 * i))); \
      return d;                                                                         \
    }                                                                                   \
  };
TL_FLOAT8_TO_HALF(E4M3Format, "e4m3")
TL_FLOAT8_TO_HALF(E5M2Format, "e5m2")
#undef TL_FLOAT8_TO_HALF

/*! By half_t, which has all values of both formats, and float. */
template <typename Format>
struct PairCast<bfloat16_t, Float8<Format>> {
  static constexpr bool exists = PairCast<half_t, Float8<Format>>::exists;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t halves = PairCast<half_t, Float8<Format>>::pair(word, i);
    float low, high;
    asm("{.reg .f16 x, y; mov.b32 {x, y}, %2; cvt.f32.f16 %0, x; cvt.f32.f16 %1, y;}"
        : "=f"(low), "=f"(high)
        : "r"(halves));
    return BFloat16Format::from_floats(low, high);
  }
};
#endif

}  // namespace detail
}  // namespace tl
