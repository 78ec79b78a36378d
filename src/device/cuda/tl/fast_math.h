/*!
 * Functions of the special function unit, less exact than those of math.h. Errors: CUDA C++
 * Programming Guide, "Intrinsic Functions"; PTX ISA, ex2.approx and rcp.approx.
 */
#pragma once

#include <tl/lanes.h>

namespace tl {

#define TL_FAST(name, value)                      \
  TL_DEVICE float name(float x) { return value; } \
  TL_NARROW(name)                                 \
  TL_VEC_MAP(name, T)
#define TL_APPROXIMATE(name, instruction)                      \
  TL_DEVICE float name(float x) {                              \
    float y;                                                   \
    asm(instruction ".approx.f32 %0, %1;" : "=f"(y) : "f"(x)); \
    return y;                                                  \
  }                                                            \
  TL_NARROW(name)                                              \
  TL_VEC_MAP(name, T)
TL_FAST(fast_exp, __expf(x))
TL_APPROXIMATE(fast_exp2, "ex2")
TL_FAST(fast_exp10, __exp10f(x))
TL_FAST(fast_log, __logf(x))
TL_FAST(fast_log2, __log2f(x))
TL_FAST(fast_log10, __log10f(x))
TL_FAST(fast_sin, __sinf(x))
TL_FAST(fast_cos, __cosf(x))
TL_FAST(fast_tan, __tanf(x))
TL_APPROXIMATE(fast_rcp, "rcp")
#undef TL_FAST
#undef TL_APPROXIMATE

}  // namespace tl
