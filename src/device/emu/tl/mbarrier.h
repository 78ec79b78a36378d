/*! mbarriers, and the fences that go with them. */
#pragma once

#include <tl/grid.h>
#include <tl/mbarrier_state.h>

namespace tl {
namespace emu {

TL_RUNTIME void expect_arrival(Mbarrier& barrier, Location where) {
  if (barrier.pending == kMaxArrivals)
    fail(where, "an mbarrier counts up to %u arrivals", kMaxArrivals);
  ++barrier.pending;
}

/*! For whom an arrival at another block's mbarrier releases (PTX ISA, mbarrier.arrive, .scope). */
enum class ReleaseScope { kBlock, kCluster };

TL_RUNTIME void thread_arrives(Mbarrier& barrier, unsigned count, Location where,
                               ReleaseScope scope = ReleaseScope::kCluster) {
  const bool own = barrier.block == &this_block();
  SyncClock& remote =
      scope == ReleaseScope::kBlock ? barrier.freed_arriving : barrier.remote_arriving;
  check_release(own ? barrier.arriving : remote);
  arrive(barrier, count, where);
}

/*! Arrives behind the thread's copies of the groups before `group`. */
struct ArriveAfterCopies {
  static constexpr const char* kName = "arrival behind cp.async";
  Mbarrier* barrier;
  AsyncQueue* copies;
  uint32_t group;

  const void* place() const { return barrier->at; }
  unsigned long size() const { return 0; }

  void perform(const AsyncOperation& operation) const {
    copies->perform_before(group);
    barrier->needs_engines(barrier->phase) = true;
    arrive(*barrier, 1, operation.where);
  }
};

inline void arrive_after_copies(Mbarrier& barrier, Location where) {
  AsyncQueue& copies = worker->current->queues.copies;
  copies.begin_group();
  check_copies_arrive(barrier.arriving, copies.open_group);
  issue_at(barrier, ArriveAfterCopies{&barrier, &copies, copies.open_group}, where);
}

}  // namespace emu

/*! Makes the 8 bytes an mbarrier whose phases need `arrivals` arrivals. */
TL_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t arrivals,
                             emu::Location where = emu::here()) {
  emu::init_mbarrier(barrier, arrivals, where);
}

/*! Makes the mbarrier 8 bytes of memory again. */
TL_DEVICE void mbarrier_inval(uint64_t* barrier, emu::Location where = emu::here()) {
  emu::Mbarrier& state = emu::mbarrier_at(barrier, "invalidation", where);
  state.at = nullptr;
  __builtin_memset(barrier, 0xff, sizeof(*barrier));
  emu::note_progress();
  emu::release(state);
}

/*! Arrives `count` times. */
TL_DEVICE void mbarrier_arrive(uint64_t* barrier, uint32_t count = 1,
                               emu::Location where = emu::here()) {
  emu::thread_arrives(emu::mbarrier_at(barrier, "arrival", where), count, where);
}

/*! Arrives once for the warp, after the accesses of all its lanes, each of which calls it. */
TL_DEVICE void mbarrier_arrive_warp(uint64_t* barrier, emu::Location where = emu::here()) {
  emu::masked_sync("mbarrier_arrive_warp", emu::kAllLanes, nullptr, nullptr, where);
  if (emu::worker->current->linear % emu::kWarpSize == 0) mbarrier_arrive(barrier, 1, where);
}

/*! Arrives `count` times at the mbarrier of the block of rank `rank` in the cluster. */
TL_DEVICE void mbarrier_arrive_remote(uint64_t* barrier, uint32_t rank, uint32_t count = 1,
                                      emu::Location where = emu::here()) {
  void* theirs = emu::map_shared_alive(barrier, rank, where);
  emu::thread_arrives(emu::mbarrier_at(theirs, "arrival", where), count, where);
}

/*! The same with a release at the scope of this block. */
TL_DEVICE void mbarrier_arrive_remote_cta(uint64_t* barrier, uint32_t rank,
                                          emu::Location where = emu::here()) {
  void* theirs = emu::map_shared_alive(barrier, rank, where);
  emu::thread_arrives(emu::mbarrier_at(theirs, "arrival", where), 1, where,
                      emu::ReleaseScope::kBlock);
}

