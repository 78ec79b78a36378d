#include "intrinsics.h"

#include <unordered_map>

#include "../tvm/registry.h"

namespace tl {
namespace {

constexpr Access kNone = Access::kNone, kRead = Access::kRead, kWrite = Access::kWrite,
                 kReadWrite = Access::kReadWrite, kAsyncWrite = Access::kAsyncWrite,
                 kAtomic = Access::kAtomic;

std::vector<Intrinsic> TileIntrinsics() {
  return {
      // cp_async_gs<bytes>(shared, global), cp_async_gs_conditional<bytes>(shared, global,
      // predicate): false writes zeros
      {kCpAsync, "tl::cp_async_gs", "tl/copy.h", 1, {kAsyncWrite, kRead}},
      {kCpAsyncConditional,
       "tl::cp_async_gs_conditional",
       "tl/copy.h",
       1,
       {kAsyncWrite, kRead, kNone}},
      {kCpAsyncCommit, "tl::cp_async_commit", "tl/copy.h", 0, {}},
      // cp_async_wait<n>(): at most n groups of this thread are still in flight
      {kCpAsyncWait, "tl::cp_async_wait", "tl/copy.h", 1, {}},
      // atomic_add<order>(element, value) and its like; fetch_add and its like return the old
      // value,
      // fetch_inc<order>(element, last), which counts up, from `last` on to 0, too
      {kAtomicAdd, "tl::atomic_add", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.atomic_max", "tl::atomic_max", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.atomic_min", "tl::atomic_min", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.atomic_or", "tl::atomic_or", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.fetch_add", "tl::fetch_add", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.fetch_max", "tl::fetch_max", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.fetch_min", "tl::fetch_min", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.fetch_or", "tl::fetch_or", "tl/atomic.h", 1, {kAtomic, kNone}},
      {kFetchInc, "tl::fetch_inc", "tl/atomic.h", 1, {kAtomic, kNone}},
      {"tl.atomic_load", "tl::atomic_load", "tl/atomic.h", 1, {kAtomic}},
      {"tl.atomic_store", "tl::atomic_store", "tl/atomic.h", 1, {kAtomic, kNone}},
      // mma_sync<m, n, k, A type, B type, C type>(c, a, b): c += a * b on this warp's fragments
      {kMmaSync, "tl::mma_sync", "tl/mma.h", 6, {kReadWrite, kRead, kRead}},
      // mma_sp_sync<...>(c, a, b, metadata): the same with half of A stored
      {kMmaSpSync, "tl::mma_sp_sync", "tl/mma.h", 6, {kReadWrite, kRead, kRead, kNone}},
      {kSyncPartial, "tl::sync_threads_partial", "tl/sync.h", 0, {kNone, kNone}},
      // named_barrier_arrive(barrier, threads): what sync_threads_partial waits for
      {"tl.named_barrier_arrive", "tl::named_barrier_arrive", "tl/sync.h", 0, {kNone, kNone}},
      {kSyncGrid, "tl::sync_grid", "tl/grid.h", 0, {}},
      // sync_warp(mask): the lanes whose bit is set
      {kSyncWarp, "tl::sync_warp", "tl/sync.h", 0, {kNone}},
      // AllReduce<op, threads, scale>(value) over `threads` lanes of the warp, `scale` apart
      {kAllReduce, "tl::AllReduce", "tl/reduce.h", 3, {kNone}},
      // AllReduceIfWhole<...>(value): the same where the block has all `threads` lanes; else
      // undefined
      {kAllReduceIfWhole, "tl::AllReduceIfWhole", "tl/reduce.h", 3, {kNone}},
      // reduce_lanes<op>(mask, value) over the lanes of the warp that are in the mask
      {kReduceLanes, "tl::reduce_lanes", "tl/reduce.h", 1, {kNone, kNone}},
      // warp_scan<op, lanes>(value): over lanes 0 to this one
      {kWarpScan, "tl::warp_scan", "tl/reduce.h", 2, {kNone}},
      // warp_broadcast<lane>(value)
      {kWarpBroadcast, "tl::warp_broadcast", "tl/reduce.h", 1, {kNone}},
      // in_extent(index, extent, buffer's name, dimension): the index; the emulator checks it
      {"tl.in_extent", "tl::in_extent", "tl/buffer.h", 0, {kNone, kNone, kNone, kNone}, true},
      {kMaxNan, "tl::max_nan", "tl/reduce.h", 0, {kNone, kNone}},
      {kMinNan, "tl::min_nan", "tl/reduce.h", 0, {kNone, kNone}},
  };
}

/*! ptx_ldmatrix_x4(shared row of this lane, registers), ptx_stmatrix_x4(the same), and their like.
 */
std::vector<Intrinsic> MatrixCopies() {
  std::vector<Intrinsic> rows;
  for (const char* form : {"_x1", "_x2", "_x4", "_x1_trans", "_x2_trans", "_x4_trans"}) {
    const std::string load = std::string("ptx_ldmatrix") + form;
    const std::string store = std::string("ptx_stmatrix") + form;
    rows.push_back({"tl." + load, "tl::" + load, "tl/mma.h", 0, {kRead, kWrite}, false, 75});
    rows.push_back({"tl." + store, "tl::" + store, "tl/stmatrix.h", 0, {kWrite, kRead}, false, 90});
  }
  return rows;
}

const std::vector<Intrinsic>& Table() {
  static const std::vector<Intrinsic> table = [] {
    std::vector<Intrinsic> rows = TileIntrinsics();
    for (Intrinsic& row : MatrixCopies()) rows.push_back(std::move(row));
    for (Intrinsic& row : ThreadIntrinsics()) rows.push_back(std::move(row));
    for (Intrinsic& row : HopperIntrinsics()) rows.push_back(std::move(row));
    for (Intrinsic& row : TmaIntrinsics()) rows.push_back(std::move(row));
    for (Intrinsic& row : ScalarIntrinsics()) rows.push_back(std::move(row));
    return rows;
  }();
  return table;
}

/*! The pointer that an argument is or, being a tensor's map, has. */
Expr Pointee(const Expr& arg) {
  const auto* call = arg.as<CallNode>();
  return call && IsCallTo(arg, kCreateTmaDescriptor) ? call->args[2] : arg;
}

Registration registration([] {
  for (const Intrinsic& row : Table()) {
    RegisterOp(row.op, row.op, row.elementwise ? CallEffect::kPure : CallEffect::kOpaque);
  }
});

}  // namespace

const Intrinsic* FindIntrinsic(const std::string& op) {
  static const auto* by_name = [] {
    auto* m = new std::unordered_map<std::string, const Intrinsic*>();
    for (const Intrinsic& row : Table()) (*m)[row.op] = &row;
    return m;
  }();
  auto it = by_name->find(op);
  return it == by_name->end() ? nullptr : it->second;
}

const Intrinsic* FindIntrinsic(const CallNode* call) {
  const OpNode* op = OpOf(call);
  return op ? FindIntrinsic(std::string(op->name)) : nullptr;
}

std::vector<PointerAccess> PointerAccesses(const CallNode* call) {
  std::vector<PointerAccess> out;
  const Intrinsic* row = FindIntrinsic(call);
  if (!row) return out;
  for (size_t i = 0; i < row->access.size(); ++i) {
    if (row->access[i] == kNone) continue;
    const Expr pointer = Pointee(call->args[row->template_args + i]);
    // A tensor map that has become a parameter.
    if (pointer.as<VarNode>()) continue;
    const TensorLoadNode* load = AsAddressOf(pointer);
    TVM_FFI_ICHECK(load) << row->op << ": argument " << i << " is not address_of(buffer[..])";
    out.push_back({load->source.as_or_throw<Var>(), load->indices, row->access[i]});
  }
  if (!row->described) return out;
  for (size_t i = row->template_args + row->access.size(); i < call->args.size(); ++i) {
    const TensorLoadNode* load = AsAddressOf(call->args[i]);
    TVM_FFI_ICHECK(load) << row->op << ": argument " << i << " is not address_of(buffer[..])";
    out.push_back({load->source.as_or_throw<Var>(), load->indices, Access::kEngineRead});
  }
  return out;
}

}  // namespace tl
