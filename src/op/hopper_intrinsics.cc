/*! Intrinsics of sm_90: mbarriers, fences between proxies, MMAs and registers of warp groups,
 * clusters, dependent launches. */
#include <map>

#include "../tvm/attrs.h"
#include "intrinsics.h"
#include "wgmma_calls.h"

namespace tl {

namespace {

constexpr IntrinsicEffects kPure = IntrinsicEffects::None(), kExplicit = kPure.Schedules();
constexpr IntrinsicEffects kArrival = kExplicit.Tells(ThreadScope::kBlock);
constexpr IntrinsicEffects kWgmmaIssue =
    kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kIssue).Gives(CallResult::kOfThread);
constexpr IntrinsicEffects kFence = kPure.Barrier(ThreadScope::kThread);
constexpr Access kNone = Access::kNone, kBarrier = Access::kBarrier, kRead = Access::kRead,
                 kWrite = Access::kWrite, kReadWrite = Access::kReadWrite,
                 kAsyncProxyRead = Access::kAsyncProxyRead;

/*! Rows of mbarriers, and of fences between proxies. */
std::vector<Intrinsic> MbarrierIntrinsics() {
  return {
      // mbarrier_init(barrier, arrivals of a phase)
      {kMbarrierInit, "tl::mbarrier_init", "tl/mbarrier.h", 0, {kBarrier, kNone}, kExplicit},
      // mbarrier_wait(barrier, parity of the phase: 0 for the first one)
      {kMbarrierWait, "tl::mbarrier_wait", "tl/mbarrier.h", 0, {kBarrier, kNone}, kExplicit},
      // mbarrier_wait that also acquires what other blocks of the cluster released
      {kMbarrierWaitCluster,
       "tl::mbarrier_wait_cluster",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone},
       kExplicit},
      {kMbarrierArrive, "tl::mbarrier_arrive", "tl/mbarrier.h", 0, {kBarrier}, kArrival},
      {kMbarrierArriveWarp, "tl::mbarrier_arrive_warp", "tl/mbarrier.h", 0, {kBarrier}, kArrival},
      // mbarrier_arrive_remote(barrier, rank of its block in the cluster)
      {kMbarrierArriveRemote,
       "tl::mbarrier_arrive_remote",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone},
       kExplicit.Tells(ThreadScope::kCluster)},
      // mbarrier_arrive_remote_cta(barrier, rank of its block in the cluster): the arrival frees
      // what
      // was read only and publishes no writes
      {kMbarrierArriveRemoteCta,
       "tl::mbarrier_arrive_remote_cta",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone},
       kArrival},
      // mbarrier_arrive_warp_cluster(barrier, blocks of the cluster): at mbarriers of other blocks
      // the arrival frees a slot only and publishes no writes
      {kMbarrierArriveWarpCluster,
       "tl::mbarrier_arrive_warp_cluster",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone},
       kArrival},
      // mbarrier_expect_tx(barrier, bytes)
      {kMbarrierExpectTx,
       "tl::mbarrier_expect_tx",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone},
       kExplicit},
      {kMbarrierArriveExpectTx,
       "tl::mbarrier_arrive_expect_tx",
       "tl/mbarrier.h",
       0,
       {kBarrier, kNone},
       kArrival},
      {kCpAsyncMbarrierArriveNoinc,
       "tl::cp_async_mbarrier_arrive_noinc",
       "tl/mbarrier.h",
       0,
       {kBarrier},
       kArrival},
      {kFenceBarrierInit, "tl::fence_barrier_init", "tl/mbarrier.h", 0, {}, kExplicit},
      {kFenceProxyAsync, "tl::fence_proxy_async", "tl/mbarrier.h", 0, {}, kFence},
      {kFenceProxyAsyncAll, "tl::fence_proxy_async_all", "tl/mbarrier.h", 0, {}, kFence},
  };
}