/*! Arrives once for the warp at the mbarriers of the first `blocks` blocks of the cluster. */
TL_DEVICE void mbarrier_arrive_warp_cluster(uint64_t* barrier, uint32_t blocks,
                                            emu::Location where = emu::here()) {
  emu::masked_sync("mbarrier_arrive_warp_cluster", emu::kAllLanes, nullptr, nullptr, where);
  const unsigned lane = emu::worker->current->linear % emu::kWarpSize;
  if (lane < blocks) mbarrier_arrive_remote_cta(barrier, lane, where);
}

/*! The current phase waits for `bytes` more bytes of asynchronous copies. */
TL_DEVICE void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes,
                                  emu::Location where = emu::here()) {
  emu::transact(emu::mbarrier_at(barrier, "expect_tx", where), int(bytes), where);
}

/*! mbarrier_expect_tx, then mbarrier_arrive. */
TL_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes,
                                         emu::Location where = emu::here()) {
  emu::Mbarrier& state = emu::mbarrier_at(barrier, "arrive.expect_tx", where);
  emu::transact(state, int(bytes), where);
  emu::thread_arrives(state, 1, where);
}

/*! mbarrier_arrive_expect_tx at the mbarrier of the block of rank `rank`. */
TL_DEVICE void mbarrier_arrive_expect_tx_remote(uint64_t* barrier, uint32_t bytes, uint32_t rank,
                                                emu::Location where = emu::here()) {
  auto* theirs = static_cast<uint64_t*>(emu::map_shared_alive(barrier, rank, where));
  mbarrier_arrive_expect_tx(theirs, bytes, where);
}

/*! Counts `bytes` bytes as transferred, as an engine does. */
TL_DEVICE void mbarrier_complete_tx(uint64_t* barrier, uint32_t bytes,
                                    emu::Location where = emu::here()) {
  emu::transact(emu::mbarrier_at(barrier, "complete_tx", where), -int(bytes), where);
}

/*! Whether the latest phase with this parity (0 for the first one) has ended; does not wait. */
TL_DEVICE bool mbarrier_test_wait(uint64_t* barrier, uint32_t parity,
                                  emu::Location where = emu::here()) {
  return emu::poll_phase(emu::mbarrier_at(barrier, "test_wait", where), parity, where);
}

/*! mbarrier_test_wait that may wait for a while. */
TL_DEVICE bool mbarrier_try_wait(uint64_t* barrier, uint32_t parity,
                                 emu::Location where = emu::here()) {
  return emu::poll_phase(emu::mbarrier_at(barrier, "try_wait", where), parity, where);
}

/*! Waits until the phase with this parity has ended: 0 for the first phase, 1 for the second, ...
 */
TL_DEVICE void mbarrier_wait(uint64_t* barrier, uint32_t parity,
                             emu::Location where = emu::here()) {
  emu::wait_for_phase(emu::mbarrier_at(barrier, "wait", where), parity, emu::WaitScope::kBlock,
                      where);
}

/*! mbarrier_wait that also acquires what other blocks of the cluster released by their arrivals. */
TL_DEVICE void mbarrier_wait_cluster(uint64_t* barrier, uint32_t parity,
                                     emu::Location where = emu::here()) {
  emu::wait_for_phase(emu::mbarrier_at(barrier, "wait", where), parity, emu::WaitScope::kCluster,
                      where);
}

/*! Arrives when this thread's cp.async so far are complete; the phase needs one arrival more. */
TL_DEVICE void cp_async_mbarrier_arrive(uint64_t* barrier, emu::Location where = emu::here()) {
  emu::Mbarrier& state = emu::mbarrier_at(barrier, "cp.async.mbarrier.arrive", where);
  emu::expect_arrival(state, where);
  emu::arrive_after_copies(state, where);
}

/*! Arrives when this thread's cp.async so far are complete. */
TL_DEVICE void cp_async_mbarrier_arrive_noinc(uint64_t* barrier,
                                              emu::Location where = emu::here()) {
  emu::Mbarrier& state = emu::mbarrier_at(barrier, "cp.async.mbarrier.arrive.noinc", where);
  emu::arrive_after_copies(state, where);
}

/*! Orders initialisations of mbarriers before what the cluster does with them. */
TL_DEVICE void fence_barrier_init() {}

/*! Orders this thread's accesses before what engines do on its behalf or after its signal. */
TL_DEVICE void fence_proxy_async() { emu::check_fence_proxy_async(); }
TL_DEVICE void fence_proxy_async_all() { emu::check_fence_proxy_async(); }

}  // namespace tl
