/*! Memory by words of 32 bits, and products of bytes. */
#pragma once

#include <tl/memory.h>

namespace tl {

/*! `words` words from `from`, which is a multiple of their size, of 16 bytes at most. */
template <int words>
TL_DEVICE auto load_words(const void* from) {
  const auto value = load<uint32_t, words>(from);
  if constexpr (words == 1) {
    return value.data[0];
  } else {
    return value;
  }
}

/*! The same, or zeros and no access where the predicate is false. */
template <int words>
TL_DEVICE auto load_words(const void* from, bool predicate) {
  return predicate ? load_words<words>(from) : decltype(load_words<words>(from)){};
}

TL_DEVICE void store_words(void* to, uint32_t value) { store(to, vec<uint32_t, 1>{value}); }
template <int N>
TL_DEVICE void store_words(void* to, const vec<uint32_t, N>& value) {
  store(to, value);
}
template <typename Words>
TL_DEVICE void store_words(void* to, const Words& value, bool predicate) {
  if (predicate) store_words(to, value);
}

/*! *sum += the products of four bytes with four bytes, at multiples of 4 (PTX ISA, dp4a). */
TL_DEVICE void dp4a(const int8_t* a, const int8_t* b, int* sum) {
  const auto x = load<int8_t, 4>(a), y = load<int8_t, 4>(b);
  *sum = detail::dot_bytes(x, y, *sum);
}

}  // namespace tl
