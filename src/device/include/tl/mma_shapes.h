/*! Which tensor core instructions of a warp exist (PTX ISA, Matrix multiply-accumulate operation
 * using mma), and what their fragments are made of. */
#pragma once

#include <tl/mma_memory.h>
#include <tl/subbyte.h>

namespace tl {

template <typename T>
inline constexpr int mma_bits = is_sub_byte<T> ? 4 : 8 * int(sizeof(mma_memory<T>));

/*! Elements along K that one register of A and B holds; double takes a register of 64 bits. */
template <typename T>
inline constexpr int mma_pack = mma_bits<T> < 32 ? 32 / mma_bits<T> : 1;

template <int M, int K, typename T, typename C>
inline constexpr bool mma_has_types = false;
template <int M, int K>
inline constexpr bool mma_has_types<M, K, half_t, float> = M == 16 && (K == 8 || K == 16);
template <int M, int K>
inline constexpr bool mma_has_types<M, K, half_t, half_t> = M == 16 && (K == 8 || K == 16);
template <int M, int K>
inline constexpr bool mma_has_types<M, K, bfloat16_t, float> = M == 16 && (K == 8 || K == 16);
template <int M, int K>
inline constexpr bool mma_has_types<M, K, tfloat32_t, float> = M == 16 && (K == 4 || K == 8);
template <int M, int K>
inline constexpr bool mma_has_types<M, K, double, double> = M == 8 && K == 4;
template <int M, int K>
inline constexpr bool mma_has_types<M, K, int8_t, int> =
    (M == 16 && (K == 16 || K == 32)) || (M == 8 && K == 16);
template <int M, int K>
inline constexpr bool mma_has_types<M, K, uint8_t, int> = mma_has_types<M, K, int8_t, int>;
template <int M, int K>
inline constexpr bool mma_has_types<M, K, fp8_e4_t, float> = M == 16 && K == 32;
template <int M, int K>
inline constexpr bool mma_has_types<M, K, fp8_e5_t, float> = M == 16 && K == 32;

template <int M, int K>
inline constexpr bool mma_has_types<M, K, int4b_t, int> = M == 16 && K == 64;
template <int M, int K>
inline constexpr bool mma_has_types<M, K, uint4b_t, int> = M == 16 && K == 64;

template <typename T>
inline constexpr bool mma_is_float8 = is_same<T, fp8_e4_t> || is_same<T, fp8_e5_t>;

// A and B are any two of the 8-bit floats, or of one type.
template <int M, int N, int K, typename TA, typename TB, typename TC>
inline constexpr bool mma_exists = N == 8 && mma_has_types<M, K, TA, TC> &&
                                   (is_same<TA, TB> || (mma_is_float8<TA> && mma_is_float8<TB>));

// mma.sp takes twice the K of what a fragment of A holds.
template <int M, int N, int K, typename TA, typename TB, typename TC>
inline constexpr bool mma_sp_exists =
    is_same<TA, TB> && mma_exists<M, N, K / 2, TA, TB, TC> && !is_sub_byte<TA> &&
    K * mma_bits<TA> == 512 && !is_same<TA, double>;

}  // namespace tl

#define TL_ASSERT_MMA_SP_EXISTS(M, N, K, TA, TB, TC)                               \
  static_assert(::tl::mma_sp_exists<M, N, K, TA, TB, TC>,                          \
                "tl::mma_sp_sync<M, N, K, A, B, C> has the types of tl::mma_sync " \
                "except double and those of 4 bits, M = 16, N = 8 and K = 64 bytes of elements")
#define TL_ASSERT_MMA_EXISTS(M, N, K, TA, TB, TC)                                                 \
  static_assert(::tl::mma_exists<M, N, K, TA, TB, TC>,                                            \
                "tl::mma_sync<M, N, K, A, B, C> has N = 8, A and B of one type or of 8-bit "      \
                "floats, and M, K, A, C: "                                                        \
                "16, 8 or 16, half_t, float or half_t; 16, 8 or 16, bfloat16_t, float; 16, 4 or " \
                "8, tfloat32_t, float; 8, 4, double, double; 16, 16 or 32, int8_t or uint8_t, "   \
                "int; 8, 16, int8_t or uint8_t, int; 16, 32, fp8_e4_t or fp8_e5_t, float; 16, "   \
                "64, int4b_t or uint4b_t, int")
