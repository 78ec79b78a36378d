/*! Functions of the transcendental unit, less exact than those of math.h: V_EXP_F32, V_LOG_F32 and
 * their like have an error of one unit in the last place (CDNA3 ISA), the arguments are rounded. */
#pragma once

#include <tl/lanes.h>

namespace tl {
namespace detail {

// V_SIN_F32 and V_COS_F32 take turns.
TL_DEVICE float turns(float x) { return __builtin_amdgcn_fractf(x * 0.15915494309189535f); }

}  // namespace detail

#define TL_FAST(name, value)                      \
  TL_DEVICE float name(float x) { return value; } \
  TL_NARROW(name)                                 \
  TL_VEC_MAP(name, T)
TL_FAST(fast_exp, __builtin_amdgcn_exp2f(x * 1.4426950408889634f))
TL_FAST(fast_exp2, __builtin_amdgcn_exp2f(x))
TL_FAST(fast_exp10, __builtin_amdgcn_exp2f(x * 3.3219280948873623f))
TL_FAST(fast_log, __builtin_amdgcn_logf(x) * 0.6931471805599453f)
TL_FAST(fast_log2, __builtin_amdgcn_logf(x))
TL_FAST(fast_log10, __builtin_amdgcn_logf(x) * 0.3010299956639812f)
TL_FAST(fast_sin, __builtin_amdgcn_sinf(detail::turns(x)))
TL_FAST(fast_cos, __builtin_amdgcn_cosf(detail::turns(x)))
TL_FAST(fast_tan, fast_sin(x) * __builtin_amdgcn_rcpf(fast_cos(x)))
TL_FAST(fast_rcp, __builtin_amdgcn_rcpf(x))
#undef TL_FAST

}  // namespace tl
