/*! Vector loads by a buffer resource, which the hardware checks for their range. */
#pragma once

#include <tl/vector_access.h>

namespace tl {
namespace detail {

/*! An offset in bytes that is outside of each tensor: these have less than 2 GiB. No offset of an
 * instruction makes it one inside. */
constexpr uint32_t kOutOfRange = 0x80000000u;

/*! The fourth word of a raw buffer resource: elements of 32 bits (CDNA3 ISA, "Buffer Resource
 * Descriptor", DATA_FORMAT). */
constexpr int kRawBuffer = 0x00020000;

template <typename Value>
TL_DEVICE Value load_words(__amdgpu_buffer_rsrc_t buffer, uint32_t offset, uint32_t uniform) {
  Value value;
  constexpr int kWords = sizeof(Value) / 4;
  if constexpr (kWords == 1) {
    const auto word = __builtin_amdgcn_raw_buffer_load_b32(buffer, offset, uniform, 0);
    memcpy(&value, &word, sizeof(value));
  } else if constexpr (kWords == 2) {
    const auto words = __builtin_amdgcn_raw_buffer_load_b64(buffer, offset, uniform, 0);
    memcpy(&value, &words, sizeof(value));
  } else {
    TL_UNROLL for (int i = 0; i < kWords; i += 4) {
      const auto words = __builtin_amdgcn_raw_buffer_load_b128(buffer, offset + i * 4, uniform, 0);
      memcpy(reinterpret_cast<char*>(&value) + i * 4, &words, sizeof(words));
    }
  }
  return value;
}

TL_DEVICE __amdgpu_buffer_rsrc_t buffer_of(const void* base, uint32_t bytes) {
  return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, kRawBuffer);
}

}  // namespace detail

/*! The compiler moves no instruction over it. */
TL_DEVICE void schedule_barrier() { __builtin_amdgcn_sched_barrier(0); }

/*! N elements of the tensor of `bytes` bytes at `base`, from element `offset + uniform` on; both
 * are not negative, and `uniform` is the same in all lanes. 4, 8, 16 or 32 bytes. */
template <int N, typename T, typename Index>
TL_DEVICE vec<T, N> buffer_load(const T* base, uint32_t bytes, Index offset, Index uniform) {
  const uint32_t same = __builtin_amdgcn_readfirstlane(uint32_t(uniform) * sizeof(T));
  return detail::load_words<vec<T, N>>(detail::buffer_of(base, bytes), uint32_t(offset) * sizeof(T),
                                       same);
}

/*! The same in lanes whose condition holds; zeros in the others. Behind the last iteration
 * `uniform` may be outside of the tensor. A lane is in range if its offset is less than the
 * tensor's bytes less `uniform` (CDNA3 ISA, "Range checking"), a difference that must not wrap
 * around. */
template <int N, typename T, typename Index>
TL_DEVICE vec<T, N> buffer_load_if(const T* base, uint32_t bytes, Index offset, Index uniform,
                                   bool condition) {
  const uint32_t from = uint32_t(uniform) * sizeof(T);
  const uint32_t same = __builtin_amdgcn_readfirstlane(from < bytes ? from : bytes);
  const uint32_t at = condition ? uint32_t(offset) * sizeof(T) : detail::kOutOfRange;
  return detail::load_words<vec<T, N>>(detail::buffer_of(base, bytes), at, same);
}

}  // namespace tl
