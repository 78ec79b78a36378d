/*!
 * Functions of numbers that CUDA C++ has without a header, for the code of users (T.import_source,
 * T.call_extern): those of C's math.h, rsqrt, and min and max. Generated code calls those of
 * namespace tl. Declared here, since g++ takes long for its own math.h.
 */
#pragma once

#define TL_C_MATH(name)                    \
  extern "C" double name(double) noexcept; \
  extern "C" float name##f(float) noexcept;
#define TL_C_MATH_OF_TWO(name)                     \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept;
TL_C_MATH(acos)
TL_C_MATH(acosh)
TL_C_MATH(asin)
TL_C_MATH(asinh)
TL_C_MATH(atan)
TL_C_MATH(atanh)
TL_C_MATH(cbrt)
TL_C_MATH(ceil)
TL_C_MATH(cos)
TL_C_MATH(cosh)
TL_C_MATH(erf)
TL_C_MATH(erfc)
TL_C_MATH(exp)
TL_C_MATH(exp2)
TL_C_MATH(expm1)
TL_C_MATH(fabs)
TL_C_MATH(floor)
TL_C_MATH(lgamma)
TL_C_MATH(log)
TL_C_MATH(log10)
TL_C_MATH(log1p)
TL_C_MATH(log2)
TL_C_MATH(nearbyint)
TL_C_MATH(rint)
TL_C_MATH(round)
TL_C_MATH(sin)
TL_C_MATH(sinh)
TL_C_MATH(sqrt)
TL_C_MATH(tan)
TL_C_MATH(tanh)
TL_C_MATH(tgamma)
TL_C_MATH(trunc)
TL_C_MATH_OF_TWO(atan2)
TL_C_MATH_OF_TWO(copysign)
TL_C_MATH_OF_TWO(fdim)
TL_C_MATH_OF_TWO(fmax)
TL_C_MATH_OF_TWO(fmin)
TL_C_MATH_OF_TWO(fmod)
TL_C_MATH_OF_TWO(hypot)
TL_C_MATH_OF_TWO(pow)
TL_C_MATH_OF_TWO(remainder)
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
#undef TL_C_MATH
#undef TL_C_MATH_OF_TWO
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;

TL_DEVICE double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
TL_DEVICE float rsqrtf(float x) { return float(1 / __builtin_sqrt(double(x))); }

#define TL_MIN_AND_MAX(T)                             \
  TL_DEVICE T min(T x, T y) { return y < x ? y : x; } \
  TL_DEVICE T max(T x, T y) { return x < y ? y : x; }
TL_MIN_AND_MAX(int)
TL_MIN_AND_MAX(unsigned)
TL_MIN_AND_MAX(long)
TL_MIN_AND_MAX(unsigned long)
TL_MIN_AND_MAX(long long)
TL_MIN_AND_MAX(unsigned long long)
#undef TL_MIN_AND_MAX
TL_DEVICE float min(float x, float y) { return fminf(x, y); }
TL_DEVICE float max(float x, float y) { return fmaxf(x, y); }
TL_DEVICE double min(double x, double y) { return fmin(x, y); }
TL_DEVICE double max(double x, double y) { return fmax(x, y); }
