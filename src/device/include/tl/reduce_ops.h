/*! What reductions combine with: classes with an associative and commutative `run`. */
#pragma once

#include <tl/math.h>

namespace tl {

// Unlike max and min, a NaN operand wins: PTX ISA has these as max.NaN and min.NaN for some types.
#define TL_EXTREMUM_NAN(name, extremum) \
  template <typename T>                 \
  TL_DEVICE T name(T x, T y) {          \
    if constexpr (is_float<T>) {        \
      if (x != x) return x;             \
      if (y != y) return y;             \
    }                                   \
    return extremum(x, y);              \
  }
TL_EXTREMUM_NAN(max_nan, max)
TL_EXTREMUM_NAN(min_nan, min)
#undef TL_EXTREMUM_NAN

#define TL_REDUCE_OP(Name, expression) \
  struct Name {                        \
    template <typename T>              \
    static TL_DEVICE T run(T x, T y) { \
      return T(expression);            \
    }                                  \
  };
TL_REDUCE_OP(SumOp, add(x, y))
TL_REDUCE_OP(MaxOp, max(x, y))
TL_REDUCE_OP(MinOp, min(x, y))
TL_REDUCE_OP(MaxOpNan, max_nan(x, y))
TL_REDUCE_OP(MinOpNan, min_nan(x, y))
TL_REDUCE_OP(BitAndOp, x& y)
TL_REDUCE_OP(BitOrOp, x | y)
TL_REDUCE_OP(BitXorOp, x ^ y)
#undef TL_REDUCE_OP

}  // namespace tl
