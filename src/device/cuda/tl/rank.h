/*!
 * Memory of other GPUs, and signals between the ranks of a kernel that several GPUs run together.
 *
 * A signal is a word that one rank writes and another one looks at, atomically, at the scope of the
 * system: who sends it releases, who has waited for it acquires (PTX ISA, Memory Consistency
 * Model). A wait that lasts kSignalSeconds ends the kernel with an error of the launch, after a
 * line that says what is missing. Which rank was to send it is known to the host, whose line comes
 * first (tilelang/distributed/watch.py).
 */
#pragma once

#include <tl/atomic.h>
#include <tl/output.h>
#include <tl/tensor_map.h>

namespace tl {

enum class Compare { eq, ne, ge, gt, le, lt };

namespace detail {

constexpr uint64_t kSignalSeconds = 300;

/*! Says whether a wait has lasted too long, every so many polls. */
class WaitLimit {
 public:
  TL_DEVICE bool is_over() {
    if (++polls_ % 4096) return false;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (begin_ == 0) begin_ = now;
    return now - begin_ > kSignalSeconds * 1000000000u;
  }

 private:
  unsigned polls_ = 0;
  uint64_t begin_ = 0;
};

template <Compare comparison, typename T>
TL_DEVICE bool holds(T found, T wanted) {
  if constexpr (comparison == Compare::eq) return found == wanted;
  if constexpr (comparison == Compare::ne) return found != wanted;
  if constexpr (comparison == Compare::ge) return found >= wanted;
  if constexpr (comparison == Compare::gt) return found > wanted;
  if constexpr (comparison == Compare::le) return found <= wanted;
  return found < wanted;
}

}  // namespace detail

/*! The address of `tensor` in the memory of `rank`; `addresses` has one for each of the ranks. */
TL_DEVICE int64_t peer(const void*, const int64_t* addresses, int rank, int ranks) {
  return unsigned(rank) < unsigned(ranks) ? addresses[rank] : 0;
}

/*!
 * The place of the tensor map of `rank`; `maps`, in global memory, has one for each of the ranks.
 * The host has written it, so each thread that uses it acquires it first (PTX ISA,
 * fence.proxy.tensormap; CUDA C++ Programming Guide, "Tensor Memory Access": a map in global
 * memory).
 */
TL_DEVICE int64_t peer_map(const CUtensorMap* maps, int rank, int ranks) {
  const CUtensorMap* map = unsigned(rank) < unsigned(ranks) ? maps + rank : nullptr;
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
#endif
  return int64_t(map);
}
TL_DEVICE const CUtensorMap& tensor_map_at(int64_t place) {
  return *reinterpret_cast<const CUtensorMap*>(place);
}

/*! What they do when one of them has waited: what others wrote is over for copies of the async
 * proxy that this block makes of it. */
TL_DEVICE void behind_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

/*! What the threads of a block do before one of them signals: the bulk copies that they have issued
 * are complete, those of the program's own (T.tma_copy) too, and what they wrote is over for copies
 * of the async proxy, which other ranks make of it. */
TL_DEVICE void before_signal() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
  behind_wait();
}

template <typename T>
TL_DEVICE void signal_set(T* signal, T value) {
  atomic_store<release_system>(signal, value);
}

template <typename T>
TL_DEVICE void signal_add(T* signal, T value) {
  atomic_add<release_system>(signal, value);
}

/*! Returns when `*signal comparison value`. `what` names the signal. */
template <Compare comparison, typename T>
TL_DEVICE void signal_wait_until(const T* signal, T value, int rank, const char* what) {
  detail::WaitLimit limit;
  while (true) {
    const T found = atomic_load<acquire_system>(signal);
    if (detail::holds<comparison>(found, value)) return;
    if (!limit.is_over()) continue;
    ::printf(
        "tilelang: rank %d has waited %d s for signal %s, which is %lld, wanted %lld: the rank "
        "that sends it has died or never comes; on stderr tilelang.distributed says which\n",
        rank, int(detail::kSignalSeconds), what, (long long)found, (long long)value);
    __trap();
  }
}

/*! The first half of the barrier of all ranks: `row`, of the symmetric tensor that begins at
 * `tensor`, counts the arrivals of each rank. Thread `thread` of `threads` takes its share of the
 * ranks. */
TL_DEVICE void sync_ranks_arrive(const uint32_t* row, const void* tensor, int rank, int ranks,
                                 int thread, int threads, const int64_t* addresses) {
  const int64_t offset = int64_t(row) - int64_t(tensor);
  for (int r = thread; r < ranks; r += threads) {
    atomic_add<release_system>((uint32_t*)(addresses[r] + offset) + rank, uint32_t(1));
  }
}

/*! The second half: waits until each rank has arrived as often as this one. Counts wrap around. */
TL_DEVICE void sync_ranks_wait(const uint32_t* row, int rank, int ranks, int thread, int threads) {
  const uint32_t own = atomic_load<relaxed_system>(row + rank);
  for (int r = thread; r < ranks; r += threads) {
    detail::WaitLimit limit;
    while (int32_t(atomic_load<acquire_system>(row + r) - own) < 0) {
      if (!limit.is_over()) continue;
      ::printf(
          "tilelang: rank %d has waited %d s for rank %d at a barrier of all ranks; on stderr "
          "tilelang.distributed says what that does\n",
          rank, int(detail::kSignalSeconds), r);
      __trap();
    }
  }
}

}  // namespace tl
