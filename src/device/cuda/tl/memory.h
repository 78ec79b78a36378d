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

namespace detail {

/*! Words of 16, 32, 64 or 128 bits, or a byte in 32 bits, by a load with a predicate; unchanged
 * where the condition is false. PTX ISA, ld.global.nc. */
#define TL_LOAD_IF_(word, constraint, type)                                          \
  TL_DEVICE void load_if(word* to, const void* from, bool condition) {               \
    asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc." type " %0, [%1]; }" \
        : "+" constraint(*to)                                                        \
        : "l"(from), "r"(int(condition)));                                           \
  }
TL_LOAD_IF_(uint16_t, "h", "b16")
TL_LOAD_IF_(uint32_t, "r", "b32")
TL_LOAD_IF_(uint64_t, "l", "b64")
#undef TL_LOAD_IF_
TL_DEVICE void load_if(uint8_t* to, const void* from, bool condition) {
  uint32_t word = *to;
  asm("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.u8 %0, [%1]; }"
      : "+r"(word)
      : "l"(from), "r"(int(condition)));
  *to = uint8_t(word);
}
TL_DEVICE void load_if(uint4* to, const void* from, bool condition) {
  asm("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(to->x), "+r"(to->y), "+r"(to->z), "+r"(to->w)
      : "l"(from), "r"(int(condition)));
}

template <int bytes>
struct PredicatedWord : UnsignedOf<bytes> {};
template <>
struct PredicatedWord<16> {
  using type = uint4;
};

}  // namespace detail

/*!
 * An element, or a vector of `lanes`, of memory that nobody writes while the kernel runs; zeros and
 * no access where the condition is false. There is no branch, whatever the pointer takes: loads in
 * a row are in flight together.
 */
template <int lanes, typename T>
TL_DEVICE auto load_if(const T* from, bool condition) {
  typename detail::PredicatedWord<lanes * sizeof(T)>::type word = {};
  detail::load_if(&word, from, condition);
  if constexpr (lanes == 1) {
    return bit_cast<T>(word);
  } else {
    return bit_cast<vec<T, lanes>>(word);
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
