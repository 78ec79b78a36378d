/*!
 * Arithmetic of float and double with the rounding in the name: rn to nearest even, rz towards
 * zero, ru up, rd down. It is never contracted to a fused multiply-add, and fma always is one (CUDA
 * C++ Programming Guide, "Intrinsic Functions").
 */
#pragma once

#include <tl/lanes.h>

namespace tl {

#define TL_ROUNDED1(name, mode, float_name, double_name)                           \
  TL_DEVICE float name##_##mode(float x) { return __##float_name##_##mode(x); }    \
  TL_DEVICE double name##_##mode(double x) { return __##double_name##_##mode(x); } \
  TL_VEC_MAP(name##_##mode, T)
#define TL_ROUNDED2(name, mode, float_name, double_name)                                        \
  TL_DEVICE float name##_##mode(float x, float y) { return __##float_name##_##mode(x, y); }     \
  TL_DEVICE double name##_##mode(double x, double y) { return __##double_name##_##mode(x, y); } \
  TL_VEC_MAP2(name##_##mode)
#define TL_ROUNDED(mode)                                                                      \
  TL_ROUNDED2(add, mode, fadd, dadd)                                                          \
  TL_ROUNDED2(sub, mode, fsub, dsub)                                                          \
  TL_ROUNDED2(mul, mode, fmul, dmul)                                                          \
  TL_ROUNDED2(div, mode, fdiv, ddiv)                                                          \
  TL_ROUNDED1(rcp, mode, frcp, drcp)                                                          \
  TL_ROUNDED1(sqrt, mode, fsqrt, dsqrt)                                                       \
  TL_DEVICE float fma_##mode(float x, float y, float z) { return __fmaf_##mode(x, y, z); }    \
  TL_DEVICE double fma_##mode(double x, double y, double z) { return __fma_##mode(x, y, z); } \
  TL_VEC_MAP3(fma_##mode)
#define TL_HALF_FMA(T, type)                            \
  TL_DEVICE T fma_rn(T x, T y, T z) {                   \
    uint16_t d;                                         \
    asm(TL_FLOAT16_RESULT("fma.rn." type, "%1, %2, %3") \
        : "=h"(d)                                       \
        : "h"(x.bits), "h"(y.bits), "h"(z.bits));       \
    return T::from_bits(d);                             \
  }
TL_HALF_FMA(half_t, "f16")
TL_HALF_FMA(bfloat16_t, "bf16")
#undef TL_HALF_FMA
TL_ROUNDED(rn)
TL_ROUNDED(rz)
TL_ROUNDED(ru)
TL_ROUNDED(rd)
#undef TL_ROUNDED
#undef TL_ROUNDED1
#undef TL_ROUNDED2

TL_DEVICE float rsqrt_rn(float x) { return __frsqrt_rn(x); }
TL_VEC_MAP(rsqrt_rn, T)

}  // namespace tl
