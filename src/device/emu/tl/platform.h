/*!
 * CUDA C++ on the CPU: the keywords, the built-in variables, and what the shared headers need.
 *
 * A kernel's thread is a fiber (fiber.h), __shared__ memory is memory of the worker that runs the
 * block.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <tl/launch.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks that run at the same time would have these in common: check_cluster refuses them.
#define __shared__ thread_local

#define threadIdx (::tl::emu::worker->current->index)

#define TL_DEVICE inline __attribute__((always_inline))
#define TL_UNROLL
#define TL_LIBM(name) __builtin_##name
#define TL_MEMCPY __builtin_memcpy

/*! Waits for all threads of the block that have not exited. */
inline void __syncthreads(tl::emu::Location where = tl::emu::here()) {
  tl::emu::barrier_sync(0, 0, where);
}

/*! Makes a signal of the atomic operations beside it (PTX ISA, fence). */
inline void __threadfence() { tl::emu::check_fence(); }
inline void __threadfence_block() { tl::emu::check_fence(); }
inline void __threadfence_system() { tl::emu::check_fence(); }

namespace tl {

/*! What the compiler may take for true. */
TL_DEVICE void assume(bool) {}

namespace detail {

TL_DEVICE int count_leading_zeros(uint32_t x) { return x ? __builtin_clz(x) : 32; }
TL_DEVICE int count_leading_zeros(uint64_t x) { return x ? __builtin_clzll(x) : 64; }
TL_DEVICE int count_ones(uint32_t x) { return __builtin_popcount(x); }
TL_DEVICE int count_ones(uint64_t x) { return __builtin_popcountll(x); }

// By copysign: where values are clamped, g++ 12 crashes on __builtin_signbit (its pass fre).
template <typename Float>
TL_DEVICE bool greater(Float x, Float y) {
  return x > y || (x == y && __builtin_copysign(1.0, y) < 0);
}

template <typename Float>
TL_DEVICE Float maximum(Float x, Float y) {
  return y != y || greater(x, y) ? x : y;
}
template <typename Float>
TL_DEVICE Float minimum(Float x, Float y) {
  return y != y || greater(y, x) ? x : y;
}

template <typename T>
TL_DEVICE T extremum(bool first, T x, T y) {
  return first ? x : y;
}

TL_DEVICE float reciprocal_sqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
TL_DEVICE double reciprocal_sqrt(double x) { return 1.0 / __builtin_sqrt(x); }

/*! 1 / x for x in [1, 2]. */
TL_DEVICE float reciprocal_of_one_to_two(float x) { return 1.0f / x; }

// The GPU's conversion: towards zero, saturating. NaN gives 0, or only the top bit where a type has
// 64 bits (PTX ISA, cvt). A C++ cast of such values is undefined.
template <typename To, typename From>
TL_DEVICE To truncate(From x) {
  constexpr bool kSigned = To(-1) < To(0);
  constexpr int kBits = int(sizeof(To)) * 8;
  constexpr To kTopBit = To(uint64_t(1) << (kBits - 1));
  constexpr To kLow = kSigned ? kTopBit : To(0);
  constexpr To kHigh = kSigned ? To(~kTopBit) : To(-1);
  constexpr From kLimit = From(uint64_t(1) << (kBits - 1)) * (kSigned ? 1 : 2);
  if (x != x) return kBits == 64 || sizeof(From) == 8 ? kTopBit : To(0);
  if (x >= kLimit) return kHigh;
  if (x <= (kSigned ? -kLimit : From(0))) return kLow;
  return To(x);
}

}  // namespace detail
}  // namespace tl

#include <tl/cuda_math.h>
