/*!
 * What ROCm's device library (ocml) asks the program that it is linked into: exact arithmetic with
 * subnormals, and the chip. tilelang/hip includes it in front of a kernel that calls the library.
 * ROCm-Device-Libs, "Controls".
 */
#pragma once

#include <tl/platform.h>

#define TL_CONTROL(T, name, value) \
  extern "C" __attribute__((constant, visibility("hidden"))) const T __oclc_##name = value
TL_CONTROL(uint8_t, finite_only_opt, 0);
TL_CONTROL(uint8_t, unsafe_math_opt, 0);
TL_CONTROL(uint8_t, daz_opt, 0);
TL_CONTROL(uint8_t, correctly_rounded_sqrt32, 1);
TL_CONTROL(uint8_t, wavefrontsize64, TL_LANES == 64);
#if __gfx90a__
TL_CONTROL(uint32_t, ISA_version, 9010);
#elif __gfx942__
TL_CONTROL(uint32_t, ISA_version, 9402);
#elif __gfx950__
TL_CONTROL(uint32_t, ISA_version, 9500);
#else
TL_CONTROL(uint32_t, ISA_version, 11000);
#endif
#undef TL_CONTROL
