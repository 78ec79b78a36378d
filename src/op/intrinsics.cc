#include "intrinsics.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "../tvm/attrs.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "../tvm/tile_numbers.h"
#include "rank_intrinsics.h"
#include "tensor_map_spec.h"

namespace tl {
namespace {

constexpr Access kNone = Access::kNone, kRead = Access::kRead, kWrite = Access::kWrite,
                 kReadWrite = Access::kReadWrite, kAsyncWrite = Access::kAsyncWrite,
                 kAtomic = Access::kAtomic;

/*! Names of ThreadScope and AsyncQueue, in their order. */
constexpr std::array<const char*, 5> kScopeNames = {"thread", "lanes", "block", "cluster", "grid"};
constexpr std::array<const char*, 5> kQueueNames = {"", "cp.async", "TMA load", "TMA store",
                                                    "wgmma"};
constexpr std::array<const char*, 6> kStepNames = {"",      "operand", "issue",
                                                   "fence", "commit",  "wait"};

constexpr IntrinsicEffects kPure = IntrinsicEffects::None();
constexpr IntrinsicEffects kAtomicUpdate = kPure.Tells(ThreadScope::kGrid);
constexpr IntrinsicEffects kFetch = kAtomicUpdate.Gives(CallResult::kOfThread);
/*! Lanes hold parts of a matrix; the program deals them out itself. */
constexpr IntrinsicEffects kMatrix =
    kPure.Meets(ThreadScope::kLanes).Gives(CallResult::kOfThread).Schedules();

/*! Rows of cp.async and its groups. */
std::vector<Intrinsic> CpAsyncIntrinsics() {
  return {
      // cp_async_gs<bytes>(shared, global), cp_async_gs_conditional<bytes>(shared, global,
      // predicate): false writes zeros
      {kCpAsync,
       "tl::cp_async_gs",
       "tl/copy.h",
       1,
       {kAsyncWrite, kRead},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kIssue),
       false,
       Feature::kCpAsync},
      {kCpAsyncConditional,
       "tl::cp_async_gs_conditional",
       "tl/copy.h",
       1,
       {kAsyncWrite, kRead, kNone},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kIssue),
       false,
       Feature::kCpAsync},
      {kCpAsyncCommit,
       "tl::cp_async_commit",
       "tl/copy.h",
       0,
       {},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kCommit)},
      // cp_async_wait<n>(): at most n groups of this thread are still in flight
      {kCpAsyncWait,
       "tl::cp_async_wait",
       "tl/copy.h",
       1,
       {},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kWait)},
  };
}

/*! Rows of atomic operations. */
std::vector<Intrinsic> AtomicIntrinsics() {
  return {
      // atomic_add<order>(element, value) and its like; fetch_add and its like return the old
      // value,
      // fetch_inc<order>(element, last), which counts up, from `last` on to 0, too: who fetches a
      // number learns nothing of what others did before they fetched theirs
      {kAtomicAdd,
       "tl::atomic_add",
       "tl/atomic.h",
       1,
       {kAtomic, kNone},
       kAtomicUpdate.Updates("add")},
      {"tl.atomic_max",
       "tl::atomic_max",
       "tl/atomic.h",
       1,
       {kAtomic, kNone},
       kAtomicUpdate.Updates("max")},
      {"tl.atomic_min",
       "tl::atomic_min",
       "tl/atomic.h",
       1,
       {kAtomic, kNone},
       kAtomicUpdate.Updates("min")},
      {"tl.atomic_or",
       "tl::atomic_or",
       "tl/atomic.h",
       1,
       {kAtomic, kNone},
       kAtomicUpdate.Updates("or")},
      {"tl.fetch_add", "tl::fetch_add", "tl/atomic.h", 1, {kAtomic, kNone}, kFetch.Updates("add")},
      {"tl.fetch_max", "tl::fetch_max", "tl/atomic.h", 1, {kAtomic, kNone}, kFetch.Updates("max")},
      {"tl.fetch_min", "tl::fetch_min", "tl/atomic.h", 1, {kAtomic, kNone}, kFetch.Updates("min")},
      {"tl.fetch_or", "tl::fetch_or", "tl/atomic.h", 1, {kAtomic, kNone}, kFetch.Updates("or")},
      {kFetchInc,
       "tl::fetch_inc",
       "tl/fetch_inc.h",
       1,
       {kAtomic, kNone},
       kPure.Gives(CallResult::kOfThread)},
      {"tl.atomic_load", "tl::atomic_load", "tl/atomic.h", 1, {kAtomic}, kAtomicUpdate},
      {"tl.atomic_store", "tl::atomic_store", "tl/atomic.h", 1, {kAtomic, kNone}, kAtomicUpdate},
  };
}

