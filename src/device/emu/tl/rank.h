/*!
 * Memory of other ranks, and signals between the ranks of a kernel that several GPUs run together.
 * The emulator runs the grids of all ranks at the same time.
 */
#pragma once

#include <tl/atomic.h>
#include <tl/ranks.h>
#include <tl/tensor_map.h>
#if TL_WARP_THREADS == 32
#include <tl/bulk_copy.h>
#endif

namespace tl {

enum class Compare { eq, ne, ge, gt, le, lt };

namespace emu {

inline const char* symbol_of(Compare comparison) {
  constexpr const char* kSymbols[] = {"==", "!=", ">=", ">", "<=", "<"};
  return kSymbols[static_cast<int>(comparison)];
}

template <Compare comparison, typename T>
bool holds(T found, T wanted) {
  if constexpr (comparison == Compare::eq) return found == wanted;
  if constexpr (comparison == Compare::ne) return found != wanted;
  if constexpr (comparison == Compare::ge) return found >= wanted;
  if constexpr (comparison == Compare::gt) return found > wanted;
  if constexpr (comparison == Compare::le) return found <= wanted;
  return found < wanted;
}

/*! Polls `at` until `is_there(value)`; meanwhile the thread waits for the signal that `wait`
 * describes. */
template <typename T, typename IsThere>
inline void wait_for_signal(const T* at, SignalWait wait, Location where, IsThere is_there) {
  Fiber* const self = worker->current;
  while (true) {
    const T found = poll(at, MemoryOrder::acquire_system, where);
    if (is_there(found)) break;
    wait.found = (long long)found;
    self->signal = &wait;
  }
  self->signal = nullptr;
}

}  // namespace emu

/*! The address of `tensor` in the memory of `rank`; `addresses` has one for each of the ranks. */
inline int64_t peer(const void*, const int64_t* addresses, int rank, int ranks,
                    emu::Location where = emu::here()) {
  if (unsigned(rank) >= unsigned(ranks)) {
    emu::fail(where, "out-of-bounds: the tensor of rank %d of %d ranks. Use 0 to %d", rank, ranks,
              ranks - 1);
  }
  return int64_t(emu::check_relocated((void*)addresses[rank]));
}

/*! The place of the tensor map of `rank`, which the thread acquires; `maps` has one for each of the
 * ranks. */
inline int64_t peer_map(const CUtensorMap* maps, int rank, int ranks,
                        emu::Location where = emu::here()) {
  if (unsigned(rank) >= unsigned(ranks)) {
    emu::fail(where, "out-of-bounds: the tensor of rank %d of %d ranks. Use 0 to %d", rank, ranks,
              ranks - 1);
  }
  emu::check_map_acquired(maps + rank);
  return int64_t(maps + rank);
}
TL_DEVICE const CUtensorMap& tensor_map_at(int64_t place) {
  return *reinterpret_cast<const CUtensorMap*>(place);
}

/*! What the threads of a block do before one of them signals, and when one has waited. */
inline void before_signal(emu::Location where = emu::here()) {
#if TL_WARP_THREADS == 32
  tma_store_wait<0, false>(where);
#endif
  emu::check_fence_proxy_async();
}
TL_DEVICE void behind_wait() { emu::check_fence_proxy_async(); }

template <typename T>
TL_DEVICE void signal_set(emu::PointerTo<T> signal, T value, emu::Location where = emu::here()) {
  atomic_store<release_system>(signal, value, where);
}

template <typename T>
TL_DEVICE void signal_add(emu::PointerTo<T> signal, T value, emu::Location where = emu::here()) {
  atomic_add<release_system>(signal, value, where);
}

/*! Returns when `*signal comparison value`. */
template <Compare comparison, typename T>
TL_DEVICE void signal_wait_until(emu::PointerTo<T> signal, T value, int, const char*,
                                 emu::Location where = emu::here()) {
  const emu::SignalWait wait = {signal, emu::symbol_of(comparison), (long long)value, -1, 0};
  emu::wait_for_signal(static_cast<const T*>(signal), wait, where,
                       [&](T found) { return emu::holds<comparison>(found, value); });
}

/*! The first half of the barrier of all ranks: `row`, of the symmetric tensor that begins at
 * `tensor`, counts the arrivals of each rank. Thread `thread` of `threads` takes its share of the
 * ranks. */
inline void sync_ranks_arrive(const uint32_t* row, const void* tensor, int rank, int ranks,
                              int thread, int threads, const int64_t* addresses,
                              emu::Location where = emu::here()) {
  const int64_t offset = int64_t(row) - int64_t(tensor);
  for (int r = thread; r < ranks; r += threads) {
    auto* theirs = (uint32_t*)(peer(tensor, addresses, r, ranks, where) + offset);
    atomic_add<release_system>(theirs + rank, uint32_t(1), where);
  }
}

/*! The second half: waits until each rank has arrived as often as this one. Counts wrap around. */
inline void sync_ranks_wait(const uint32_t* row, int rank, int ranks, int thread, int threads,
                            emu::Location where = emu::here()) {
  const uint32_t own = atomic_load<relaxed_system>(row + rank, where);
  for (int r = thread; r < ranks; r += threads) {
    emu::wait_for_signal(row + r, {row + r, ">=", (long long)own, r, 0}, where,
                         [&](uint32_t found) { return int32_t(found - own) >= 0; });
  }
}

}  // namespace tl
