/*! Intrinsics of TMA: copies of boxes and of bytes. */

#include "intrinsics.h"
#include "tensor_map_spec.h"

namespace tl {
namespace {

bool IsOneOf(const CallNode* call, std::initializer_list<const char*> ops) {
  return AnyOf(ops, [&](const char* op) { return IsCallTo(call, op); });
}

constexpr Access kRead = Access::kRead, kWrite = Access::kWrite, kBarrier = Access::kBarrier,
                 kAsyncProxyRead = Access::kAsyncProxyRead,
                 kAsyncProxyWrite = Access::kAsyncProxyWrite,
                 kAsyncProxyWriteWaited = Access::kAsyncProxyWriteWaited;
constexpr IntrinsicEffects kPure = IntrinsicEffects::None();
constexpr IntrinsicEffects kLoads =
    kPure.Queue(AsyncQueue::kTmaLoad, QueueStep::kIssue).Schedules();
constexpr IntrinsicEffects kStores =
    kPure.Queue(AsyncQueue::kTmaStore, QueueStep::kIssue).Schedules();

/*! Copies of boxes, which a descriptor names. */
std::vector<Intrinsic> BoxIntrinsics() {
  return {
      // An operand of loads and stores below (tensor_map_spec.h). SplitHostDevice makes it a
      // parameter.
      {kCreateTmaDescriptor,
       "tl::create_tma_descriptor",
       "tl/tma.h",
       0,
       {},
       kPure.Queue(AsyncQueue::kTmaStore, QueueStep::kOperand)},
      // prefetch_tma_descriptor(): of all that the kernel has. SplitHostDevice, which knows them,
      // writes one for each.
      {kPrefetchTmaDescriptor, "tl::prefetch_tma_descriptor", "tl/tma.h", 0, {}, kPure},
      // tma_load<hint>(descriptor, barrier, shared, coordinates..), innermost first
      {kTmaLoad, "tl::tma_load", "tl/tma.h", 1, {kRead, kBarrier, kAsyncProxyWrite}, kLoads},
      // tma_load_multicast<hint>(descriptor, barrier, shared, blocks, coordinates..)
      {kTmaLoadMulticast,
       "tl::tma_load_multicast",
       "tl/tma.h",
       1,
       {kRead, kBarrier, kAsyncProxyWrite},
       kLoads},
      // tma_load_im2col<rank, hint>(descriptor, barrier, shared, coordinates.., offsets..)
      {kTmaLoadIm2col,
       "tl::tma_load_im2col",
       "tl/tma.h",
       2,
       {kRead, kBarrier, kAsyncProxyWrite},
       kLoads},
      {kTmaLoadWaited,
       "tl::tma_load",
       "tl/tma.h",
       1,
       {kRead, kBarrier, kAsyncProxyWriteWaited},
       kLoads},
      // tma_store<hint>(descriptor, shared, coordinates..), tma_reduce<operation>(..)
      {kTmaStore, "tl::tma_store", "tl/tma.h", 1, {kWrite, kAsyncProxyRead}, kStores},
      {kTmaReduce, "tl::tma_reduce", "tl/tma.h", 1, {kWrite, kAsyncProxyRead}, kStores},
  };
}

/*! Copies of bytes. */
std::vector<Intrinsic> BulkIntrinsics() {
  return {
      // bulk_load<hint>(shared, global, bytes, barrier), bulk_load_multicast<hint>(.., blocks)
      {kBulkLoad,
       "tl::bulk_load",
       "tl/bulk_copy.h",
       1,
       {kAsyncProxyWrite, kRead, Access::kNone, kBarrier},
       kLoads},
      {kBulkLoadMulticast,
       "tl::bulk_load_multicast",
       "tl/bulk_copy.h",
       1,
       {kAsyncProxyWrite, kRead, Access::kNone, kBarrier, Access::kNone},
       kLoads},
      {kBulkLoadWaited,
       "tl::bulk_load",
       "tl/bulk_copy.h",
       1,
       {kAsyncProxyWriteWaited, kRead, Access::kNone, kBarrier},
       kLoads},
      // bulk_copy_remote(shared to, shared from, bytes, barrier, rank)
      {kBulkCopyRemote,
       "tl::bulk_copy_remote",
       "tl/bulk_copy.h",
       0,
       {kAsyncProxyWrite, kAsyncProxyRead, Access::kNone, kBarrier, Access::kNone},
       kLoads},
      // bulk_store<hint>(global, shared, bytes), bulk_reduce_add<type>(..)
      {kBulkStore,
       "tl::bulk_store",
       "tl/bulk_copy.h",
       1,
       {kWrite, kAsyncProxyRead, Access::kNone},
       kStores},
      {kBulkReduceAdd,
       "tl::bulk_reduce_add",
       "tl/bulk_copy.h",
       1,
       {Access::kAtomic, kAsyncProxyRead, Access::kNone},
       kStores},
  };
}

}  // namespace

std::vector<Intrinsic> TmaIntrinsics() {
  std::vector<Intrinsic> rows = BoxIntrinsics();
  const std::vector<Intrinsic> bulk = BulkIntrinsics();
  AppendRange(&rows, bulk);
  for (Intrinsic& row : rows) row.feature = Feature::kTma;
  return rows;
}

bool IsBulkStore(const CallNode* call) {
  return IsOneOf(call, {kTmaStore, kTmaReduce, kBulkStore, kBulkReduceAdd});
}

bool FillsOtherBlocks(const CallNode* call) {
  return IsOneOf(call, {kTmaLoadMulticast, kBulkLoadMulticast, kBulkCopyRemote});
}

int64_t StoredBox(const CallNode* call) {
  if (!IsOneOf(call, {kTmaStore, kTmaReduce})) return 0;
  const auto map = TensorMapSpec::FromOperand(call->args[1]);
  return map ? map->BoxElements() : 0;
}

}  // namespace tl
