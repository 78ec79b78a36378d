/*!
 * Vector memory of AMD's GPUs beside plain loads and stores: accesses by a buffer resource, which
 * checks their range, and copies from global to shared memory (LDS) that a wait counts.
 */
#pragma once

#include <tl/copy.h>
#include <tl/vec.h>

namespace tl {
namespace emu {

/*! Whether the lanes of a wavefront name one place of shared memory. */
struct LdsBase {
  const void* at;
  Location where;
};

TL_UNOBSERVED inline void check_one_base(void* const* lanes) {
  const LdsBase* first = nullptr;
  for (int l = 0; l < kWarpSize; ++l) {
    const auto* lane = static_cast<const LdsBase*>(lanes[l]);
    if (!lane) continue;
    if (!first) first = lane;
    if (lane->at == first->at) continue;
    fail(lane->where,
         "lane %d of a copy to shared memory gives another address than the first lane, which is "
         "the one that counts: lane l's bytes go to the place of l from there. Give the address of "
         "the wavefront's bytes",
         l);
  }
}

/*! What one lane copies: `valid` bytes, then zeros up to `bytes`. */
struct LdsCopy {
  static constexpr const char* kName = "copy to LDS";
  char* to;
  const void* from;
  uint32_t bytes, valid;

  const void* place() const { return to; }
  unsigned long size() const { return bytes; }

  void perform(const AsyncOperation&) const {
    __builtin_memcpy(to, from, valid);
    __builtin_memset(to + valid, 0, bytes - valid);
  }
};

/*! A copy is a group of its own: waits count copies, in the order of their issue. */
inline void issue_to_lds(void* shared, const void* global, uint32_t bytes, uint32_t valid,
                         Location where) {
  LdsBase base{shared, where};
  collective_sync("a copy to shared memory", check_one_base, &base, where, true);
  const Fiber& self = *worker->current;
  const unsigned first = self.linear / kWarpSize * kWarpSize;
  const unsigned lanes = this_block().threads - first;
  check_extent(shared, (lanes < kWarpSize ? lanes : kWarpSize) * size_t(bytes), where);
  char* const own = static_cast<char*>(shared) + (self.linear - first) * size_t(bytes);
  const uint32_t word = bytes < 4 ? bytes : 4;
  check_alignment(own, word, "shared address of a copy to shared memory", where);
  check_alignment(global, word, "global address of a copy to shared memory", where);
  AsyncQueue& copies = worker->current->queues.copies;
  const Agent agent = check_issue(Engine::kCpAsync, copies.open_group);
  if (valid) check_read(agent, global, valid, where);
  check_write(agent, own, bytes, where);
  issue(copies, LdsCopy{own, global, bytes, valid}, where);
  copies.commit();
}

/*! The same to each lane's own place, which has to be its number of them behind the first one's. */
inline void issue_own_to_lds(void* own, const void* global, uint32_t bytes, uint32_t valid,
                             Location where) {
  const size_t before = worker->current->linear % kWarpSize * size_t(bytes);
  issue_to_lds(static_cast<char*>(own) - before, global, bytes, valid, where);
}

/*! A buffer load of the compiler's, without a condition that says so, is in range. */
template <typename T>
void check_offset(int64_t bytes, int64_t offset, int64_t uniform, Location where) {
  if (offset >= 0 && uniform >= 0 && offset + uniform < bytes / int64_t(sizeof(T))) return;
  fail(where,
       "a buffer load of element %lld + %lld of a tensor of %lld elements, which reads zeros",
       static_cast<long long>(offset), static_cast<long long>(uniform),
       static_cast<long long>(bytes / sizeof(T)));
}

/*! In a resource that begins at `uniform`, offsets have to have 32 bits. */
template <typename T>
void check_offset_in_rest(int64_t bytes, int64_t offset, int64_t uniform, Location where) {
  if (offset < 0 || offset >= (int64_t(1) << 31) / int64_t(sizeof(T))) {
    fail(where, "a buffer load of element %lld of a resource, which has less than 2 GiB",
         static_cast<long long>(offset));
  }
  check_offset<T>(bytes, offset + uniform, 0, where);
}

}  // namespace emu

/*! Memory whose loads give zeros and whose stores write nothing from byte `bytes` on. */
struct buffer_resource {
  const char* base;
  uint32_t bytes;

