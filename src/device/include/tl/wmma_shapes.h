/*! Which matrix instructions of RDNA 3 exist (RDNA3 ISA, "Wave Matrix Multiply Accumulate"). */
#pragma once

#include <tl/mma_shapes.h>

namespace tl {

template <typename T, typename C>
inline constexpr bool wmma_has_types = false;
template <>
inline constexpr bool wmma_has_types<half_t, float> = true;
template <>
inline constexpr bool wmma_has_types<bfloat16_t, float> = true;
template <>
inline constexpr bool wmma_has_types<int8_t, int> = true;
template <>
inline constexpr bool wmma_has_types<uint8_t, int> = true;

}  // namespace tl

#define TL_ASSERT_WMMA_EXISTS(M, N, K, T, C)                                               \
  static_assert(                                                                           \
      M == 16 && N == 16 && K == 16 && ::tl::wmma_has_types<T, C>,                         \
      "tl::wmma<M, N, K, T, C> has M = N = K = 16 and T, C: half_t or bfloat16_t, float; " \
      "int8_t or uint8_t, int")
