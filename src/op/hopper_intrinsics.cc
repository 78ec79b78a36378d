/*! Intrinsics of sm_90: mbarriers, fences between proxies, registers of warp groups, clusters,
 * dependent launches. */
#include "intrinsics.h"

namespace tl {

std::vector<Intrinsic> HopperIntrinsics() {
  constexpr Access kNone = Access::kNone, kBarrier = Access::kBarrier;
  std::vector<Intrinsic> rows = {
      // mbarrier_init(barrier, arrivals of a phase)
      {kMbarrierInit, "tl::mbarrier_init", "tl/mbarrier.h", 0, {kBarrier, kNone}},
      // mbarrier_wait(barrier, parity of the phase: 0 for the first one)
      {kMbarrierWait, "tl::mbarrier_wait", "tl/mbarrier.h", 0, {kBarrier, kNone}},
      // mbarrier_wait that also acquires what other blocks of the cluster released
      {kMbarrierWaitCluster, "tl::mbarrier_wait_cluster", "tl/mbarrier.h", 0, {kBarrier, kNone}},
      {kMbarrierArrive, "tl::mbarrier_arrive", "tl/mbarrier.h", 0, {kBarrier}},
      // mbarrier_arrive_remote(barrier, rank of its block in the cluster)
      {kMbarrierArriveRemote, "tl::mbarrier_arrive_remote", "tl/mbarrier.h", 0, {kBarrier, kNone}},
      // mbarrier_expect_tx(barrier, bytes)
      {kMbarrierExpectTx, "tl::mbarrier_expect_tx", "tl/mbarrier.h", 0, {kBarrier, kNone}},
      {kMbarrierArriveExpectTx,
       "tl::mbarrier_arrive_expect_tx",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone}},
      {kCpAsyncMbarrierArriveNoinc,
       "tl::cp_async_mbarrier_arrive_noinc",
       "tl/mbarrier.h",
       0,
       {kBarrier}},
      {kFenceBarrierInit, "tl::fence_barrier_init", "tl/mbarrier.h", 0, {}},
      {kFenceProxyAsync, "tl::fence_proxy_async", "tl/mbarrier.h", 0, {}},
      // warpgroup_reg_alloc<registers>(), warpgroup_reg_dealloc<registers>()
      {kRegAlloc, "tl::warpgroup_reg_alloc", "tl/warp_group.h", 1, {}},
      {kRegDealloc, "tl::warpgroup_reg_dealloc", "tl/warp_group.h", 1, {}},
      // shuffle_elect<threads>(): true in one of each `threads` consecutive ones, 0 for the block
      {kShuffleElect, "tl::shuffle_elect", "tl/warp_group.h", 1, {}},
      {kPdlSync, "tl::pdl_sync", "tl/warp_group.h", 0, {}},
      {kPdlTrigger, "tl::pdl_trigger", "tl/warp_group.h", 0, {}},
      // Groups of this thread's bulk copies from shared memory. tma_store_wait<n, read>(): at most
      // n
      // are in flight, with `read` of those whose source is still being read.
      {kTmaStoreArrive, "tl::tma_store_arrive", "tl/bulk_copy.h", 0, {}},
      {kTmaStoreWait, "tl::tma_store_wait", "tl/bulk_copy.h", 2, {}},
      {"tl.cluster_arrive", "tl::cluster_arrive", "tl/grid.h", 0, {}},
      {"tl.cluster_arrive_relaxed", "tl::cluster_arrive_relaxed", "tl/grid.h", 0, {}},
      {"tl.cluster_wait", "tl::cluster_wait", "tl/grid.h", 0, {}},
      {kClusterSync, "tl::cluster_sync", "tl/grid.h", 0, {}},
      {kClusterSize, "tl::cluster_size", "tl/grid.h", 0, {}},
      {kBlockRank, "tl::block_rank_in_cluster", "tl/grid.h", 0, {}},
  };
  for (Intrinsic& row : rows) row.first_arch = 90;
  return rows;
}

}  // namespace tl