/*! Rows of descriptors of operands of wgmma. */
std::vector<Intrinsic> DescriptorIntrinsics() {
  return {
      // wgmma_descriptor<swizzle>(first element, leading, stride), in bytes
      {kWgmmaDescriptor,
       "tl::wgmma_descriptor",
       "tl/wgmma_shapes.h",
       1,
       {kAsyncProxyRead, kNone, kNone},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kOperand)},
      // wgmma_descriptor_advance(descriptor, bytes)
      {kWgmmaDescriptorAdvance,
       "tl::wgmma_descriptor_advance",
       "tl/wgmma_shapes.h",
       0,
       {kNone, kNone},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kOperand)},
      // wgmma_descriptor_apart(descriptor, number of the product)
      {kWgmmaDescriptorApart,
       "tl::wgmma_descriptor_apart",
       "tl/wgmma_shapes.h",
       0,
       {kNone, kNone},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kOperand)},
      // wgmma_steps<count, bytes, row, bytes of a row>(descriptor): step k is (k / row) * bytes of
      // a row + (k % row) * bytes behind the first
      {kWgmmaSteps,
       "tl::wgmma_steps",
       "tl/wgmma_shapes.h",
       4,
       {kNone},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kOperand)},
      // initialize_wgmma_descriptor<swizzle's number, leading, stride>(descriptor, first element),
      // strides in 16 bytes
      {kInitializeWgmmaDescriptor,
       "tl::initialize_wgmma_descriptor",
       "tl/wgmma_shapes.h",
       3,
       {kWrite, kNone},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kOperand)},
      // increase_descriptor_offset(descriptor, bytes)
      {kIncreaseDescriptorOffset,
       "tl::increase_descriptor_offset",
       "tl/wgmma_shapes.h",
       0,
       {kReadWrite, kNone},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kOperand)},
  };
}

/*! Rows of wgmma, its groups and its accumulators. */
std::vector<Intrinsic> WgmmaIntrinsics() {
  return {
      // wgmma_ss<m, n, k, A, B, C, A is K-major, B is K-major>(c, a, b, sum): c = a * b, + c if sum
      {kWgmmaShared,
       "tl::wgmma_ss",
       "tl/wgmma_ss.h",
       8,
       {kReadWrite, kNone, kNone, kNone},
       kWgmmaIssue},
      // wgmma_rs<m, n, k, A, B, C, B is K-major>(c, registers of a, b, sum)
      {kWgmmaRegisters,
       "tl::wgmma_rs",
       "tl/wgmma_rs.h",
       7,
       {kReadWrite, kRead, kNone, kNone},
       kWgmmaIssue},
      // wgmma_sp_ss<m, n, k, A, B, C, B is K-major>(c, a, b, metadata, sum): half of A is stored
      {kWgmmaSparse,
       "tl::wgmma_sp_ss",
       "tl/wgmma_sp.h",
       7,
       {kReadWrite, kNone, kNone, kNone, kNone},
       kWgmmaIssue},
      // The first two with two more: whether A and B are negated
      {kWgmmaSharedSigned,
       "tl::wgmma_ss",
       "tl/wgmma_ss.h",
       10,
       {kReadWrite, kNone, kNone, kNone},
       kWgmmaIssue},
      {kWgmmaRegistersSigned,
       "tl::wgmma_rs",
       "tl/wgmma_rs.h",
       9,
       {kReadWrite, kRead, kNone, kNone},
       kWgmmaIssue},
      {kWarpgroupArrive,
       "tl::warpgroup_arrive",
       "tl/wgmma.h",
       0,
       {},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kFence)},
      {kWarpgroupArriveApart,
       "tl::warpgroup_arrive_apart",
       "tl/wgmma.h",
       0,
       {},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kFence)},
      {kWarpgroupCommit,
       "tl::warpgroup_commit_batch",
       "tl/wgmma.h",
       0,
       {},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kCommit)},
      // warpgroup_wait<n>(): at most n groups of this warp are still in flight
      {kWarpgroupWait,
       "tl::warpgroup_wait",
       "tl/wgmma.h",
       1,
       {},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kWait)},
      // warpgroup_fence_operand<count>(accumulators)
      {kWarpgroupFence,
       "tl::warpgroup_fence_operand",
       "tl/wgmma.h",
       1,
       {kReadWrite},
       kExplicit.Queue(AsyncQueue::kWgmma, QueueStep::kFence)},
  };
}

