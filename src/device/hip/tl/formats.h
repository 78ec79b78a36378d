/*!
 * The bit operations of half_t, bfloat16_t and the 8-bit floats.
 *
 * Each operation rounds once, as in the emulator: sums and products are not contracted to fused
 * multiply-adds. A NaN has the bits that the instruction gives it.
 */
#pragma once

#include <tl/float8_bits.h>
#include <tl/platform.h>

namespace tl {
namespace detail {

using HalfPair = _Float16 __attribute__((ext_vector_type(2)));
using FloatPair = float __attribute__((ext_vector_type(2)));

/*! Two floats rounded together, one instruction from gfx950 on (CDNA4 ISA, V_CVT_PK_F16_F32).
 * Elsewhere LLVM makes the same instructions of single elements, and spills fewer registers. */
template <typename Element>
TL_DEVICE uint32_t narrowed(float low, float high) {
#if __gfx950__
  using Pair = Element __attribute__((ext_vector_type(2)));
  return bit_cast<uint32_t>(__builtin_convertvector((FloatPair{low, high}), Pair));
#else
  const auto bits = [](float x) { return uint32_t(bit_cast<uint16_t>(Element(x))); };
  return bits(low) | bits(high) << 16;
#endif
}

#if __GFX9__ && !__gfx950__
/*! Two instructions, the second of which writes the upper half of the first one's register (CDNA3
 * ISA, V_FMA_MIXLO_F16, V_FMA_MIXHI_F16); a conversion of each, and what puts them together, are
 * three. x * 1 + -0 is x, of zeros too; LLVM must not know the constants, or it makes the three. */
template <>
TL_DEVICE uint32_t narrowed<_Float16>(float low, float high) {
  float one = 1.0f, zero = -0.0f;
  asm("" : "+s"(one));
  asm("" : "+v"(zero));
  const HalfPair pair = {_Float16(__builtin_fmaf(low, one, zero)),
                         _Float16(__builtin_fmaf(high, one, zero))};
  return bit_cast<uint32_t>(pair);
}
#endif

}  // namespace detail

#define TL_ONCE _Pragma("clang fp contract(off)")
#define TL_HALF_BINARY(name, expression)                                 \
  static TL_DEVICE uint16_t name(uint16_t x, uint16_t y) {               \
    TL_ONCE                                                              \
    const _Float16 a = bit_cast<_Float16>(x), b = bit_cast<_Float16>(y); \
    return bit_cast<uint16_t>(_Float16(expression));                     \
  }

/*! IEEE binary16. */
struct HalfFormat {
  static TL_DEVICE float to_float(uint16_t x) { return float(bit_cast<_Float16>(x)); }
  static TL_DEVICE uint16_t from_float(float x) { return bit_cast<uint16_t>(_Float16(x)); }
  static TL_DEVICE uint32_t from_floats(float low, float high) {
    return detail::narrowed<_Float16>(low, high);
  }
  TL_HALF_BINARY(add, a + b)
  TL_HALF_BINARY(sub, a - b)
  TL_HALF_BINARY(mul, a* b)
  TL_HALF_BINARY(max, __builtin_fmaxf16(a, b))
  TL_HALF_BINARY(min, __builtin_fminf16(a, b))
};
#undef TL_HALF_BINARY

/*! The upper half of IEEE binary32. Float has at least 2p + 2 digits, so that rounding its sums and
 * products again is exact: S. Figueroa, "When is double rounding innocuous?", 1995. */
struct BFloat16Format {
  static TL_DEVICE float to_float(uint16_t x) { return bit_cast<float>(uint32_t(x) << 16); }
  // One instruction from gfx950 on.
  static TL_DEVICE uint16_t from_float(float x) { return bit_cast<uint16_t>(__bf16(x)); }
  static TL_DEVICE uint32_t from_floats(float low, float high) {
    return detail::narrowed<__bf16>(low, high);
  }
#define TL_THROUGH_FLOAT(name, expression)                 \
  static TL_DEVICE uint16_t name(uint16_t x, uint16_t y) { \
    TL_ONCE                                                \
    const float a = to_float(x), b = to_float(y);          \
    return from_float(expression);                         \
  }
  TL_THROUGH_FLOAT(add, a + b)
  TL_THROUGH_FLOAT(sub, a - b)
  TL_THROUGH_FLOAT(mul, a* b)
  TL_THROUGH_FLOAT(max, detail::maximum(a, b))
  TL_THROUGH_FLOAT(min, detail::minimum(a, b))
#undef TL_THROUGH_FLOAT
};
#undef TL_ONCE

// CDNA3 converts its own formats (fnuz), CDNA4 these (CDNA4 ISA, V_CVT_F32_FP8). What they do to
// numbers beyond the largest depends on a mode, so that rounding is in integers.
#if __gfx950__
#define TL_FLOAT8_TO_FLOAT(builtin, mantissa, bias, largest) \
  __builtin_amdgcn_cvt_f32_##builtin(x, 0)
#else
#define TL_FLOAT8_TO_FLOAT(builtin, mantissa, bias, largest) \
  detail::float8_to_float<mantissa, bias, largest>(x)
#endif
#define TL_FLOAT8(Name, builtin, mantissa, bias, largest)           \
  struct Name {                                                     \
    static TL_DEVICE float to_float(uint8_t x) {                    \
      return TL_FLOAT8_TO_FLOAT(builtin, mantissa, bias, largest);  \
    }                                                               \
    static TL_DEVICE uint8_t from_float(float x) {                  \
      return detail::float8_from_float<mantissa, bias, largest>(x); \
    }                                                               \
    static TL_DEVICE uint16_t from_floats(float low, float high) {  \
      return uint16_t(from_float(low) | from_float(high) << 8);     \
    }                                                               \
  };
TL_FLOAT8(E4M3Format, fp8, 3, 7, 0x7e)
TL_FLOAT8(E5M2Format, bf8, 2, 15, 0x7b)
#undef TL_FLOAT8
#undef TL_FLOAT8_TO_FLOAT

}  // namespace tl
