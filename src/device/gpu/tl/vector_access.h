/*! Vector loads and stores. */
#pragma once

#include <tl/vec.h>

// AMD's compiler waits for all copies to shared memory in front of an access of it whose place it
// does not tell from theirs: see tl/vmem.h.
#ifndef TL_ACCESS_RESTRICT
#define TL_ACCESS_RESTRICT
#endif

namespace tl {
namespace detail {

template <int bytes>
struct Word : UnsignedOf<bytes> {};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

}  // namespace detail

/*! N elements from `from`, which is aligned as vec<T, N> is: one access for each 16 bytes. */
template <typename T, int N>
TL_DEVICE vec<T, N> load(const void* TL_ACCESS_RESTRICT from) {
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
TL_DEVICE void store(void* TL_ACCESS_RESTRICT to, const vec<T, N>& value) {
  using Word = typename detail::Word<alignof(vec<T, N>)>::type;
  constexpr int kWords = sizeof(vec<T, N>) / sizeof(Word);
  Word words[kWords];
  memcpy(words, &value, sizeof(value));
  TL_UNROLL for (int i = 0; i < kWords; ++i) static_cast<Word*>(to)[i] = words[i];
}

}  // namespace tl