/*! Rows of registers of warp groups, elected threads and dependent launches. */
std::vector<Intrinsic> WarpGroupIntrinsics() {
  return {
      // warpgroup_reg_alloc<registers>(), warpgroup_reg_dealloc<registers>()
      {kRegAlloc,
       "tl::warpgroup_reg_alloc",
       "tl/warp_group.h",
       1,
       {},
       kExplicit,
       false,
       Feature::kSetMaxNReg},
      {kRegDealloc,
       "tl::warpgroup_reg_dealloc",
       "tl/warp_group.h",
       1,
       {},
       kExplicit,
       false,
       Feature::kSetMaxNReg},
      // shuffle_elect<threads>(): true in one of each `threads` consecutive ones, 0 for the block
      {kShuffleElect,
       "tl::shuffle_elect",
       "tl/warp_group.h",
       1,
       {},
       kPure.Gives(CallResult::kOfThread),
       false,
       Feature::kElectSync},
      // thread_again(number of the thread, threads of the block): the number, as another value
      {kThreadAgain,
       "tl::thread_again",
       "tl/warp_group.h",
       0,
       {},
       kPure.Gives(CallResult::kOfThread),
       false,
       Feature::kSetMaxNReg},
      {kPdlSync,
       "tl::pdl_sync",
       "tl/warp_group.h",
       0,
       {},
       kExplicit,
       false,
       Feature::kDependentLaunch},
      {kPdlTrigger,
       "tl::pdl_trigger",
       "tl/warp_group.h",
       0,
       {},
       kExplicit,
       false,
       Feature::kDependentLaunch},
  };
}

/*! Rows of groups of bulk stores, and of clusters. */
std::vector<Intrinsic> ClusterIntrinsics() {
  return {
      // Groups of this thread's bulk copies from shared memory. tma_store_wait<n, read>(): at most
      // n
      // are in flight, with `read` of those whose source is still being read.
      {kTmaStoreArrive,
       "tl::tma_store_arrive",
       "tl/bulk_copy.h",
       0,
       {},
       kExplicit.Queue(AsyncQueue::kTmaStore, QueueStep::kCommit)},
      {kTmaStoreWait,
       "tl::tma_store_wait",
       "tl/bulk_copy.h",
       2,
       {},
       kExplicit.Queue(AsyncQueue::kTmaStore, QueueStep::kWait)},
      {"tl.cluster_arrive",
       "tl::cluster_arrive",
       "tl/grid.h",
       0,
       {},
       kExplicit.Meets(ThreadScope::kCluster).Tells(ThreadScope::kCluster)},
      {"tl.cluster_arrive_relaxed",
       "tl::cluster_arrive_relaxed",
       "tl/grid.h",
       0,
       {},
       kExplicit.Meets(ThreadScope::kCluster).Tells(ThreadScope::kCluster)},
      {"tl.cluster_wait",
       "tl::cluster_wait",
       "tl/grid.h",
       0,
       {},
       kExplicit.Meets(ThreadScope::kCluster)},
      {kClusterSync,
       "tl::cluster_sync",
       "tl/grid.h",
       0,
       {},
       kExplicit.Barrier(ThreadScope::kCluster)},
      {kClusterSize, "tl::cluster_size", "tl/grid.h", 0, {}, kPure.Gives(CallResult::kOfBlock)},
      {kBlockRank,
       "tl::block_rank_in_cluster",
       "tl/grid.h",
       0,
       {},
       kPure.Gives(CallResult::kOfBlock)},
  };
}

}  // namespace

std::vector<Intrinsic> HopperIntrinsics() {
  std::vector<Intrinsic> rows;
  for (const auto& part : {MbarrierIntrinsics(), DescriptorIntrinsics(), WgmmaIntrinsics(),
                           WarpGroupIntrinsics(), ClusterIntrinsics()}) {
    AppendRange(&rows, part);
  }
  static const std::map<std::string, Feature> features = {
      {"tl/mbarrier.h", Feature::kMbarrier}, {"tl/wgmma_shapes.h", Feature::kWgmma},
      {"tl/wgmma.h", Feature::kWgmma},       {"tl/wgmma_ss.h", Feature::kWgmma},
      {"tl/wgmma_rs.h", Feature::kWgmma},    {"tl/wgmma_sp.h", Feature::kWgmma},
      {"tl/bulk_copy.h", Feature::kTma},     {"tl/grid.h", Feature::kCluster}};
  for (Intrinsic& row : rows) {
    if (row.feature == Feature::kNone) row.feature = features.at(row.header);
  }
  return rows;
}

bool IsWgmma(const CallNode* call) {
  const Intrinsic* row = FindIntrinsic(call);
  return row && row->HasDescriptorOperands();
}

bool IsOperandOfWgmma(const CallNode* call, Access access) {
  if (IsCallTo(call, kWgmmaDescriptor)) return true;
  return access == Access::kAsyncProxyRead && IsWgmma(call);
}

int DescriptorSwizzle(const CallNode* initialize) {
  // PTX ISA, Matrix Descriptor Format.
  static constexpr int kBytes[] = {0, 128, 64, 32};
  return kBytes[ToInt(initialize->args[0])];
}

}  // namespace tl
