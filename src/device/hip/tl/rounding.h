/*!
 * Arithmetic of float and double with the rounding in the name: rn to nearest even, rz towards
 * zero, ru up, rd down. It is never contracted to a fused multiply-add, and fma always is one.
 *
 * Sums, products and fma of another rounding are instructions under another mode; the compiler
 * knows nothing of the mode, so that one statement changes it and back. Quotients and roots of
 * floats are those of double, whose 53 digits tell on which side of every float they are. Those of
 * double have the rounding rn alone.
 */
#pragma once

#include <tl/directed.h>
#include <tl/lanes.h>

namespace tl {
namespace detail {

// CDNA3 ISA, MODE: bits 0 and 1 round single precision, bits 2 and 3 double precision.
#define TL_UNDER(first_bit, mode, instruction, operands)                                         \
  "s_setreg_imm32_b32 hwreg(HW_REG_MODE, " first_bit ", 2), " mode "\n" instruction " " operands \
  "\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, " first_bit ", 2), 0"
#define TL_MODE2(name, mode, number, instruction)                                 \
  TL_DEVICE float name##_##mode(float x, float y) {                               \
    float r;                                                                      \
    asm volatile(TL_UNDER("0", number, "v_" instruction "_f32_e64", "%0, %1, %2") \
                 : "=&v"(r)                                                       \
                 : "v"(x), "v"(y));                                               \
    return r;                                                                     \
  }                                                                               \
  TL_DEVICE double name##_##mode(double x, double y) {                            \
    double r;                                                                     \
    asm volatile(TL_UNDER("2", number, "v_" instruction "_f64", "%0, %1, %2")     \
                 : "=&v"(r)                                                       \
                 : "v"(x), "v"(y));                                               \
    return r;                                                                     \
  }
#define TL_MODE3(name, mode, number, instruction)                                 \
  TL_DEVICE float name##_##mode(float x, float y, float z) {                      \
    float r;                                                                      \
    asm volatile(TL_UNDER("0", number, "v_" instruction "_f32", "%0, %1, %2, %3") \
                 : "=&v"(r)                                                       \
                 : "v"(x), "v"(y), "v"(z));                                       \
    return r;                                                                     \
  }                                                                               \
  TL_DEVICE double name##_##mode(double x, double y, double z) {                  \
    double r;                                                                     \
    asm volatile(TL_UNDER("2", number, "v_" instruction "_f64", "%0, %1, %2, %3") \
                 : "=&v"(r)                                                       \
                 : "v"(x), "v"(y), "v"(z));                                       \
    return r;                                                                     \
  }

}  // namespace detail

#define TL_MODES(mode, number)                                                  \
  namespace detail {                                                            \
  TL_MODE2(add, mode, number, "add")                                            \
  TL_MODE2(mul, mode, number, "mul")                                            \
  TL_MODE3(fma, mode, number, "fma")                                            \
  }                                                                             \
  using detail::add_##mode;                                                     \
  using detail::mul_##mode;                                                     \
  using detail::fma_##mode;                                                     \
  TL_DEVICE float sub_##mode(float x, float y) { return add_##mode(x, -y); }    \
  TL_DEVICE double sub_##mode(double x, double y) { return add_##mode(x, -y); } \
  TL_DEVICE float div_##mode(float x, float y) {                                \
    return cast_##mode<float>(double(x) / double(y));                           \
  }                                                                             \
  TL_DEVICE float rcp_##mode(float x) { return div_##mode(1.0f, x); }           \
  TL_DEVICE float sqrt_##mode(float x) { return cast_##mode<float>(__builtin_sqrt(double(x))); }
// Of double they would be those of float.
#define TL_NOT_OF_DOUBLE(mode)                          \
  TL_DEVICE double div_##mode(double, double) = delete; \
  TL_DEVICE double rcp_##mode(double) = delete;         \
  TL_DEVICE double sqrt_##mode(double) = delete;
TL_NOT_OF_DOUBLE(ru)
TL_NOT_OF_DOUBLE(rd)
TL_NOT_OF_DOUBLE(rz)
#undef TL_NOT_OF_DOUBLE

TL_MODES(ru, "1")
TL_MODES(rd, "2")
TL_MODES(rz, "3")
#undef TL_MODES
#undef TL_MODE2
#undef TL_MODE3
#undef TL_UNDER

#define TL_NEAREST(T, suffix)                                                      \
  TL_DEVICE T add_rn(T x, T y) { _Pragma("clang fp contract(off)") return x + y; } \
  TL_DEVICE T sub_rn(T x, T y) { _Pragma("clang fp contract(off)") return x - y; } \
  TL_DEVICE T mul_rn(T x, T y) { _Pragma("clang fp contract(off)") return x * y; } \
  TL_DEVICE T div_rn(T x, T y) { return x / y; }                                   \
  TL_DEVICE T rcp_rn(T x) { return T(1) / x; }                                     \
  TL_DEVICE T sqrt_rn(T x) { return __builtin_sqrt##suffix(x); }                   \
  TL_DEVICE T fma_rn(T x, T y, T z) { return __builtin_fma##suffix(x, y, z); }
TL_NEAREST(float, f)
TL_NEAREST(double, )
#undef TL_NEAREST

TL_DEVICE half_t fma_rn(half_t x, half_t y, half_t z) {
  return half_t::from_bits(bit_cast<uint16_t>(
      __builtin_fmaf16(bit_cast<_Float16>(x), bit_cast<_Float16>(y), bit_cast<_Float16>(z))));
}
// The product is exact in a float, and the sum in a double rounded to odd (bits.h).
TL_DEVICE bfloat16_t fma_rn(bfloat16_t x, bfloat16_t y, bfloat16_t z) {
  const double product = double(float(x) * float(y)), term = float(z);
  const double down = detail::add_rz(product, term), up = add_rn(product, term);
  const uint64_t odd = bit_cast<uint64_t>(down) |
                       uint64_t(detail::add_ru(product, term) != detail::add_rd(product, term));
  return bfloat16_t(up - up == 0 ? bit_cast<double>(odd) : up);
}

#define TL_LANES_OF(mode)    \
  TL_VEC_MAP2(add_##mode)    \
  TL_VEC_MAP2(sub_##mode)    \
  TL_VEC_MAP2(mul_##mode)    \
  TL_VEC_MAP2(div_##mode)    \
  TL_VEC_MAP(rcp_##mode, T)  \
  TL_VEC_MAP(sqrt_##mode, T) \
  TL_VEC_MAP3(fma_##mode)
TL_LANES_OF(rn)
TL_LANES_OF(rz)
TL_LANES_OF(ru)
TL_LANES_OF(rd)
#undef TL_LANES_OF

// Of the 53 digits of a double's root and quotient, rounding to 24 keeps the nearest float.
TL_DEVICE float rsqrt_rn(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
TL_VEC_MAP(rsqrt_rn, T)

}  // namespace tl
