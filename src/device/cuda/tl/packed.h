/*!
 * Arithmetic on pairs, one instruction where the chip has it (PTX ISA: add, sub, mul, fma, min and
 * max of .f16x2, .bf16x2 and .f32x2), with the results of pairs.h.
 */
#pragma once

#include <tl/pairs.h>

namespace tl {

#define TL_PACKED2(name, T, instruction, Register, letter)               \
  TL_DEVICE vec<T, 2> name(const vec<T, 2>& x, const vec<T, 2>& y) {     \
    Register d;                                                          \
    asm(instruction " %0, %1, %2;"                                       \
        : "=" letter(d)                                                  \
        : letter(bit_cast<Register>(x)), letter(bit_cast<Register>(y))); \
    return bit_cast<vec<T, 2>>(d);                                       \
  }
#define TL_PACKED3(name, T, instruction, Register, letter)                               \
  TL_DEVICE vec<T, 2> name(const vec<T, 2>& x, const vec<T, 2>& y, const vec<T, 2>& z) { \
    Register d;                                                                          \
    asm(instruction " %0, %1, %2, %3;"                                                   \
        : "=" letter(d)                                                                  \
        : letter(bit_cast<Register>(x)), letter(bit_cast<Register>(y)),                  \
          letter(bit_cast<Register>(z)));                                                \
    return bit_cast<vec<T, 2>>(d);                                                       \
  }
#define TL_PACKED_ARITHMETIC(T, type, Register, letter) \
  TL_PACKED2(add2, T, "add.rn." type, Register, letter) \
  TL_PACKED2(sub2, T, "sub.rn." type, Register, letter) \
  TL_PACKED2(mul2, T, "mul.rn." type, Register, letter)
#define TL_PACKED_EXTREMA(T, type)                   \
  TL_PACKED3(fma2, T, "fma.rn." type, uint32_t, "r") \
  TL_PACKED2(max2, T, "max." type, uint32_t, "r")    \
  TL_PACKED2(min2, T, "min." type, uint32_t, "r")
TL_PACKED_ARITHMETIC(half_t, "f16x2", uint32_t, "r")
TL_PACKED_EXTREMA(half_t, "f16x2")
TL_PACKED_EXTREMA(bfloat16_t, "bf16x2")
#if __CUDA_ARCH__ >= 900
TL_PACKED_ARITHMETIC(bfloat16_t, "bf16x2", uint32_t, "r")
#endif
#if __CUDA_ARCH__ >= 1000
TL_PACKED_ARITHMETIC(float, "f32x2", uint64_t, "l")
TL_PACKED3(fma2, float, "fma.rn.f32x2", uint64_t, "l")
#endif
#undef TL_PACKED2
#undef TL_PACKED3
#undef TL_PACKED_ARITHMETIC
#undef TL_PACKED_EXTREMA

}  // namespace tl
