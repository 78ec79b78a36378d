/*! Arithmetic on pairs, element by element: what packed.h has for every type. */
#pragma once

#include <tl/math.h>
#include <tl/rounding.h>

namespace tl {

#define TL_PAIR2(name, value)                                        \
  template <typename T>                                              \
  TL_DEVICE vec<T, 2> name(const vec<T, 2>& x, const vec<T, 2>& y) { \
    return value;                                                    \
  }
TL_PAIR2(add2, x + y)
TL_PAIR2(sub2, x - y)
TL_PAIR2(mul2, x* y)
TL_PAIR2(max2, max(x, y))
TL_PAIR2(min2, min(x, y))
#undef TL_PAIR2

template <typename T>
TL_DEVICE vec<T, 2> abs2(const vec<T, 2>& x) {
  return abs(x);
}

/*! x * y + z, rounded once. */
template <typename T>
TL_DEVICE vec<T, 2> fma2(const vec<T, 2>& x, const vec<T, 2>& y, const vec<T, 2>& z) {
  return fma_rn(x, y, z);
}

}  // namespace tl
