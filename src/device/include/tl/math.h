/*!
 * Absolute values and extrema under one name for numbers, half_t, bfloat16_t, the 8-bit floats and
 * vectors of them. Compilers take some milliseconds for the other functions, which a kernel
 * includes if it has any (floor.h, number_bits.h, exponential.h, trigonometric.h).
 *
 * The 16-bit and 8-bit types compute in float and round once.
 */
#pragma once

#include <tl/lanes.h>

namespace tl {

// Before the vector forms, which find only the functions of integers that stand above them.
#define TL_INTEGER_ABS(T) \
  TL_DEVICE T abs(T x) { return x < 0 ? sub<T>(0, x) : x; }
TL_INTEGER_ABS(int8_t)
TL_INTEGER_ABS(int16_t)
TL_INTEGER_ABS(int)
TL_INTEGER_ABS(long)
TL_INTEGER_ABS(long long)
#undef TL_INTEGER_ABS

TL_DEVICE float abs(float x) { return TL_LIBM(fabsf)(x); }
TL_DEVICE double abs(double x) { return TL_LIBM(fabs)(x); }
// Without the sign: by way of float it is a conversion to and one back.
template <typename Format>
TL_DEVICE Float16<Format> abs(Float16<Format> x) {
  return Float16<Format>::from_bits(x.bits & 0x7fff);
}
template <typename Format>
TL_DEVICE Float8<Format> abs(Float8<Format> x) {
  return Float8<Format>(abs(float(x)));
}
TL_VEC_MAP(abs, T)

// A NaN operand loses against a number, and -0 is less than +0 (PTX ISA, min and max).
#define TL_EXTREMUM(name, float_function, double_function, less)                      \
  TL_DEVICE float name(float x, float y) { return detail::float_function(x, y); }     \
  TL_DEVICE double name(double x, double y) { return detail::double_function(x, y); } \
  template <typename Format>                                                          \
  TL_DEVICE Float16<Format> name(Float16<Format> x, Float16<Format> y) {              \
    return Float16<Format>::from_bits(Format::name(x.bits, y.bits));                  \
  }                                                                                   \
  TL_NARROW2(name)                                                                    \
  template <typename T>                                                               \
  TL_DEVICE T name(T x, T y) {                                                        \
    return detail::extremum(x less y, x, y);                                          \
  }                                                                                   \
  TL_VEC_MAP2(name)
TL_EXTREMUM(max, maximum, maximum, >)
TL_EXTREMUM(min, minimum, minimum, <)
#undef TL_EXTREMUM

}  // namespace tl
