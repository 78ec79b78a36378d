/*!
 * Arithmetic of float and double with the rounding in the name: rn to nearest even, rz towards
 * zero, ru up, rd down. The processor rounds so too, if it is told to.
 */
#pragma once

#include <fenv.h>
#include <tl/lanes.h>

namespace tl {
namespace emu {

struct RoundingMode {
  int before = fegetround();
  explicit RoundingMode(int mode) { fesetround(mode); }
  ~RoundingMode() { fesetround(before); }
};

// Volatile operands and results stay between the changes of the mode.
#define TL_UNDER(Type, mode, expression)     \
  const emu::RoundingMode rounding(mode);    \
  const volatile Type result = (expression); \
  return result
#define TL_OPERATOR(name, mode, flag, Type, op)  \
  TL_DEVICE Type name##_##mode(Type x, Type y) { \
    volatile Type a = x, b = y;                  \
    TL_UNDER(Type, flag, Type(a) op Type(b));    \
  }
#define TL_ROUNDED_FOR(mode, flag, Type, suffix)                       \
  TL_OPERATOR(add, mode, flag, Type, +)                                \
  TL_OPERATOR(sub, mode, flag, Type, -)                                \
  TL_OPERATOR(mul, mode, flag, Type, *)                                \
  TL_OPERATOR(div, mode, flag, Type, /)                                \
  TL_DEVICE Type rcp_##mode(Type x) { return div_##mode(Type(1), x); } \
  TL_DEVICE Type sqrt_##mode(Type x) {                                 \
    volatile Type a = x;                                               \
    TL_UNDER(Type, flag, __builtin_sqrt##suffix(a));                   \
  }                                                                    \
  TL_DEVICE Type fma_##mode(Type x, Type y, Type z) {                  \
    volatile Type a = x, b = y, c = z;                                 \
    TL_UNDER(Type, flag, __builtin_fma##suffix(a, b, c));              \
  }
#define TL_ROUNDED(mode, flag)         \
  TL_ROUNDED_FOR(mode, flag, float, f) \
  TL_ROUNDED_FOR(mode, flag, double, ) \
  TL_VEC_MAP2(add_##mode)              \
  TL_VEC_MAP2(sub_##mode)              \
  TL_VEC_MAP2(mul_##mode)              \
  TL_VEC_MAP2(div_##mode)              \
  TL_VEC_MAP(rcp_##mode, T)            \
  TL_VEC_MAP(sqrt_##mode, T)           \
  TL_VEC_MAP3(fma_##mode)

}  // namespace emu

// The product of two of these is exact in a double. The sum is rounded to odd, so that rounding it
// to 16 bits is the only rounding that counts (bits.h); its error is that of D. Knuth's TwoSum.
template <typename Format>
TL_DEVICE Float16<Format> fma_rn(Float16<Format> x, Float16<Format> y, Float16<Format> z) {
  const double product = double(float(x)) * double(float(y)), term = float(z);
  const double sum = product + term, rest = sum - product;
  const double error = (product - (sum - rest)) + (term - rest);
  uint64_t bits = bit_cast<uint64_t>(sum);
  if (error == error && error != 0 && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return Float16<Format>(bit_cast<double>(bits));
}

TL_ROUNDED(rn, FE_TONEAREST)
TL_ROUNDED(rz, FE_TOWARDZERO)
TL_ROUNDED(ru, FE_UPWARD)
TL_ROUNDED(rd, FE_DOWNWARD)
#undef TL_UNDER
#undef TL_OPERATOR
#undef TL_ROUNDED_FOR
#undef TL_ROUNDED

// Of the 53 digits of a double's root and quotient, rounding to 24 keeps the nearest float.
TL_DEVICE float rsqrt_rn(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
TL_VEC_MAP(rsqrt_rn, T)

}  // namespace tl
