/*! The thread program's intrinsics: one row each, read by synchronisation planning, flattening and
 * code generation. */
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "../target/intrinsic_names.h"
#include "../target/target.h"
#include "../tvm/build.h"
#include "../tvm/shuffles.h"
#include "intrinsic_effects.h"

namespace tl {

/*! What an intrinsic does through one pointer argument. */
enum class Access : uint8_t {
  kNone,             // not a pointer
  kRead,             //
  kWrite,            //
  kReadWrite,        //
  kAtomic,           // an atomic operation: others on the same element may run at the same time
  kAsyncWrite,       // starts at the call, is complete for the calling thread at the next covering
                     // cp_async_wait
  kBarrier,          // an mbarrier: what it orders, the program says
  kAsyncProxyRead,   // a read by the async proxy (TMA, tensor cores): wants a fence.proxy.async
                     // after the threads' writes
  kAsyncProxyWrite,  // a write by the async proxy that signals its end to an mbarrier: what it
                     // orders, the program says
  kAsyncProxyWriteWaited  // the same where all threads wait for the end before they go on
};

/*! What an access means to memory, whoever makes it. */
inline bool Reads(Access a) {
  return a == Access::kRead || a == Access::kReadWrite || a == Access::kAtomic ||
         a == Access::kAsyncProxyRead;
}
inline bool Writes(Access a) {
  return a != Access::kNone && a != Access::kRead && a != Access::kAsyncProxyRead;
}

struct Intrinsic {
  std::string op;        // "tl.cp_async_gs"
  std::string function;  // "tl::cp_async_gs"
  std::string header;    // "tl/copy.h"
  int template_args;  // leading arguments that are template arguments: integers, or strings printed
                      // as they are
  std::vector<Access> access;  // one entry for each argument after the template arguments; none for
                               // rows without pointers
  IntrinsicEffects effects;
  bool elementwise = false;  // a function of its arguments that applies to each lane by itself
  Feature feature = Feature::kNone;  // that a target needs to have it

