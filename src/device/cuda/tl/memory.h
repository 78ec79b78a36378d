/*! Shared memory, and vector loads and stores. */
#pragma once

#include <tl/buffer.h>
#include <tl/vector_access.h>

namespace tl {

/*! The block's dynamic shared memory, at a multiple of 1024. */
TL_DEVICE unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char buf_dyn_shmem[];
  return buf_dyn_shmem;
}

/*! The block's static shared memory of `bytes` bytes; one size for each kernel. */
template <unsigned bytes>
TL_DEVICE unsigned char* static_shared() {
  __shared__ __align__(1024) unsigned char buf_shmem[bytes];
  return buf_shmem;
}

/*! store(to, cast<To>(load<float, N>(from))) of arrays of the thread, N even, To of 16 bits.
 * Without the vectors, which NVVM takes long to take apart. */
template <typename To, int N>
TL_DEVICE void convert(To* to, const float* from) {
  TL_UNROLL for (int i = 0; i < N; i += 2) To::from_floats(from[i], from[i + 1], to + i);
}

/*! An element of memory that nobody writes while the kernel runs (PTX ISA, ld.global.nc). */
template <typename T>
TL_DEVICE T load_read_only(const T* from) {
  using Word = typename detail::Word<sizeof(T)>::type;
  return bit_cast<T>(__ldg(reinterpret_cast<const Word*>(from)));
}

/*!
 * An element of global memory, asked for where this stands. ptxas moves a load of what a kernel
 * does not write behind waits for mbarriers. This thread's stores in front of it come first. PTX
 * ISA, ld.global.
 */
template <typename T>
TL_DEVICE T load_here(const T* from) {
  static_assert(sizeof(T) <= 8, "a load of one element has 1, 2, 4 or 8 bytes");
  if constexpr (sizeof(T) == 8) {
    uint64_t word;
    asm volatile("ld.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return bit_cast<T>(word);
  } else if constexpr (sizeof(T) == 4) {
    uint32_t word;
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return bit_cast<T>(word);
  } else if constexpr (sizeof(T) == 2) {
    uint16_t word;
    asm volatile("ld.global.b16 %0, [%1];" : "=h"(word) : "l"(from) : "memory");
    return bit_cast<T>(word);
  } else {
    uint32_t word;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return bit_cast<T>(uint8_t(word));
  }
}

/*!
 * Asks for the lines of L2 of `bytes` bytes of global memory, from 16 bytes to 16 bytes, and waits
 * for nothing. PTX ISA, cp.async.bulk.prefetch and prefetch.
 */
TL_DEVICE void prefetch_l2(const void* from, int bytes) {
  const size_t first = (__cvta_generic_to_global(from) + 15) & ~size_t(15);
  const size_t end = (__cvta_generic_to_global(from) + bytes) & ~size_t(15);
  if (bytes < 16 || end <= first) return;
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"(int(end - first)));
#else
  for (size_t at = first; at < end; at += 128) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
  }
#endif
}

namespace detail {

TL_DEVICE int dot_bytes(const vec<int8_t, 4>& x, const vec<int8_t, 4>& y, int sum) {
  return __dp4a(bit_cast<int>(x), bit_cast<int>(y), sum);
}

}  // namespace detail
}  // namespace tl
