/*!
 * Arithmetic on pairs, one instruction where the chip has it (CDNA3 ISA, V_PK_ADD_F16,
 * V_PK_ADD_F32 and their like), with the results of pairs.h.
 */
#pragma once

#include <tl/pair_operations.h>
#include <tl/pairs.h>

namespace tl {

#define TL_PACKED2(name, T, Pair, expression)                                                  \
  TL_DEVICE vec<T, 2> name(const vec<T, 2>& x, const vec<T, 2>& y) {                           \
    _Pragma("clang fp contract(off)") const auto a = bit_cast<Pair>(x), b = bit_cast<Pair>(y); \
    return bit_cast<vec<T, 2>>(Pair(expression));                                              \
  }
#define TL_PACKED(T, Pair)                                                                   \
  TL_PACKED2(add2, T, Pair, a + b)                                                           \
  TL_PACKED2(sub2, T, Pair, a - b)                                                           \
  TL_PACKED2(mul2, T, Pair, a* b)                                                            \
  TL_DEVICE vec<T, 2> fma2(const vec<T, 2>& x, const vec<T, 2>& y, const vec<T, 2>& z) {     \
    return bit_cast<vec<T, 2>>(                                                              \
        __builtin_elementwise_fma(bit_cast<Pair>(x), bit_cast<Pair>(y), bit_cast<Pair>(z))); \
  }
TL_PACKED(half_t, detail::HalfPair)
TL_PACKED(float, detail::FloatPair)
TL_PACKED2(max2, half_t, detail::HalfPair, __builtin_elementwise_max(a, b))
TL_PACKED2(min2, half_t, detail::HalfPair, __builtin_elementwise_min(a, b))
#undef TL_PACKED
#undef TL_PACKED2

}  // namespace tl