  /*! An MMA of wgmma. Such a call has trailing operands, not printed: pointers to the shared
   * buffers that its descriptor operands refer to. They make the reads of wgmma visible to
   * synchronisation and lifetime analysis. */
  bool HasDescriptorOperands() const {
    return effects.queue == AsyncQueue::kWgmma && effects.step == QueueStep::kIssue;
  }
};

/*! The rows of thread_intrinsics.cc, hopper_intrinsics.cc, tma_intrinsics.cc and
 * scalar_intrinsics.cc. */
std::vector<Intrinsic> ThreadIntrinsics();
std::vector<Intrinsic> HopperIntrinsics();
std::vector<Intrinsic> TmaIntrinsics();
std::vector<Intrinsic> ScalarIntrinsics();

/*! Row of an op, nullptr for other ops (TVM's own). */
const Intrinsic* FindIntrinsic(const std::string& op);
const Intrinsic* FindIntrinsic(const CallNode* call);
/*! Effects of a call of an intrinsic, nullptr for other calls. */
const IntrinsicEffects* EffectsOf(const CallNode* call);
/*! Whether an intrinsic with such effects is called below a statement or expression. */
bool HasIntrinsic(const ObjectRef& node,
                  const std::function<bool(const IntrinsicEffects&)>& wanted);
/*! The call waits until no group of the queue is in flight. */
bool WaitsForAll(const CallNode* call, AsyncQueue queue);

/*! A pointer argument of an intrinsic call that touches memory. */
struct PointerAccess {
  Var buffer;
  Array<Expr> indices;
  Access access;
};
/*! A copy from shared memory that is part of a bulk group, which tma_store_wait waits for. */
bool IsBulkStore(const CallNode* call);
/*! Elements of the box that a store by tensor map copies; 0 for other calls. */
int64_t StoredBox(const CallNode* call);
/*! A copy into shared memory of other blocks of the cluster, at the places that it names in this
 * one's: these may be written before this block gets to the call. */
bool FillsOtherBlocks(const CallNode* call);
/*! An access with which wgmma begins to read an operand. */
bool IsOperandOfWgmma(const CallNode* call, Access access);
/*! All memory that a call of an intrinsic touches; empty for other calls. */
std::vector<PointerAccess> PointerAccesses(const CallNode* call);

/*! What one lane asks of others of its warp: votes, and matches of values. */
inline constexpr const char* kAnySync = "tl.any_sync";
inline constexpr const char* kAllSync = "tl.all_sync";
inline constexpr const char* kBallotSync = "tl.ballot_sync";
inline constexpr const char* kMatchAnySync = "tl.match_any_sync";
inline constexpr const char* kMatchAllSync = "tl.match_all_sync";
/*! AMD: loads by a buffer resource, to registers and to LDS; the wait for the latter; what the
 * device's compiler moves nothing over; reads of shared memory between matrix instructions. */
inline constexpr const char* kBufferLoad = "tl.buffer_load";
inline constexpr const char* kBufferLoadIf = "tl.buffer_load_if";
inline constexpr const char* kBufferLoadLds = "tl.buffer_load_lds";
inline constexpr const char* kBufferLoadLdsIf = "tl.buffer_load_lds_if";
inline constexpr const char* kWaitVmcnt = "tl.wait_vmcnt";
inline constexpr const char* kScheduleBarrier = "tl.schedule_barrier";
inline constexpr const char* kScheduleReads = "tl.schedule_reads";
inline constexpr const char* kMfmaScaleOfWord = "tl.mfma_scale_of_word";
/*! in_extent(index, extent, name, dimension): the index, which the emulator checks. */
inline constexpr const char* kInExtent = "tl.in_extent";
inline constexpr const char* kAllReduce = "tl.all_reduce";
inline constexpr const char* kAllReduceIfWhole = "tl.all_reduce_if_whole";
/*! reduce_lanes<op>(mask, value): the same over any lanes of a warp. */
inline constexpr const char* kReduceLanes = "tl.reduce_lanes";
inline constexpr const char* kWarpScan = "tl.warp_scan";
inline constexpr const char* kWarpBroadcast = "tl.warp_broadcast";
inline constexpr const char* kMaxNan = "tl.max_nan";
inline constexpr const char* kMinNan = "tl.min_nan";
inline constexpr const char* kLoadIf = "tl.load_if";
inline constexpr const char* kLoadReadOnly = "tl.load_read_only";
inline constexpr const char* kAtomicAdd = "tl.atomic_add";
inline constexpr const char* kFetchInc = "tl.fetch_inc";

/*! Rank of this block in its cluster, and the number of the cluster's blocks. */
inline constexpr const char* kBlockRank = "tl.block_rank_in_cluster";
inline constexpr const char* kClusterSize = "tl.cluster_size";
/*! Barrier `id` (0 to 15) for `threads` threads, both constants; kSync is barrier 0 for the block.
 */
inline constexpr const char* kSyncPartial = "tl.sync_threads_partial";
/*! The arrival of threads that do not wait there. */
inline constexpr const char* kNamedBarrierArrive = "tl.named_barrier_arrive";
inline constexpr const char* kSyncWarp = "tl.sync_warp";
/*! source_kernel(name, text): the whole kernel is in the text. */
inline constexpr const char* kSourceKernel = "tl.source_kernel";
/*! The thread leaves the kernel. */
inline constexpr const char* kThreadReturn = "tirx.thread_return";
/*! Waits for all threads of the grid; the launch has to be cooperative. */
inline constexpr const char* kSyncGrid = "tl.sync_grid";
inline constexpr const char* kSync = "tirx.tvm_storage_sync";
/*! sm_90: mbarriers (buffers of scope `shared.barrier`), fences, warp groups, dependent launches.
 */
inline constexpr const char* kMbarrierInit = "tl.mbarrier_init";
inline constexpr const char* kMbarrierWait = "tl.mbarrier_wait";
inline constexpr const char* kMbarrierWaitCluster = "tl.mbarrier_wait_cluster";
inline constexpr const char* kMbarrierArrive = "tl.mbarrier_arrive";
/*! Once for the warp, behind what all its lanes did; all lanes call it. */
inline constexpr const char* kMbarrierArriveWarp = "tl.mbarrier_arrive_warp";
inline constexpr const char* kMbarrierArriveWarpCluster = "tl.mbarrier_arrive_warp_cluster";
inline constexpr const char* kMbarrierArriveRemote = "tl.mbarrier_arrive_remote";
inline constexpr const char* kMbarrierArriveRemoteCta = "tl.mbarrier_arrive_remote_cta";
inline constexpr const char* kMbarrierExpectTx = "tl.mbarrier_expect_tx";
inline constexpr const char* kMbarrierArriveExpectTx = "tl.mbarrier_arrive_expect_tx";
inline constexpr const char* kCpAsyncMbarrierArriveNoinc = "tl.cp_async_mbarrier_arrive_noinc";
inline constexpr const char* kFenceBarrierInit = "tl.fence_barrier_init";
inline constexpr const char* kFenceProxyAsync = "tl.fence_proxy_async";
/*! The same for all memory, where kFenceProxyAsync is for shared memory. */
inline constexpr const char* kFenceProxyAsyncAll = "tl.fence_proxy_async_all";
/*! MMAs of warp groups. The descriptor's address begins a read of its buffer, which lasts until
 * the wait that leaves no group of then in flight. */
inline constexpr const char* kWgmmaDescriptor = "tl.wgmma_descriptor";
inline constexpr const char* kWgmmaDescriptorAdvance = "tl.wgmma_descriptor_advance";
inline constexpr const char* kWgmmaDescriptorApart = "tl.wgmma_descriptor_apart";
/*! What stands for a descriptor where an MMA has several steps along K. */
inline constexpr const char* kWgmmaSteps = "tl.wgmma_steps";
inline constexpr const char* kWgmmaShared = "tl.wgmma_ss";
inline constexpr const char* kWgmmaRegisters = "tl.wgmma_rs";
inline constexpr const char* kWgmmaSparse = "tl.wgmma_sp_ss";
/*! Descriptors that a program keeps itself (T.alloc_wgmma_desc): buffers of scope
 * `kDescriptorScope` of one uint64, which these two alone write. */
inline constexpr const char* kInitializeWgmmaDescriptor = "tl.initialize_wgmma_descriptor";
inline constexpr const char* kIncreaseDescriptorOffset = "tl.increase_descriptor_offset";
inline constexpr const char* kDescriptorScope = "local.descriptor.wgmma";
/*! The same MMAs with signs of A and B. */
inline constexpr const char* kWgmmaSharedSigned = "tl.wgmma_ss_signed";
inline constexpr const char* kWgmmaRegistersSigned = "tl.wgmma_rs_signed";
/*! Is it an MMA of a warp group? */
bool IsWgmma(const CallNode* call);
/*! Bytes of the swizzle that a descriptor is initialised with: 128, 64, 32 or 0. */
int DescriptorSwizzle(const CallNode* initialize);
inline constexpr const char* kWarpgroupArrive = "tl.warpgroup_arrive";
inline constexpr const char* kWarpgroupFence = "tl.warpgroup_fence_operand";
inline constexpr const char* kRegAlloc = "tl.warpgroup_reg_alloc";
inline constexpr const char* kRegDealloc = "tl.warpgroup_reg_dealloc";
inline constexpr const char* kShuffleElect = "tl.shuffle_elect";
inline constexpr const char* kThreadAgain = "tl.thread_again";
/*! sm_90: copies by TMA. */
inline constexpr const char* kCreateTmaDescriptor = "tl.create_tma_descriptor";
inline constexpr const char* kPrefetchTmaDescriptor = "tl.prefetch_tma_descriptor";
inline constexpr const char* kTmaLoad = "tl.tma_load";
inline constexpr const char* kTmaLoadMulticast = "tl.tma_load_multicast";
inline constexpr const char* kTmaLoadIm2col = "tl.tma_load_im2col";
inline constexpr const char* kTmaStore = "tl.tma_store";
inline constexpr const char* kTmaReduce = "tl.tma_reduce";
/*! The same of consecutive bytes, which need no tensor map. */
inline constexpr const char* kBulkLoad = "tl.bulk_load";
inline constexpr const char* kBulkLoadMulticast = "tl.bulk_load_multicast";
inline constexpr const char* kBulkCopyRemote = "tl.bulk_copy_remote";
inline constexpr const char* kBulkStore = "tl.bulk_store";
inline constexpr const char* kBulkReduceAdd = "tl.bulk_reduce_add";
/*! Loads that all threads wait for at once. */
inline constexpr const char* kTmaLoadWaited = "tl.tma_load_waited";
inline constexpr const char* kBulkLoadWaited = "tl.bulk_load_waited";
inline constexpr const char* kPdlSync = "tl.pdl_sync";
inline constexpr const char* kPdlTrigger = "tl.pdl_trigger";
/*! Waits for all threads of the cluster, and orders their accesses of its shared memory. */
inline constexpr const char* kClusterSync = "tl.cluster_sync";

}  // namespace tl