  /*! How many of `size` bytes at an offset are inside, by words of 4 bytes, or of `size` if that is
   * less: the hardware checks each of them (CDNA3 ISA, Buffer addressing, Range checking). */
  uint32_t inside(uint32_t offset, uint32_t size) const {
    const uint32_t word = size < 4 ? size : 4, rest = offset < bytes ? bytes - offset : 0;
    return rest < size ? rest / word * word : size;
  }
};

TL_DEVICE buffer_resource make_buffer_resource(const void* base, uint32_t bytes) {
  return {static_cast<const char*>(base), bytes};
}

/*! N elements at an offset in bytes, at a multiple of 4, or of their size if that is less. */
template <typename T, int N>
TL_DEVICE vec<T, N> buffer_load(buffer_resource buffer, uint32_t offset,
                                emu::Location where = emu::here()) {
  vec<T, N> value;
  constexpr uint32_t kBytes = sizeof(value);
  const char* const from = buffer.base + offset;
  emu::check_alignment(from, kBytes < 4 ? kBytes : 4, "address of a buffer load", where);
  const uint32_t inside = buffer.inside(offset, kBytes);
  if (inside) emu::check_read(from, inside, where);
  __builtin_memset(static_cast<void*>(&value), 0, kBytes);
  __builtin_memcpy(static_cast<void*>(&value), from, inside);
  return value;
}

/*! N elements of the tensor of `bytes` bytes at `base`, from element `offset + uniform` on; both
 * are not negative, and `uniform` is the same in all lanes. 4, 8, 16 or 32 bytes. */
template <int N, typename T, typename Index>
TL_DEVICE vec<T, N> buffer_load(const T* base, uint32_t bytes, Index offset, Index uniform,
                                emu::Location where = emu::here()) {
  const uint32_t at = (uint32_t(offset) + uint32_t(uniform)) * sizeof(T);
  emu::check_offset<T>(bytes, offset, uniform, where);
  return buffer_load<T, N>(make_buffer_resource(base, bytes), at, where);
}

/*! The same in lanes whose condition holds; zeros in the others. */
template <int N, typename T, typename Index>
TL_DEVICE vec<T, N> buffer_load_if(const T* base, uint32_t bytes, Index offset, Index uniform,
                                   bool condition, emu::Location where = emu::here()) {
  if (!condition) return vec<T, N>{};
  return buffer_load<N>(base, bytes, offset, uniform, where);
}

/*! Both of a tensor of 64 bits of bytes: the resource begins at `uniform`. */
template <int N, typename T, typename Offset, typename Uniform>
TL_DEVICE vec<T, N> buffer_load(const T* base, int64_t bytes, Offset offset, Uniform uniform,
                                emu::Location where = emu::here()) {
  emu::check_offset_in_rest<T>(bytes, offset, uniform, where);
  const T* const from = base + int64_t(uniform) + int64_t(offset);
  return buffer_load<T, N>(make_buffer_resource(from, N * sizeof(T)), 0, where);
}
template <int N, typename T, typename Offset, typename Uniform>
TL_DEVICE vec<T, N> buffer_load_if(const T* base, int64_t bytes, Offset offset, Uniform uniform,
                                   bool condition, emu::Location where = emu::here()) {
  if (!condition) return vec<T, N>{};
  return buffer_load<N>(base, bytes, offset, uniform, where);
}

/*! The same, written. */
template <typename T, int N>
TL_DEVICE void buffer_store(buffer_resource buffer, uint32_t offset, const vec<T, N>& value,
                            emu::Location where = emu::here()) {
  constexpr uint32_t kBytes = sizeof(value);
  char* const to = const_cast<char*>(buffer.base) + offset;
  emu::check_alignment(to, kBytes < 4 ? kBytes : 4, "address of a buffer store", where);
  const uint32_t inside = buffer.inside(offset, kBytes);
  if (inside) emu::check_write(to, inside, where);
  __builtin_memcpy(to, &value, inside);
}

/*!
 * Starts copying `bytes` bytes of each lane from `global` to shared memory: those of lane l to
 * `shared` + l * bytes, `shared` being the same in all lanes of the wavefront, which all call. 1, 2
 * or 4 bytes; on CDNA4 12 or 16, too.
 */
template <int bytes>
TL_DEVICE void global_load_lds(void* shared, const void* global,
                               emu::Location where = emu::here()) {
  static_assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 12 || bytes == 16,
                "a copy to shared memory has 1, 2, 4, 12 or 16 bytes");
  emu::issue_to_lds(shared, global, bytes, bytes, where);
}

