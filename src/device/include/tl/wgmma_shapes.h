/*! Which matrix products of a warp group exist (PTX ISA, wgmma.mma_async), and the descriptors of
 * their operands in shared memory. */
#pragma once

#include <tl/mma_memory.h>
#include <tl/shared_address.h>

namespace tl {

/*! Elements along K of one instruction: 32 bytes of them. */
template <typename T>
inline constexpr int wgmma_k = 32 / int(sizeof(mma_memory<T>));

template <typename TA, typename TB, typename TC>
inline constexpr bool wgmma_has_types =
    is_float8<TA> && is_float8<TB> && (is_same<TC, float> || is_same<TC, half_t>);
template <typename TC>
inline constexpr bool wgmma_has_types<half_t, half_t, TC> =
    is_same<TC, float> || is_same<TC, half_t>;
template <>
inline constexpr bool wgmma_has_types<bfloat16_t, bfloat16_t, float> = true;
template <>
inline constexpr bool wgmma_has_types<tfloat32_t, tfloat32_t, float> = true;
template <>
inline constexpr bool wgmma_has_types<int8_t, int8_t, int> = true;
template <>
inline constexpr bool wgmma_has_types<int8_t, uint8_t, int> = true;
template <>
inline constexpr bool wgmma_has_types<uint8_t, int8_t, int> = true;
template <>
inline constexpr bool wgmma_has_types<uint8_t, uint8_t, int> = true;

template <int N, typename TC>
inline constexpr bool wgmma_has_columns =
    N >= 8 && N <= 256 && N % 8 == 0 && (!is_same<TC, int> || N % 16 == 0 || N <= 24);

template <int M, int N, int K, typename TA, typename TB, typename TC>
inline constexpr bool wgmma_exists =
    M == 64 && K == wgmma_k<TA> && wgmma_has_columns<N, TC> && wgmma_has_types<TA, TB, TC>;

// wgmma.sp takes twice the K of what it reads of A, which is of the type of B, and no tf32.
template <int M, int N, int K, typename TA, typename TB, typename TC>
inline constexpr bool wgmma_sp_exists =
    wgmma_exists<M, N, K / 2, TA, TB, TC> && is_same<TA, TB> && sizeof(mma_memory<TA>) < 4;

namespace detail {

// PTX ISA, Matrix Descriptor Format: the number of a swizzle by its span in bytes.
template <int swizzle>
inline constexpr uint64_t kWgmmaSwizzle = swizzle == 128  ? 1
                                          : swizzle == 64 ? 2
                                                          : 3;
template <>
inline constexpr uint64_t kWgmmaSwizzle<0> = 0;

}  // namespace detail

/*!
 * Describes an operand in shared memory, whose 16-byte rows of eight make core matrices.
 *
 * `swizzle` is 0, 32, 64 or 128 bytes: within its span, bits 4 to 6 of an address are xored with
 * bits 7 to 9 as a TMA load of this swizzle does. K-major: row r of the operand begins at (r / 8) *
 * stride + (r % 8) * max(swizzle, 16) bytes, and its second 16 bytes are behind the first, or
 * without a swizzle `leading` bytes away. M- or N-major, 16-bit types only: each k is such a row,
 * spans of the other index are `leading` apart and eights of k `stride`; without a swizzle the
 * other way round. All are multiples of 16 below 2^18; patterns repeat from address 0. PTX ISA,
 * Asynchronous Warpgroup Level Matrix Shared Memory Layout.
 */
template <int swizzle>
TL_DEVICE uint64_t wgmma_descriptor(const void* start, uint32_t leading, uint32_t stride) {
  static_assert(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128,
                "tl::wgmma_descriptor<swizzle> has a swizzle of 0, 32, 64 or 128 bytes");
  const uint64_t address = detail::shared_address(start);
  return (address & 0x3ffff) >> 4 | uint64_t((leading & 0x3ffff) >> 4) << 16 |
         uint64_t((stride & 0x3ffff) >> 4) << 32 | detail::kWgmmaSwizzle<swizzle> << 62;
}

/*! The descriptor of what lies `bytes` bytes, a multiple of 16, behind in shared memory. */
TL_DEVICE uint64_t wgmma_descriptor_advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/*!
 * The descriptor itself, as operand of product `i` of several that may have equal values of A in
 * registers, such as constants. ptxas of CUDA 13.0 to 13.2 takes two such products for one and
 * leaves the accumulators of the second unset; a grid without blocks, for which the descriptors
 * would differ, keeps them apart and costs nothing.
 */
TL_DEVICE uint64_t wgmma_descriptor_apart(uint64_t descriptor, [[maybe_unused]] int i) {
#if defined(__CUDA_ARCH__) && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1303
  uint32_t blocks;
  asm("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
  if (blocks == 0) return descriptor + uint32_t(i);
#endif
  return descriptor;
}

/*!
 * The operand of `count` steps along K: step k's descriptor is k * `step` bytes behind the first,
 * and where K's elements lie in several rows, (k / `row`) * `row_bytes` + (k % `row`) * `step`.
 */
template <int count, int step, int row, int row_bytes>
struct WgmmaSteps {
  uint64_t first;
};
template <int count, int step, int row, int row_bytes>
TL_DEVICE WgmmaSteps<count, step, row, row_bytes> wgmma_steps(uint64_t first) {
  return {first};
}

namespace detail {

// A descriptor alone is an operand of one step.
template <typename Operand>
inline constexpr int kWgmmaSteps = 1;
template <int count, int step, int row, int row_bytes>
inline constexpr int kWgmmaSteps<WgmmaSteps<count, step, row, row_bytes>> = count;

TL_DEVICE uint64_t wgmma_step(uint64_t descriptor, int) { return descriptor; }
template <int count, int step, int row, int row_bytes>
TL_DEVICE uint64_t wgmma_step(WgmmaSteps<count, step, row, row_bytes> operand, int k) {
  return wgmma_descriptor_advance(operand.first, k / row * row_bytes + k % row * step);
}

}  // namespace detail

/*! Sets a descriptor whose fields are given as it holds them: `layout_type` 0 to 3 for a swizzle of
 * 0, 128, 64 and 32 bytes, `leading` and `stride` in 16 bytes. PTX ISA, Matrix Descriptor Format.
 */
template <int layout_type, int leading, int stride>
TL_DEVICE void initialize_wgmma_descriptor(uint64_t* descriptor, const void* start) {
  constexpr int kSwizzle = layout_type == 0 ? 0 : 256 >> layout_type;
  *descriptor = wgmma_descriptor<kSwizzle>(start, 16 * leading, 16 * stride);
}

/*! Moves a descriptor by `bytes` bytes, a multiple of 16. */
TL_DEVICE void increase_descriptor_offset(uint64_t* descriptor, int bytes) {
  *descriptor += uint64_t(int64_t(bytes >> 4));
}

}  // namespace tl

#define TL_ASSERT_WGMMA_SP_EXISTS(M, N, K, TA, TB, TC, major)                                 \
  static_assert(::tl::wgmma_sp_exists<M, N, K, TA, TB, TC>,                                   \
                "tl::wgmma_sp_ss<M, N, K, A, B, C> has the shapes and types of tl::wgmma_ss " \
                "with K of 64 bytes, A and B of one type other than tfloat32_t");             \
  static_assert((major) || sizeof(::tl::mma_memory<TB>) == 2,                                 \
                "tl::wgmma_sp_ss takes a B that is not K-major of 16-bit types only")
#define TL_ASSERT_WGMMA_STEPS(A, B)                                           \
  static_assert(::tl::detail::kWgmmaSteps<A> == ::tl::detail::kWgmmaSteps<B>, \
                "tl::wgmma_ss takes an A and a B of as many steps along K")
#define TL_ASSERT_WGMMA_EXISTS(M, N, K, TA, TB, TC, major)                                         \
  static_assert(::tl::wgmma_exists<M, N, K, TA, TB, TC>,                                           \
                "tl::wgmma<M, N, K, A, B, C> has M = 64, K of 32 bytes, N = 8, 16, ... 256 (from " \
                "32 on multiples of 16 for int), and A, B, C: twice half_t, float or half_t; "     \
                "twice bfloat16_t or tfloat32_t, float; any of fp8_e4_t and fp8_e5_t, float or "   \
                "half_t; any of int8_t and uint8_t, int");                                         \
  static_assert((major) || sizeof(::tl::mma_memory<TA>) == 2,                                      \
                "tl::wgmma takes operands that are not K-major of 16-bit types only")
