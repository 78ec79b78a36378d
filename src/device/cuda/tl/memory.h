/*! Shared memory, and vector loads and stores. */
#pragma once

#include <tl/buffer.h>
#include <tl/vec.h>

namespace tl {
namespace detail {

template <int bytes>
struct Word;
template <>
struct Word<1> {
  using type = uint8_t;
};
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

}  // namespace detail

/*! The block's dynamic shared memory, at a multiple of 1024. */
TL_DEVICE unsigned char* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char buf_dyn_shmem[];
  return buf_dyn_shmem;
}

/*! The block's static shared memory of `bytes` bytes; one size for each kernel. */
template <unsigned bytes>
TL_DEVICE unsigned char* static_shared() {
  __shared__ __align__(16) unsigned char buf_shmem[bytes];
  return buf_shmem;
}

/*! N elements from `from`, which is aligned as vec<T, N> is: one access for each 16 bytes. */
template <typename T, int N>
TL_DEVICE vec<T, N> load(const void* from) {
  using Word = typename detail::Word<alignof(vec<T, N>)>::type;
  constexpr int kWords = sizeof(vec<T, N>) / sizeof(Word);
  Word words[kWords];
  TL_UNROLL for (int i = 0; i < kWords; ++i) words[i] = static_cast<const Word*>(from)[i];
  vec<T, N> value;
  memcpy(&value, words, sizeof(value));
  return value;
}

/*! Writes `value` to `to`, which is aligned as vec<T, N> is: one access for each 16 bytes. */
template <typename T, int N>
TL_DEVICE void store(void* to, const vec<T, N>& value) {
  using Word = typename detail::Word<alignof(vec<T, N>)>::type;
  constexpr int kWords = sizeof(vec<T, N>) / sizeof(Word);
  Word words[kWords];
  memcpy(words, &value, sizeof(value));
  TL_UNROLL for (int i = 0; i < kWords; ++i) static_cast<Word*>(to)[i] = words[i];
}

/*! An element of memory that nobody writes while the kernel runs (PTX ISA, ld.global.nc). */
template <typename T>
TL_DEVICE T load_read_only(const T* from) {
  using Word = typename detail::Word<sizeof(T)>::type;
  return bit_cast<T>(__ldg(reinterpret_cast<const Word*>(from)));
}

namespace detail {

TL_DEVICE int dot_bytes(const vec<int8_t, 4>& x, const vec<int8_t, 4>& y, int sum) {
  return __dp4a(bit_cast<int>(x), bit_cast<int>(y), sum);
}

}  // namespace detail
}  // namespace tl