/*! Rows of loads by a buffer resource and to LDS, and of their order. */
std::vector<Intrinsic> VmemIntrinsics() {
  return {
      // schedule_barrier(): the device's compiler moves none of the thread's instructions over it
      {kScheduleBarrier, "tl::schedule_barrier", "tl/vmem.h", 0, {}, kPure},
      // schedule_reads<first, each, times>(): of the block of instructions around, `first` reads of
      // shared memory come first, and `each` behind each of `times` matrix instructions
      {kScheduleReads, "tl::schedule_reads", "tl/mfma.h", 3, {}, kPure, false, Feature::kMfma},
      // buffer_load<lanes>(tensor, bytes, offset, uniform): the elements from offset + uniform on;
      // buffer_load_if(.., condition): zeros where it is false
      {kBufferLoad,
       "tl::buffer_load",
       "tl/vmem.h",
       1,
       {kRead, kNone, kNone, kNone},
       kPure.Gives(CallResult::kOfThread)},
      {kBufferLoadIf,
       "tl::buffer_load_if",
       "tl/vmem.h",
       1,
       {kRead, kNone, kNone, kNone, kNone},
       kPure.Gives(CallResult::kOfThread)},
      // load_lds<bytes>(shared, global), load_lds_if(.., condition): false writes zeros. The lanes'
      // bytes lie side by side in shared memory. LowerBufferLoads makes them
      // buffer_load_lds<bytes>(shared, lane, tensor, bytes of it, offset, uniform), which writes at
      // shared + lane, or buffer_load_lds_if(.., condition of all lanes, of the lane)
      {kLoadLds,
       "tl::load_lds",
       "tl/vmem.h",
       1,
       {kAsyncWrite, kRead},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kIssue),
       false,
       Feature::kLdsLoads},
      {kLoadLdsIf,
       "tl::load_lds_if",
       "tl/vmem.h",
       1,
       {kAsyncWrite, kRead, kNone},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kIssue),
       false,
       Feature::kLdsLoads},
      {kBufferLoadLds,
       "tl::buffer_load_lds",
       "tl/vmem.h",
       1,
       {kAsyncWrite, kNone, kRead, kNone, kNone, kNone},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kIssue),
       false,
       Feature::kLdsLoads},
      {kBufferLoadLdsIf,
       "tl::buffer_load_lds_if",
       "tl/vmem.h",
       1,
       {kAsyncWrite, kNone, kRead, kNone, kNone, kNone, kNone, kNone},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kIssue),
       false,
       Feature::kLdsLoads},
      // wait_vmcnt<n>(): at most n of the thread's loads to LDS are still in flight
      {kWaitVmcnt,
       "tl::wait_vmcnt",
       "tl/vmem.h",
       1,
       {},
       kPure.Queue(AsyncQueue::kCpAsync, QueueStep::kWait)},
  };
}

