/*! Shared memory (the local data share), and vector loads and stores. */
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
  static __shared__ __align__(16) unsigned char buf_shmem[bytes];
  return buf_shmem;
}

/*! Converts elements of an array of the thread into another one. */
template <typename To, int N>
TL_DEVICE void convert(To* to, const float* from) {
  store(to, cast<To>(load<float, N>(from)));
}

/*! An element of memory that nobody writes while the kernel runs. */
template <typename T>
TL_DEVICE T load_read_only(const T* from) {
  return *from;
}

/*! Asks for bytes of global memory in L2. These chips have no such instruction. */
template <typename From>
TL_DEVICE void prefetch_l2(const From&, int) {}

namespace detail {

TL_DEVICE int dot_bytes(const vec<int8_t, 4>& x, const vec<int8_t, 4>& y, int sum) {
#if __GFX9__
  return __builtin_amdgcn_sdot4(bit_cast<int>(x), bit_cast<int>(y), sum, false);
#else
  return __builtin_amdgcn_sudot4(true, bit_cast<int>(x), true, bit_cast<int>(y), sum, false);
#endif
}

}  // namespace detail
}  // namespace tl
