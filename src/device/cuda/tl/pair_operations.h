/*!
 * Operations of vectors on two elements at once: arithmetic of half_t and bfloat16_t, and the
 * conversion of narrow elements to them by a few integer instructions. Results are those of the
 * operations on one element; the conversions are exact.
 */
#pragma once

#include <tl/half.h>
#include <tl/vec.h>

namespace tl {
template <typename Format>
struct Float8;

namespace detail {

/*! Four bytes of `a`, by numbers 0 to 3, and of `b`, 4 to 7 (PTX ISA, prmt). */
TL_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}

/*! A constant that ptxas does not know. Of an instruction's two constants one is an immediate, and
 * for the other one ptxas (CUDA 13.5) sets a register anew before each use. No GPU has 2 ** 31
 * multiprocessors. */
template <uint32_t constant>
TL_DEVICE uint32_t kept_in_register() {
  uint32_t d;
  asm("{.reg .u32 t; mov.u32 t, %%nsmid; shr.u32 t, t, 31; add.u32 %0, t, %1;}"
      : "=r"(d)
      : "n"(constant));
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

/*! A bfloat16 has room for seven bits below the bits of a power of two: 0x4300 | low is 128 + low.
 * The eighth bit, where it lies, makes of 128 the power 256: what is 128 more than zero, and 128
 * more than what a sign takes away. The difference is the signed integer. */
template <>
struct PairCast<bfloat16_t, int8_t> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t halves = permute_bytes(word, 0x43, i ? 0x4342 : 0x4140);
    return PairArithmetic<bfloat16_t>::sub(halves & kept_in_register<0x437f437fu>(),
                                           halves & kept_in_register<0x43804380u>());
  }
};
template <>
struct PairCast<bfloat16_t, uint8_t> {
  static constexpr bool exists = true;
  static TL_DEVICE uint32_t pair(uint32_t word, int i) {
    const uint32_t less_128 = PairCast<bfloat16_t, int8_t>::pair(word ^ 0x80808080u, i);
    return PairArithmetic<bfloat16_t>::add(less_128, 0x43004300u);
  }
};

#if __CUDA_ARCH__ >= 890
// A half of a word that is named by mov, not shifted down, is an operand of the conversion as it
// is.
#define TL_FLOAT8_TO_HALF(Format, type)                                       \
  template <>                                                                 \
  struct PairCast<half_t, Float8<Format>> {                                   \
    static constexpr bool exists = true;                                      \
    static TL_DEVICE uint32_t pair(uint32_t word, int i) {                    \
      uint16_t low, high;                                                     \
      uint32_t d;                                                             \
      asm("mov.b32 {%0, %1}, %2;" : "=h"(low), "=h"(high) : "r"(word));       \
      asm("cvt.rn.f16x2." type "x2 %0, %1;" : "=r"(d) : "h"(i ? high : low)); \
      return d;                                                               \
    }                                                                         \
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

#include <tl/byte_pairs.h>
