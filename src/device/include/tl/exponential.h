/*! Exponentials, logarithms, roots and powers, for the types of math.h. */
#pragma once

#include <tl/math.h>

namespace tl {

TL_UNARY(exp, expf, exp)
TL_UNARY(exp2, exp2f, exp2)
TL_UNARY(exp10, exp10f, exp10)
TL_UNARY(log, logf, log)
TL_UNARY(log2, log2f, log2)
TL_UNARY(log10, log10f, log10)
TL_UNARY(log1p, log1pf, log1p)
TL_UNARY(sqrt, sqrtf, sqrt)
TL_UNARY(erf, erff, erf)
TL_BINARY(pow, powf, pow)

TL_DEVICE float rsqrt(float x) { return detail::reciprocal_sqrt(x); }
TL_DEVICE double rsqrt(double x) { return detail::reciprocal_sqrt(x); }
TL_NARROW(rsqrt)
TL_VEC_MAP(rsqrt, T)

/*! x times 2 to the power of n. By way of float a narrow result is rounded once: a float has its
 * digits wherever the narrow type has any. */
TL_DEVICE float ldexp(float x, int n) { return TL_LIBM(ldexpf)(x, n); }
TL_DEVICE double ldexp(double x, int n) { return TL_LIBM(ldexp)(x, n); }
template <typename Format>
TL_DEVICE Float16<Format> ldexp(Float16<Format> x, int n) {
  return Float16<Format>(ldexp(float(x), n));
}
template <typename Format>
TL_DEVICE Float8<Format> ldexp(Float8<Format> x, int n) {
  return Float8<Format>(ldexp(float(x), n));
}
template <typename T, int N>
TL_DEVICE vec<T, N> ldexp(const vec<T, N>& x, const vec<int, N>& n) {
  vec<T, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = ldexp(x.data[i], n.data[i]);
  return r;
}

/*! 1 / (1 + exp(-x)) */
TL_DEVICE float sigmoid(float x) {
  // Of -|x|: what is divided by is between 1 and 2.
  const float power = exp(-abs(x));
  const float y = detail::reciprocal_of_one_to_two(1.0f + power);
  return x < 0 ? power * y : y;
}
TL_DEVICE double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
TL_NARROW(sigmoid)
TL_VEC_MAP(sigmoid, T)

}  // namespace tl
