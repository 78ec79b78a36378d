/*! Scalar functions that few kernels use. */
#pragma once

#include <tl/math.h>

namespace tl {

/*! To the nearest integer; halves go away from zero. */
TL_DEVICE float round_away(float x) { return TL_LIBM(roundf)(x); }
TL_DEVICE double round_away(double x) { return TL_LIBM(round)(x); }
TL_NARROW(round_away)
TL_VEC_MAP(round_away, T)

/*! x to the n-th power, n >= 0, by repeated multiplication: squares of x for the digits of n. */
template <typename T>
TL_DEVICE T power(T x, int n) {
  T result = T(1);
  TL_UNROLL for (; n > 0; n >>= 1) {
    if (n & 1) result = T(result * x);
    if (n > 1) x = T(x * x);
  }
  return result;
}
template <typename T, int N>
TL_DEVICE vec<T, N> power(const vec<T, N>& x, const vec<int, N>& n) {
  vec<T, N> r;
  TL_UNROLL for (int i = 0; i < N; ++i) r.data[i] = power(x.data[i], n.data[i]);
  return r;
}

/*! One more than the position of the lowest set bit; 0 for 0. */
TL_DEVICE int find_first_set(uint32_t x) {
  return x ? 32 - detail::count_leading_zeros(x & (0u - x)) : 0;
}
TL_DEVICE int find_first_set(uint64_t x) {
  return x ? 64 - detail::count_leading_zeros(x & (uint64_t(0) - x)) : 0;
}
TL_DEVICE int find_first_set(int32_t x) { return find_first_set(uint32_t(x)); }
TL_DEVICE int find_first_set(int64_t x) { return find_first_set(uint64_t(x)); }
TL_VEC_MAP(find_first_set, int)

/*!
 * Position of the n-th set bit of `mask` from bit `base` on: upwards for positive n, downwards for
 * negative; n = 0 asks for `base` itself. 0xffffffff if there is none (PTX ISA, fns).
 */
TL_DEVICE uint32_t find_nth_set(uint32_t mask, uint32_t base, int n) {
  const int step = n < 0 ? -1 : 1;
  int left = n < 0 ? -n : n;
  if (base > 31) return 0xffffffffu;
  if (left == 0) return mask >> base & 1 ? base : 0xffffffffu;
  for (int i = int(base); i >= 0 && i < 32; i += step) {
    if ((mask >> i & 1) && --left == 0) return uint32_t(i);
  }
  return 0xffffffffu;
}

}  // namespace tl
