/*! Functions that the GPU has in a special function unit; here they are those of exponential.h and
 * trigonometric.h, more exact than the GPU's. */
#pragma once

#include <tl/exponential.h>
#include <tl/trigonometric.h>

namespace tl {

#define TL_FAST(name, value)                      \
  TL_DEVICE float name(float x) { return value; } \
  TL_NARROW(name)                                 \
  TL_VEC_MAP(name, T)
TL_FAST(fast_exp, exp(x))
TL_FAST(fast_exp2, exp2(x))
TL_FAST(fast_exp10, exp10(x))
TL_FAST(fast_log, log(x))
TL_FAST(fast_log2, log2(x))
TL_FAST(fast_log10, log10(x))
TL_FAST(fast_sin, sin(x))
TL_FAST(fast_cos, cos(x))
TL_FAST(fast_tan, tan(x))
TL_FAST(fast_rcp, 1.0f / x)
#undef TL_FAST

}  // namespace tl
