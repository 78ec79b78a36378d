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

/*! The intrinsic of LLVM, which clang has as a builtin from 20 on. */
using Lds = __attribute__((address_space(3))) void;
__device__ void raw_buffer_load_lds(__amdgpu_buffer_rsrc_t buffer, Lds* shared, int bytes,
                                    uint32_t offset, uint32_t uniform, int immediate,
                                    int policy) __asm("llvm.amdgcn.raw.ptr.buffer.load.lds");

/*! Loads `bytes` bytes of each lane to LDS, those of lane l to `shared` + l * bytes. */
template <int bytes>
TL_DEVICE void load_lds(void* shared, __amdgpu_buffer_rsrc_t buffer, uint32_t offset,
                        uint32_t uniform) {
  raw_buffer_load_lds(buffer, (Lds*)shared, bytes, offset, uniform, 0, 0);
}

/*! A uniform offset, which must not be behind the tensor: a lane is in range if its offset is less
 * than the tensor's bytes less `uniform` (CDNA3 ISA, "Range checking"), a difference that must not
 * wrap around. */
TL_DEVICE uint32_t uniform_in(uint32_t uniform, uint32_t bytes) {
  return __builtin_amdgcn_readfirstlane(uniform < bytes ? uniform : bytes);
}

/*! The resource of the rest of a tensor of any size, from element `uniform` on, which all lanes
 * have in common: none of its bytes behind its end. Offsets in it are below 2 GiB. */
template <typename T>
TL_DEVICE __amdgpu_buffer_rsrc_t rest_of(const T* base, int64_t bytes, int64_t uniform) {
  const int64_t first = uniform * int64_t(sizeof(T)), rest = bytes - first;
  const auto at = reinterpret_cast<uint64_t>(base) + uint64_t(first);
  const uint64_t low = uint32_t(__builtin_amdgcn_readfirstlane(int(at)));
  const uint64_t high = uint32_t(__builtin_amdgcn_readfirstlane(int(at >> 32)));
  const int64_t inside = rest < 0 ? 0 : rest < int64_t(kOutOfRange) ? rest : kOutOfRange;
  return buffer_of(reinterpret_cast<const void*>(high << 32 | low),
                   __builtin_amdgcn_readfirstlane(int(inside)));
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
 * `uniform` may be outside of the tensor. */
template <int N, typename T, typename Index>
TL_DEVICE vec<T, N> buffer_load_if(const T* base, uint32_t bytes, Index offset, Index uniform,
                                   bool condition) {
  const uint32_t same = detail::uniform_in(uint32_t(uniform) * sizeof(T), bytes);
  const uint32_t at = condition ? uint32_t(offset) * sizeof(T) : detail::kOutOfRange;
  return detail::load_words<vec<T, N>>(detail::buffer_of(base, bytes), at, same);
}

/*! Both of a tensor of 64 bits of bytes: the resource begins at `uniform`. */
template <int N, typename T, typename Offset, typename Uniform>
TL_DEVICE vec<T, N> buffer_load(const T* base, int64_t bytes, Offset offset, Uniform uniform) {
  return detail::load_words<vec<T, N>>(detail::rest_of(base, bytes, uniform),
                                       uint32_t(offset) * sizeof(T), 0);
}
template <int N, typename T, typename Offset, typename Uniform>
TL_DEVICE vec<T, N> buffer_load_if(const T* base, int64_t bytes, Offset offset, Uniform uniform,
                                   bool condition) {
  const uint32_t at = condition ? uint32_t(offset) * sizeof(T) : detail::kOutOfRange;
  return detail::load_words<vec<T, N>>(detail::rest_of(base, bytes, uniform), at, 0);
}

#if __GFX9__
/*!
 * Starts loading `bytes` bytes of each lane to shared memory, from element `offset + uniform` of
 * the tensor of `size` bytes at `base`, to `shared + lane`. Lanes write side by side: the first
 * one's place is that of all, from which lane l writes l * bytes further. All lanes of the
 * wavefront that the block has call.
 *
 * The compiler waits for these loads in front of each access of shared memory that may be of what
 * they write, unless it can tell it from them; it takes all accesses by `load` and `store` for
 * others, because the pointer there is a restricted one. So who reads waits by `wait_vmcnt` and a
 * barrier.
 */
template <int bytes, typename S, typename T, typename Place, typename Index>
TL_DEVICE void buffer_load_lds(S* shared, Place lane, const T* base, uint32_t size, Index offset,
                               Index uniform) {
  const uint32_t same = __builtin_amdgcn_readfirstlane(uint32_t(uniform) * sizeof(T));
  detail::load_lds<bytes>(shared + __builtin_amdgcn_readfirstlane(int(lane)),
                          detail::buffer_of(base, size), uint32_t(offset) * sizeof(T), same);
}

/*! The same; zeros of a lane whose `condition` is false, and of all lanes where `all` is, which
 * they have in common. Behind the last iteration `uniform` may be outside of the tensor. */
template <int bytes, typename S, typename T, typename Place, typename Index>
TL_DEVICE void buffer_load_lds_if(S* shared, Place lane, const T* base, uint32_t size, Index offset,
                                  Index uniform, bool all, bool condition) {
  const uint32_t at = condition ? uint32_t(offset) * sizeof(T) : detail::kOutOfRange;
  detail::load_lds<bytes>(shared + __builtin_amdgcn_readfirstlane(int(lane)),
                          detail::buffer_of(base, size), at,
                          detail::uniform_in(all ? uint32_t(uniform) * sizeof(T) : size, size));
}

/*! Both of a tensor of 64 bits of bytes: the resource begins at `uniform`. */
template <int bytes, typename S, typename T, typename Place, typename Offset, typename Uniform>
TL_DEVICE void buffer_load_lds(S* shared, Place lane, const T* base, int64_t size, Offset offset,
                               Uniform uniform) {
  detail::load_lds<bytes>(shared + __builtin_amdgcn_readfirstlane(int(lane)),
                          detail::rest_of(base, size, uniform), uint32_t(offset) * sizeof(T), 0);
}
template <int bytes, typename S, typename T, typename Place, typename Offset, typename Uniform>
TL_DEVICE void buffer_load_lds_if(S* shared, Place lane, const T* base, int64_t size, Offset offset,
                                  Uniform uniform, bool all, bool condition) {
  const uint32_t at = condition ? uint32_t(offset) * sizeof(T) : detail::kOutOfRange;
  detail::load_lds<bytes>(shared + __builtin_amdgcn_readfirstlane(int(lane)),
                          detail::rest_of(base, all ? size : 0, all ? uniform : 0), at, 0);
}

/*! Waits until at most `operations` accesses of vector memory of the wavefront are in flight; loads
 * to shared memory are some of them (CDNA3 ISA, VM_CNT). */
template <int operations>
TL_DEVICE void wait_vmcnt() {
  static_assert(operations >= 0 && operations < 64, "s_waitcnt counts 0 to 63 operations");
  asm volatile("s_waitcnt vmcnt(%0)" ::"n"(operations) : "memory");
}
#endif

}  // namespace tl