/*! Rows of matrix instructions of a warp. */
std::vector<Intrinsic> MatrixIntrinsics() {
  return {
      // mma_sync<m, n, k, A type, B type, C type>(c, a, b): c += a * b on this warp's fragments
      {kMmaSync, "tl::mma_sync", "tl/mma.h", 6, {kReadWrite, kRead, kRead}, kMatrix},
      // mfma<m, n, k, A and B type, C type>(c, a, b): the same of a wavefront of 64 lanes
      {kMfma,
       "tl::mfma",
       "tl/mfma.h",
       5,
       {kReadWrite, kRead, kRead},
       kMatrix,
       false,
       Feature::kMfma},
      // mfma_mixed<m, n, k, A type, B type, C type>(c, a, b): the same of two types of 8-bit floats
      {kMfmaMixed,
       "tl::mfma_mixed",
       "tl/mfma.h",
       6,
       {kReadWrite, kRead, kRead},
       kMatrix,
       false,
       Feature::kMfmaGfx942},
      // mfma_scale<m, n, k, A type, B type>(c, a, b, scale of a, scale of b): the same of blocks
      // along K, each with its scale
      {kMfmaScale,
       "tl::mfma_scale",
       "tl/mfma.h",
       5,
       {kReadWrite, kRead, kRead, kNone, kNone},
       kMatrix,
       false,
       Feature::kMfmaOcp},
      // mfma_scale_of_word<m, n, k, A type, B type, s>(c, a, b, scales of a, of b): the same with
      // scale s of four
      {kMfmaScaleOfWord,
       "tl::mfma_scale_of_word",
       "tl/mfma.h",
       6,
       {kReadWrite, kRead, kRead, kRead, kRead},
       kMatrix,
       false,
       Feature::kMfmaOcp},
      // wmma<m, n, k, A and B type, C type>(c, a, b): the same of a wavefront of 32 lanes
      {kWmma,
       "tl::wmma",
       "tl/wmma.h",
       5,
       {kReadWrite, kRead, kRead},
       kMatrix,
       false,
       Feature::kWmma},
      // mma_sp_sync<...>(c, a, b, metadata): the same with half of A stored
      {kMmaSpSync, "tl::mma_sp_sync", "tl/mma.h", 6, {kReadWrite, kRead, kRead, kNone}, kMatrix},
  };
}

/*! Rows of barriers. */
std::vector<Intrinsic> BarrierIntrinsics() {
  return {
      {kSyncPartial,
       "tl::sync_threads_partial",
       "tl/sync.h",
       0,
       {kNone, kNone},
       kPure.Tells(ThreadScope::kBlock).Schedules(),
       false,
       Feature::kNamedBarriers},
      // named_barrier_arrive(barrier, threads): what sync_threads_partial waits for
      {kNamedBarrierArrive,
       "tl::named_barrier_arrive",
       "tl/sync.h",
       0,
       {kNone, kNone},
       kPure.Tells(ThreadScope::kBlock).Schedules(),
       false,
       Feature::kNamedBarriers},
      {kTilesOfBlock,
       "tl::tiles_of_block",
       "tl/persistent.h",
       0,
       {},
       kPure.Gives(CallResult::kOfBlock)},
      {kTileOfBlock,
       "tl::tile_of_block",
       "tl/persistent.h",
       0,
       {},
       kPure.Gives(CallResult::kOfBlock)},
      {kOrderedIndex,
       "tl::ordered_index",
       "tl/persistent.h",
       2,
       {},
       kPure.Gives(CallResult::kOfBlock)},
      {kTileIndex, "tl::tile_index", "tl/persistent.h", 0, {}, kPure.Gives(CallResult::kOfBlock)},
      {kSyncGrid,
       "tl::sync_grid",
       "tl/grid.h",
       0,
       {},
       kPure.Barrier(ThreadScope::kGrid).Schedules(),
       false,
       Feature::kGridSync},
      // sync_warp(mask): the lanes whose bit is set
      {kSyncWarp,
       "tl::sync_warp",
       "tl/sync.h",
       0,
       {kNone},
       kPure.Barrier(ThreadScope::kLanes).LaneMask()},
  };
}

/*! Rows of what lanes of a warp do together, and a thread alone. */
std::vector<Intrinsic> LaneIntrinsics() {
  return {
      // AllReduce<op, threads, scale>(value) over `threads` lanes of the warp, `scale` apart
      {kAllReduce, "tl::AllReduce", "tl/reduce.h", 3, {kNone}, kPure.Meets(ThreadScope::kLanes)},
      // AllReduceIfWhole<...>(value): the same where the block has all `threads` lanes; else
      // undefined
      {kAllReduceIfWhole,
       "tl::AllReduceIfWhole",
       "tl/reduce.h",
       3,
       {kNone},
       kPure.Meets(ThreadScope::kLanes)},
      // reduce_lanes<op>(mask, value) over the lanes of the warp that are in the mask
      {kReduceLanes,
       "tl::reduce_lanes",
       "tl/reduce.h",
       1,
       {kNone, kNone},
       kPure.Meets(ThreadScope::kLanes).AgreesInWarp()},
      // warp_scan<op, lanes>(value): over lanes 0 to this one
      {kWarpScan, "tl::warp_scan", "tl/reduce.h", 2, {kNone}, kPure.Meets(ThreadScope::kLanes)},
      // warp_broadcast<lane>(value)
      {kWarpBroadcast,
       "tl::warp_broadcast",
       "tl/reduce.h",
       1,
       {kNone},
       kPure.Meets(ThreadScope::kLanes)},
      // in_extent(index, extent, buffer's name, dimension): the index; the emulator checks it
      {kInExtent, "tl::in_extent", "tl/buffer.h", 0, {kNone, kNone, kNone, kNone}, kPure, true},
      {kMaxNan, "tl::max_nan", "tl/reduce.h", 0, {kNone, kNone}, kPure},
      {kMinNan, "tl::min_nan", "tl/reduce.h", 0, {kNone, kNone}, kPure},
  };
}