/*! The same from a buffer; zeros where it is out of range. */
template <int bytes>
TL_DEVICE void buffer_load_lds(void* shared, buffer_resource buffer, uint32_t offset,
                               emu::Location where = emu::here()) {
  static_assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 12 || bytes == 16,
                "a copy to shared memory has 1, 2, 4, 12 or 16 bytes");
  emu::issue_to_lds(shared, buffer.base + offset, bytes, buffer.inside(offset, bytes), where);
}

/*!
 * Starts loading `bytes` bytes of each lane to shared memory, from element `offset + uniform` of
 * the tensor of `size` bytes at `base`, to `shared + lane`. Lanes write side by side: the first
 * one's place is that of all, from which lane l writes l * bytes further. All lanes of the
 * wavefront that the block has call.
 */
template <int bytes, typename S, typename T, typename Place, typename Index>
TL_DEVICE void buffer_load_lds(S shared, Place lane, const T* base, uint32_t size, Index offset,
                               Index uniform, emu::Location where = emu::here()) {
  emu::check_offset<T>(size, offset, uniform, where);
  emu::issue_own_to_lds(shared + lane, base + offset + uniform, bytes, bytes, where);
}

/*! The same; zeros of a lane whose `condition` is false, and of all lanes where `all` is, which
 * they have in common. */
template <int bytes, typename S, typename T, typename Place, typename Index>
TL_DEVICE void buffer_load_lds_if(S shared, Place lane, const T* base, uint32_t size, Index offset,
                                  Index uniform, bool all, bool condition,
                                  emu::Location where = emu::here()) {
  condition = condition && all;
  if (condition) emu::check_offset<T>(size, offset, uniform, where);
  emu::issue_own_to_lds(shared + lane, condition ? base + offset + uniform : base, bytes,
                        condition ? bytes : 0, where);
}

/*! Both of a tensor of 64 bits of bytes: the resource begins at `uniform`. */
template <int bytes, typename S, typename T, typename Place, typename Offset, typename Uniform>
TL_DEVICE void buffer_load_lds(S shared, Place lane, const T* base, int64_t size, Offset offset,
                               Uniform uniform, emu::Location where = emu::here()) {
  emu::check_offset_in_rest<T>(size, offset, uniform, where);
  emu::issue_own_to_lds(shared + lane, base + int64_t(uniform) + int64_t(offset), bytes, bytes,
                        where);
}
template <int bytes, typename S, typename T, typename Place, typename Offset, typename Uniform>
TL_DEVICE void buffer_load_lds_if(S shared, Place lane, const T* base, int64_t size, Offset offset,
                                  Uniform uniform, bool all, bool condition,
                                  emu::Location where = emu::here()) {
  condition = condition && all;
  if (condition) emu::check_offset_in_rest<T>(size, offset, uniform, where);
  emu::issue_own_to_lds(shared + lane, condition ? base + int64_t(uniform) + int64_t(offset) : base,
                        bytes, condition ? bytes : 0, where);
}

/*! Instructions do not move over it; the emulator does what the source says anyway. */
TL_DEVICE void schedule_barrier() {}

/*!
 * Waits until at most `operations` of the copies to shared memory are in flight; the hardware
 * counts other loads too, which only makes it wait for more (s_waitcnt vmcnt).
 */
template <int operations>
TL_DEVICE void wait_vmcnt(emu::Location where = emu::here()) {
  static_assert(operations >= 0 && operations < 64, "s_waitcnt counts 0 to 63 operations");
  cp_async_wait<operations>(where);
}

}  // namespace tl
