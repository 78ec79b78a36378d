/*!
 * The bit operations of half_t, bfloat16_t and the 8-bit floats in PTX.
 *
 * Arithmetic has .rn, which keeps the compiler from contracting it to a fused multiply-add: each
 * operation rounds once, as in the emulator (PTX ISA, Half Precision Floating Point Instructions).
 */
#pragma once

#include <tl/float8_bits.h>
#include <tl/platform.h>

namespace tl {

/*! A PTX instruction whose result %0 is a 16-bit float, as 16 bits without a type.
 *
 * ptxas of CUDA 13.0 converts the number, F2I.U8.F16, where a byte of the register is stored that
 * such an instruction has as its result: `st.u8` of half the bits of a half_t, or of an element of
 * a register array that NVVM's loop-invariant code motion accesses byte by byte. A move between
 * them costs nothing and makes it a store of bits; the SASS is otherwise the same. */
#define TL_FLOAT16_RESULT(instruction, operands) \
  "{.reg .b16 bits; " instruction " bits, " operands "; mov.b16 %0, bits;}"

#define TL_PTX_BINARY(name, instruction)                                      \
  static TL_DEVICE uint16_t name(uint16_t a, uint16_t b) {                    \
    uint16_t d;                                                               \
    asm(TL_FLOAT16_RESULT(instruction, "%1, %2") : "=h"(d) : "h"(a), "h"(b)); \
    return d;                                                                 \
  }

/*! x, behind an instruction of its own where accumulators of wgmma may be converted.
 *
 * ptxas of CUDA 13.0 to 13.5 makes one conversion to two 16-bit floats of two single ones and puts
 * it at the head of the basic block, in front of the wgmma.wait_group for the accumulators that it
 * converts. It leaves conversions of products alone. x * 1 is x; a NaN's payload, which may change,
 * is lost in the conversion anyway. tilelang/testing/sass.py finds accumulators used too early. */
static TL_DEVICE float behind_waits(float x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  float d;
  asm("mul.rn.f32 %0, %1, 0f3F800000;" : "=f"(d) : "f"(x));
  return d;
#else
  return x;
#endif
}

/*! IEEE binary16. */
struct HalfFormat {
  // PTX ISA, cvt
  static TL_DEVICE float to_float(uint16_t x) {
    float d;
    asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(x));
    return d;
  }
  static TL_DEVICE uint16_t from_float(float x) {
    uint16_t d;
    asm(TL_FLOAT16_RESULT("cvt.rn.f16.f32", "%1") : "=h"(d) : "f"(behind_waits(x)));
    return d;
  }
  static TL_DEVICE uint32_t from_floats(float low, float high) {
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
  }
  TL_PTX_BINARY(add, "add.rn.f16")
  TL_PTX_BINARY(sub, "sub.rn.f16")
  TL_PTX_BINARY(mul, "mul.rn.f16")
  TL_PTX_BINARY(max, "max.f16")
  TL_PTX_BINARY(min, "min.f16")
};

/*! The upper half of IEEE binary32. */
struct BFloat16Format {
  static TL_DEVICE float to_float(uint16_t x) { return __uint_as_float(uint32_t(x) << 16); }
  // PTX ISA, cvt
  static TL_DEVICE uint16_t from_float(float x) {
    uint16_t d;
    asm(TL_FLOAT16_RESULT("cvt.rn.bf16.f32", "%1") : "=h"(d) : "f"(behind_waits(x)));
    return d;
  }
  static TL_DEVICE uint32_t from_floats(float low, float high) {
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
  }
  // add.bf16 needs sm_90, fma.bf16 sm_80 (PTX ISA, fma): a + b is 1 * a + b, a * b is a * b + (-0).
  static TL_DEVICE uint16_t fma(uint16_t a, uint16_t b, uint16_t c) {
    uint16_t d;
    asm(TL_FLOAT16_RESULT("fma.rn.bf16", "%1, %2, %3") : "=h"(d) : "h"(a), "h"(b), "h"(c));
    return d;
  }
  static TL_DEVICE uint16_t add(uint16_t a, uint16_t b) { return fma(a, 0x3f80, b); }
  static TL_DEVICE uint16_t sub(uint16_t a, uint16_t b) { return fma(b, 0xbf80, a); }
  static TL_DEVICE uint16_t mul(uint16_t a, uint16_t b) { return fma(a, b, 0x8000); }
  TL_PTX_BINARY(max, "max.bf16")
  TL_PTX_BINARY(min, "min.bf16")
};

#undef TL_PTX_BINARY

// PTX ISA, cvt: the 8-bit floats have instructions from sm_89 on, pairs only.
#if __CUDA_ARCH__ >= 890
#define TL_FLOAT8(Name, type, mantissa, bias, largest)                                     \
  struct Name {                                                                            \
    static TL_DEVICE float to_float(uint8_t x) {                                           \
      uint32_t d;                                                                          \
      asm("cvt.rn.f16x2." type "x2 %0, %1;" : "=r"(d) : "h"(uint16_t(x)));                 \
      return HalfFormat::to_float(uint16_t(d));                                            \
    }                                                                                      \
    static TL_DEVICE uint16_t from_floats(float low, float high) {                         \
      uint16_t d;                                                                          \
      asm("cvt.rn.satfinite." type "x2.f32 %0, %1, %2;" : "=h"(d) : "f"(high), "f"(low));  \
      return d;                                                                            \
    }                                                                                      \
    static TL_DEVICE uint8_t from_float(float x) { return uint8_t(from_floats(x, 0.0f)); } \
  };
#else
#define TL_FLOAT8(Name, type, mantissa, bias, largest)              \
  struct Name {                                                     \
    static TL_DEVICE float to_float(uint8_t x) {                    \
      return detail::float8_to_float<mantissa, bias, largest>(x);   \
    }                                                               \
    static TL_DEVICE uint8_t from_float(float x) {                  \
      return detail::float8_from_float<mantissa, bias, largest>(x); \
    }                                                               \
    static TL_DEVICE uint16_t from_floats(float low, float high) {  \
      return uint16_t(from_float(low) | from_float(high) << 8);     \
    }                                                               \
  };
#endif
TL_FLOAT8(E4M3Format, "e4m3", 3, 7, 0x7e)
TL_FLOAT8(E5M2Format, "e5m2", 2, 15, 0x7b)
#undef TL_FLOAT8

}  // namespace tl
