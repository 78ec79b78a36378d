/*! Whole numbers near a value, remainders, and Python's quotients, for the types of math.h. */
#pragma once

#include <tl/math.h>

namespace tl {

TL_UNARY(floor, floorf, floor)
TL_UNARY(ceil, ceilf, ceil)
TL_UNARY(trunc, truncf, trunc)
// Halves go to the even neighbour, as in Python.
TL_UNARY(round, rintf, rint)

TL_BINARY(fmod, fmodf, fmod)
TL_BINARY(copysign, copysignf, copysign)

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
