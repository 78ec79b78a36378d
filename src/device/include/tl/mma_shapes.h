/*! Which tensor core instructions of a warp exist (PTX ISA, Matrix multiply-accumulate operation
 * using mma). */
#pragma once

#include <tl/traits.h>

namespace tl {

template <int M, int N, int K, typename TA, typename TB, typename TC>
inline constexpr bool mma_exists =
    M == 16 && N == 8 && (K == 8 || K == 16) && is_same<TA, TB> &&
    ((is_half<TA> && is_same<TC, float>) || (is_same<TA, half_t> && is_same<TC, half_t>));

}  // namespace tl

#define TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC)                                              \
  static_assert(::tl::mma_exists<M, N, K, TA, TB, TC>,                                         \
                "tl::mma_sync<M, N, K, A, B, C> has M = 16, N = 8, K = 8 or 16, A and B both " \
                "half_t with C float or half_t, or both bfloat16_t with C float")
