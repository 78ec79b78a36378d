/*!
 * Functions of numbers under one name for float, double, half_t, bfloat16_t, the 8-bit floats and
 * vectors of them: whole numbers near a value, extrema, Python's quotients, questions about bits.
 * Compilers take some milliseconds for the others, which a kernel includes if it has any
 * (exponential.h, trigonometric.h).
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

TL_UNARY(floor, floorf, floor)
TL_UNARY(ceil, ceilf, ceil)
TL_UNARY(trunc, truncf, trunc)
// Halves go to the even neighbour, as in Python.
TL_UNARY(round, rintf, rint)

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

TL_BINARY(fmod, fmodf, fmod)
TL_BINARY(copysign, copysignf, copysign)

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

// Looking at the bits keeps these true under every floating-point option of the compilers.
TL_DEVICE bool isnan(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) > 0x7f800000u; }
TL_DEVICE bool isnan(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
}
TL_DEVICE bool isinf(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) == 0x7f800000u; }
TL_DEVICE bool isinf(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffu) == 0x7ff0000000000000u;
}
TL_DEVICE bool isfinite(float x) { return (bit_cast<uint32_t>(x) & 0x7fffffffu) < 0x7f800000u; }
TL_DEVICE bool isfinite(double x) {
  return (bit_cast<uint64_t>(x) & 0x7fffffffffffffffu) < 0x7ff0000000000000u;
}
TL_VEC_MAP(isnan, bool)
TL_VEC_MAP(isinf, bool)
TL_VEC_MAP(isfinite, bool)

/*! Number of set bits. */
TL_DEVICE int popcount(uint32_t x) { return detail::count_ones(x); }
TL_DEVICE int popcount(uint64_t x) { return detail::count_ones(x); }
TL_DEVICE int popcount(int32_t x) { return detail::count_ones(uint32_t(x)); }
TL_DEVICE int popcount(int64_t x) { return detail::count_ones(uint64_t(x)); }
TL_VEC_MAP(popcount, int)

/*! Number of zero bits above the highest set one; the width of the type for 0. */
TL_DEVICE int clz(uint32_t x) { return detail::count_leading_zeros(x); }
TL_DEVICE int clz(uint64_t x) { return detail::count_leading_zeros(x); }
TL_DEVICE int clz(int32_t x) { return detail::count_leading_zeros(uint32_t(x)); }
TL_DEVICE int clz(int64_t x) { return detail::count_leading_zeros(uint64_t(x)); }
TL_VEC_MAP(clz, int)

namespace detail {

// Python's definitions. The remainder is exact, and so the quotient is too but for its rounding to
// T, which may not go past the next integer.
template <typename T>
TL_DEVICE T float_floormod(T x, T y) {
  const T remainder = fmod(x, y);
  return remainder != T(0) && (remainder < T(0)) != (y < T(0)) ? remainder + y : remainder;
}

template <typename T>
TL_DEVICE T float_floordiv(T x, T y) {
  if (y == T(0)) return x / y;
  const T remainder = fmod(x, y);
  const bool below = remainder != T(0) && (remainder < T(0)) != (y < T(0));
  const T quotient = (x - remainder) / y - T(below);
  if (quotient == T(0)) return copysign(T(0), x / y);
  const T whole = floor(quotient);
  return quotient - whole > T(0.5) ? whole + T(1) : whole;
}

}  // namespace detail

/*! Quotient rounded towards minus infinity, as Python's //. A floating-point one by zero is what
 * IEEE 754 makes of it, as in torch. */
#define TL_FLOOR(name)                                                             \
  TL_DEVICE float name(float x, float y) { return detail::float_##name(x, y); }    \
  TL_DEVICE double name(double x, double y) { return detail::float_##name(x, y); } \
  template <typename Format>                                                       \
  TL_DEVICE Float16<Format> name(Float16<Format> x, Float16<Format> y) {           \
    return Float16<Format>(name(float(x), float(y)));                              \
  }                                                                                \
  TL_NARROW2(name)
TL_FLOOR(floordiv)
TL_FLOOR(floormod)
#undef TL_FLOOR

// The least number over -1 is one more than the largest, and wraps; a CPU traps there.
template <typename T>
TL_DEVICE T floordiv(T x, T y) {
  if (T(-1) < T(0) && y == T(-1)) return sub<T>(T(0), x);
  const T quotient = x / y;
  return quotient - T(quotient * y != x && (x < T(0)) != (y < T(0)));
}
TL_VEC_MAP2(floordiv)

/*! Remainder with the sign of the divisor, as Python's %. */
template <typename T>
TL_DEVICE T floormod(T x, T y) {
  if (T(-1) < T(0) && y == T(-1)) return T(0);
  const T remainder = x % y;
  return remainder != T(0) && (remainder < T(0)) != (y < T(0)) ? T(remainder + y) : remainder;
}
TL_VEC_MAP2(floormod)

}  // namespace tl
