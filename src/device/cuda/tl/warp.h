/*!
 * Values that the lanes of a warp, or the threads of a block, tell each other. The lanes in `mask`
 * take part, and each of them calls (CUDA C++ Programming Guide, "Warp Shuffle Functions", "Warp
 * Vote Functions", "Warp Match Functions", "Synchronization Functions").
 */
#pragma once

#include <tl/bits.h>

namespace tl {

// Word by word, for values of every size.
#define TL_SHUFFLE(name)                                          \
  template <typename T>                                           \
  TL_DEVICE T name(uint32_t mask, T value, int lane, int width) { \
    constexpr int kWords = (sizeof(T) + 3) / 4;                   \
    uint32_t words[kWords] = {};                                  \
    memcpy(words, &value, sizeof(T));                             \
    TL_UNROLL for (int i = 0; i < kWords; ++i) {                  \
      words[i] = __##name(mask, words[i], lane, width);           \
    }                                                             \
    memcpy(&value, words, sizeof(T));                             \
    return value;                                                 \
  }
TL_SHUFFLE(shfl_sync)
TL_SHUFFLE(shfl_up_sync)
TL_SHUFFLE(shfl_down_sync)
TL_SHUFFLE(shfl_xor_sync)
#undef TL_SHUFFLE

TL_DEVICE int any_sync(uint32_t mask, bool predicate) { return __any_sync(mask, predicate); }
TL_DEVICE int all_sync(uint32_t mask, bool predicate) { return __all_sync(mask, predicate); }
TL_DEVICE uint64_t ballot_sync(uint32_t mask, bool predicate) {
  return __ballot_sync(mask, predicate);
}
TL_DEVICE uint64_t activemask() { return __activemask(); }

/*! The lanes whose value has the same bits. */
template <typename T>
TL_DEVICE uint32_t match_any_sync(uint32_t mask, T value) {
  if constexpr (sizeof(T) == 8) {
    return __match_any_sync(mask, bit_cast<unsigned long long>(value));
  } else {
    return __match_any_sync(mask, bit_cast<uint32_t>(value));
  }
}
/*! All lanes of `mask` if their values have the same bits, else 0. */
template <typename T>
TL_DEVICE uint32_t match_all_sync(uint32_t mask, T value) {
  int all;
  if constexpr (sizeof(T) == 8) {
    return __match_all_sync(mask, bit_cast<unsigned long long>(value), &all);
  } else {
    return __match_all_sync(mask, bit_cast<uint32_t>(value), &all);
  }
}

TL_DEVICE int syncthreads_count(bool predicate) { return __syncthreads_count(predicate); }
TL_DEVICE int syncthreads_and(bool predicate) { return __syncthreads_and(predicate); }
TL_DEVICE int syncthreads_or(bool predicate) { return __syncthreads_or(predicate); }

}  // namespace tl
