/*! Which matrix instructions of CDNA exist (CDNA2, CDNA3 and CDNA4 ISA, MFMA). Which architecture
 * has which is the compiler's to know. */
#pragma once

#include <tl/mma_shapes.h>

/*! The 6-bit floats of OCP Microscaling, E2M3 and E3M2, of which only MFMA knows. In memory element
 * e is bits 6 e to 6 e + 5 of bytes, the lowest bits first: four are three bytes. */
struct fp6_e2_t;
struct fp6_e3_t;

namespace tl {

namespace detail {

template <>
struct MmaMemory<fp6_e2_t> {
  using type = uint8_t;
};
template <>
struct MmaMemory<fp6_e3_t> {
  using type = uint8_t;
};

}  // namespace detail

template <>
inline constexpr int mma_bits<fp6_e2_t> = 6;
template <>
inline constexpr int mma_bits<fp6_e3_t> = 6;

/*! Of M = N = 16; what is 32 x 32 has half the K. tfloat32_t stands for CDNA3's xf32. A type has
 * the K of each architecture, and that with which a lane has 16 bytes of an operand: several
 * instructions where an architecture has none of it (hip/tl/mfma.h). */
template <int K, typename T, typename C>
inline constexpr bool mfma_has_types = false;
template <int K>
inline constexpr bool mfma_has_types<K, half_t, float> = K == 16 || K == 32;
template <int K>
inline constexpr bool mfma_has_types<K, bfloat16_t, float> = K == 16 || K == 32;
template <int K>
inline constexpr bool mfma_has_types<K, int8_t, int> = K == 16 || K == 32 || K == 64;
template <int K, typename Format>
inline constexpr bool mfma_has_types<K, Float8<Format>, float> =
    detail::has_sign<Format> && (K == 32 || K == 64 || K == 128);
template <int K>
inline constexpr bool mfma_has_types<K, float, float> = K == 4 || K == 16;
template <int K>
inline constexpr bool mfma_has_types<K, tfloat32_t, float> = K == 8 || K == 16;
template <int K>
inline constexpr bool mfma_has_types<K, double, double> = K == 4 || K == 8;

/*! Two types of 8-bit floats, both of OCP or both of CDNA3. */
template <typename TA, typename TB>
inline constexpr bool mfma_mixes = is_same<TA, TB>;
template <>
inline constexpr bool mfma_mixes<fp8_e4_t, fp8_e5_t> = true;
template <>
inline constexpr bool mfma_mixes<fp8_e5_t, fp8_e4_t> = true;
template <>
inline constexpr bool mfma_mixes<fp8_e4_fnuz_t, fp8_e5_fnuz_t> = true;
template <>
inline constexpr bool mfma_mixes<fp8_e5_fnuz_t, fp8_e4_fnuz_t> = true;

template <int M, int N, int K, typename T, typename C, typename TB = T>
inline constexpr bool mfma_exists =
    M == N && mfma_mixes<T, TB> &&
    ((M == 16 && mfma_has_types<K, T, C>) ||
     (M == 32 && mfma_has_types<2 * K, T, C> && !is_same<T, double>));

/*! Of A and of B, which may differ. */
template <typename T>
inline constexpr bool mfma_scale_has_type = false;
template <typename Format>
inline constexpr bool mfma_scale_has_type<Float8<Format>> = detail::has_sign<Format>;
template <>
inline constexpr bool mfma_scale_has_type<fp4_e2_t> = true;
template <>
inline constexpr bool mfma_scale_has_type<fp6_e2_t> = true;
template <>
inline constexpr bool mfma_scale_has_type<fp6_e3_t> = true;

/*! Elements along K that a scale is of. */
inline constexpr int mfma_scale_k = 32;

template <int M, int N, int K, typename TA, typename TB>
inline constexpr bool mfma_scale_exists =
    M == N && ((M == 16 && K == 128) || (M == 32 && K == 64)) && mfma_scale_has_type<TA> &&
    mfma_scale_has_type<TB>;

}  // namespace tl

#define TL_ASSERT_MFMA_EXISTS(M, N, K, T, C, TB)                                                   \
  static_assert(                                                                                   \
      ::tl::mfma_exists<M, N, K, T, C, TB>,                                                        \
      "tl::mfma<M, N, K, T, C> has M = N = 16 and K, T, C: 16 or 32, half_t or "                   \
      "bfloat16_t, float; 16, 32 or 64, int8_t, int; 32, 64 or 128, 8-bit floats, float; 4 or "    \
      "16, "                                                                                       \
      "float, float; 8 or 16, tfloat32_t, float; 4 or 8, double, double; or, but for double, M = " \
      "N = 32 and half the K")
#define TL_ASSERT_MFMA_SCALE_EXISTS(M, N, K, TA, TB)                                               \
  static_assert(::tl::mfma_scale_exists<M, N, K, TA, TB>,                                          \
                "tl::mfma_scale<M, N, K, A, B> is 16 x 16 x 128 or 32 x 32 x 64 of 8-bit floats, " \
                "fp6_e2_t, fp6_e3_t and fp4_e2_t")