/*! ptx_ldmatrix_x4(shared row of this lane, registers), ptx_stmatrix_x4(the same), and their like;
 * ds_read_tr16(the same), by the bits of an element. */
std::vector<Intrinsic> MatrixCopies() {
  std::vector<Intrinsic> rows;
  for (const char* form : {"_x1", "_x2", "_x4", "_x1_trans", "_x2_trans", "_x4_trans"}) {
    const std::string load = std::string("ptx_ldmatrix") + form;
    const std::string store = std::string("ptx_stmatrix") + form;
    rows.push_back({"tl." + load,
                    "tl::" + load,
                    "tl/mma.h",
                    0,
                    {kRead, kWrite},
                    kMatrix.SharesRows(16),
                    false,
                    Feature::kLdmatrix});
    rows.push_back({"tl." + store,
                    "tl::" + store,
                    "tl/stmatrix.h",
                    0,
                    {kWrite, kRead},
                    kMatrix.SharesRows(16),
                    false,
                    Feature::kStmatrix});
  }
  for (const char* form : {"ds_read_tr16", "ds_read_tr8", "ds_read_tr4"}) {
    rows.push_back({std::string("tl.") + form,
                    std::string("tl::") + form,
                    "tl/ds_read_tr.h",
                    0,
                    {kRead, kWrite},
                    kMatrix.SharesRows(8),
                    false,
                    Feature::kDsReadTr});
  }
  return rows;
}

/*! The rows by the names of their ops. */
std::unordered_map<std::string, Intrinsic>& IntrinsicTable() {
  static auto* table = [] {
    auto* rows = new std::unordered_map<std::string, Intrinsic>();
    for (const auto& part :
         {CpAsyncIntrinsics(), AtomicIntrinsics(), VmemIntrinsics(), MatrixIntrinsics(),
          BarrierIntrinsics(), LaneIntrinsics(), MatrixCopies(), ThreadIntrinsics(),
          HopperIntrinsics(), TmaIntrinsics(), ScalarIntrinsics(), RankIntrinsics()}) {
      for (const Intrinsic& row : part) rows->emplace(row.op, row);
    }
    return rows;
  }();
  return *table;
}

void RegisterRow(const Intrinsic& row) {
  RegisterOp(row.op, row.op, row.elementwise ? CallEffect::kPure : CallEffect::kOpaque);
}

/*! Adds the row of `op`. `function` is declared by `header`, or by the program's own text where
 * that is empty. Its arguments behind the template arguments are pointers that are only read
 * ("r"), only written ("w") or both ("rw"), written when a wait says so ("async w"), or values
 * (""). It `meets` and `tells` the threads of a scope, and does a `step` of a queue, by the names
 * that DescribeEffects gives. No program may be lowered meanwhile. */
void AddIntrinsic(const String& op, const String& function, const String& header,
                  int64_t template_args, const Array<String>& access, const String& meets,
                  const String& tells, const String& queue, const String& step) {
  const auto find = [](const auto& names, const String& name) {
    const auto it = std::find(names.begin(), names.end(), std::string(name));
    if (it == names.end())
      TVM_FFI_THROW(ValueError) << "found " << name << " in an intrinsic's row";
    return it - names.begin();
  };
  static const std::vector<std::string> names = {"", "r", "w", "rw", "async w"};
  static constexpr Access kAccesses[] = {Access::kNone, Access::kRead, Access::kWrite,
                                         Access::kReadWrite, Access::kAsyncWrite};
  const auto scope = [&](const String& name) {
    return static_cast<ThreadScope>(find(kScopeNames, name));
  };
  Intrinsic row{std::string(op),
                std::string(function),
                std::string(header),
                static_cast<int>(template_args),
                {},
                IntrinsicEffects::None()
                    .Meets(scope(meets))
                    .Tells(scope(tells))
                    .Queue(static_cast<AsyncQueue>(find(kQueueNames, queue)),
                           static_cast<QueueStep>(find(kStepNames, step)))};
  for (const String& a : access) row.access.push_back(kAccesses[find(names, a)]);
  RegisterRow(row);
  IntrinsicTable().insert_or_assign(row.op, row);
}

/*! The pointer that an argument is or, being a tensor's map, has. */
Expr Pointee(const Expr& arg) {
  const auto map = TensorMapSpec::FromOperand(arg);
  return map ? map->pointer : arg;
}

/*! The effects of an intrinsic as data; nullptr for a name without a row. */
Any DescribeEffects(const String& op) {
  static const char* const results[] = {"operands", "thread", "block"};
  const Intrinsic* row = FindIntrinsic(std::string(op));
  if (!row) return nullptr;
  const IntrinsicEffects& e = row->effects;
  const auto text = [](const char* const* names, auto value) {
    return String(names[static_cast<int>(value)]);
  };
  const auto scope = [](ThreadScope value) {
    return String(kScopeNames[static_cast<size_t>(value)]);
  };
  return Map<String, Any>{{"meets", scope(e.meets)},
                          {"orders", e.orders},
                          {"tells", scope(e.tells)},
                          {"result", text(results, e.result)},
                          {"queue", text(kQueueNames.data(), e.queue)},
                          {"step", text(kStepNames.data(), e.step)},
                          {"row_bytes", static_cast<int64_t>(e.row_bytes)},
                          {"schedules", e.schedules}};
}

Registration intrinsics_registration([] {
  RegisterFunction("op.IntrinsicEffects", DescribeEffects);
  RegisterFunction("op.AddIntrinsic", AddIntrinsic);
  for (const auto& [op, row] : IntrinsicTable()) RegisterRow(row);
});

}  // namespace

const Intrinsic* FindIntrinsic(const std::string& op) {
  const auto it = IntrinsicTable().find(op);
  return it == IntrinsicTable().end() ? nullptr : &it->second;
}

const Intrinsic* FindIntrinsic(const CallNode* call) {
  const OpNode* op = OpOf(call);
  return op ? FindIntrinsic(std::string(op->name)) : nullptr;
}

const IntrinsicEffects* EffectsOf(const CallNode* call) {
  const Intrinsic* row = FindIntrinsic(call);
  return row ? &row->effects : nullptr;
}

bool HasIntrinsic(const ObjectRef& node,
                  const std::function<bool(const IntrinsicEffects&)>& wanted) {
  return HasNode<CallNode>(node, [&](const CallNode* op) {
    const IntrinsicEffects* e = EffectsOf(op);
    return e && wanted(*e);
  });
}

bool WaitsForAll(const CallNode* call, AsyncQueue queue) {
  const IntrinsicEffects* e = EffectsOf(call);
  return e && e->queue == queue && e->step == QueueStep::kWait && IsConst(call->args[0], 0);
}

std::vector<PointerAccess> PointerAccesses(const CallNode* call) {
  std::vector<PointerAccess> out;
  const Intrinsic* row = FindIntrinsic(call);
  if (!row) return out;
  for (size_t i = 0; i < row->access.size(); ++i) {
    if (row->access[i] == kNone) continue;
    const Expr pointer = Pointee(call->args[row->template_args + i]);
    // A tensor map that has become a parameter, or one of a peer's.
    if (pointer.as<VarNode>() || IsCallTo(pointer, kTensorMapAt)) continue;
    const TensorLoadNode* load = AsAddressOf(pointer);
    TVM_FFI_ICHECK(load) << row->op << ": argument " << i << " is not address_of(buffer[..])";
    out.push_back({load->source.as_or_throw<Var>(), load->indices, row->access[i]});
  }
  if (!row->HasDescriptorOperands()) return out;
  for (size_t i = row->template_args + row->access.size(); i < call->args.size(); ++i) {
    const TensorLoadNode* load = AsAddressOf(call->args[i]);
    TVM_FFI_ICHECK(load) << row->op << ": argument " << i << " is not address_of(buffer[..])";
    out.push_back({load->source.as_or_throw<Var>(), load->indices, Access::kAsyncProxyRead});
  }
  return out;
}

}  // namespace tl
