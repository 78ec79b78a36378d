/*!
 * tl.tileop.tma_copy(src region, dst region[, barrier region of one element]): T.tma_copy, and what
 * warp specialisation makes of T.copy. One of the threads that run it issues the copies. From
 * global to shared memory it first gives the mbarrier the number of bytes to expect; arrivals and
 * waits are statements of the program. From shared to global memory it commits the copies as a bulk
 * group.
 */
#include "tma_copy.h"

#include "../target/target.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "../tvm/functor.h"
#include "../tvm/registry.h"
#include "copy_instruction.h"
#include "im2col.h"
#include "intrinsics.h"
#include "parallel.h"
#include "tensor_map_spec.h"
#include "tma_select.h"

namespace tl {
Expr TmaDescriptor(const Var& tensor, const TmaPlan& plan, Analyzer* analyzer) {
  const BufferTypeNode* type = BufferOf(tensor);
  const std::vector<size_t> dims(plan.map_dims.rbegin(), plan.map_dims.rend());
  Array<Expr> first;
  for (size_t d = 0; d < type->shape.size(); ++d) first.push_back(MakeInt(0));
  TensorMapSpec map;
  map.pointer = AddressOf(tensor, first);
  map.dtype = MapDType(type->dtype->dtype);
  map.swizzle = plan.swizzle;
  for (size_t k = 0; k < dims.size(); ++k) {
    map.shape.push_back(type->shape[dims[k]]);
    if (k > 0) map.byte_strides.push_back(analyzer->Simplify(TmaByteStride(type, dims[k])));
    const bool is_pixel_dim = k > 0 && k + 1 < dims.size();
    map.element_strides.push_back(plan.pixels && is_pixel_dim ? plan.pixels->step : 1);
    if (!plan.pixels) map.box.push_back(plan.BoxOf(dims[k]));
  }
  if (plan.pixels) {
    const size_t pixel_dims = dims.size() - 2;
    map.im2col = {std::vector<int64_t>(pixel_dims, plan.pixels->lower),
                  std::vector<int64_t>(pixel_dims, plan.pixels->upper), plan.BoxOf(1),
                  plan.BoxOf(0)};
  }
  return map.ToCall();
}

Expr HintOf(const TmaIssue& issue) {
  static const char* const kHints[] = {"tl::evict_normal", "tl::evict_first", "tl::evict_last"};
  return StringOf(kHints[issue.eviction_policy]);
}

namespace {

/*! A box begins where its swizzle exchanges nothing: the xor of constants, which TVM leaves. */
struct FoldConstantXor : StmtExprMutator {
  Expr Mutate_(const BitwiseXorNode* op) override {
    const auto a = AsInt(op->a), b = AsInt(op->b);
    return a && b ? Expr(MakeInt(op->a->dtype(), *a ^ *b)) : Default<Expr>(op);
  }
};

}  // namespace

BoxAddress AddressOfBox(const TileRegion& shared, const TmaPlan& plan, std::vector<Expr>* from,
                        LoweringScope* scope) {
  BoxAddress place;
  std::vector<Expr> to;
  for (const Range& r : shared.ranges) to.push_back(r->min);
  for (const TmaDim& dim : plan.dims) {
    if (dim.count == 1) continue;
    const Var k = MakeVar(place.loops.empty() ? "box" : "box" + std::to_string(place.loops.size()));
    place.loops.emplace_back(k, dim.count);
    scope->analyzer->BindConst(k, dim.count);
    to[dim.shared] = to[dim.shared] + k * dim.box;
    Expr& begin = (*from)[dim.global];
    begin = begin + CastTo(begin->dtype(), k * dim.box);
  }
  place.shared = SharedAddress(shared.buffer, Array<Expr>(to.begin(), to.end()), scope);
  return place;
}

Stmt OverBoxes(const BoxAddress& place, Stmt body, const Span& span) {
  for (auto it = place.loops.rbegin(); it != place.loops.rend(); ++it) {
    body = MakeFor(it->first, MakeInt(it->second), ForKind::kUnrolled, body, span);
  }
  return body;
}

namespace {

/*! The coordinates of a region's box, innermost first. */
Array<Expr> CoordinatesOf(const TileRegion& global, const TileRegion& shared, const TmaPlan& plan,
                          LoweringScope* scope, BoxAddress* place) {
  std::vector<Expr> from;
  for (const Range& r : global.ranges) from.push_back(r->min);
  *place = AddressOfBox(shared, plan, &from, scope);
  Array<Expr> coordinates;
  for (size_t d = plan.map_dims.size(); d-- > 0;) {
    coordinates.push_back(scope->analyzer->Simplify(from[plan.map_dims[d]]));
  }
  return coordinates;
}

class TmaCopyOperator : public TileOperator {
 public:
  TmaCopyOperator(const CallNode* call, const Span& s)
      : TileOperator(s),
        call_(GetRef<Call>(call)),
        src_(TileRegion::From(call->args[0])),
        dst_(TileRegion::From(call->args[1])),
        is_load_(IsGlobal(src_.buffer)),
        issue_(TmaIssueOf(call)) {
    if (call->args.size() > 2) barrier_ = TileRegion::From(call->args[2]);
  }

  BufferUse Use() const final { return {{src_.buffer}, {dst_.buffer}}; }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level != InferLevel::kPrefer || !IsShared(Shared().buffer)) return false;
    // Where the program has a pointer, it says itself what lies where.
    if (scope->Find(Shared().buffer).defined() || scope->IsPointedTo(Shared().buffer)) return false;
    return ProposeTma(call_, Shared().buffer, scope, span);
  }

  Call SelectInstruction(const LayoutScope& scope) const final {
    const TmaDecision tma = SelectTma(call_.get(), TmaMoment::kFinal, scope.Find(Shared().buffer),
                                      *scope.target, scope.analyzer);
    if (!tma.IsMade()) RefuseTma("T.tma_copy", tma.why, span);
    const int64_t leads = issue_.leader_scope_threads, warp = scope.target->warp_threads;
    if (leads % warp) {
      ThrowAt(span, "ValueError",
              "leader_scope_threads of T.tma_copy is " + std::to_string(leads) +
                  ", wanted a multiple of the " + std::to_string(warp) +
                  " threads of a warp; write " + std::to_string((leads / warp + 1) * warp));
    }
    return WithTmaPlan(call_.get(), tma.plan);
  }

  Stmt Lower(LoweringScope* scope) const final {
    const TmaPlan plan = TmaPlanOf(call_.get());
    Stmt issue;
    if (is_load_) {
      RefuseSafeValue(*scope, src_.buffer, "T.tma_copy", span);
      const auto [buffer, indices] = scope->ToPhysical(barrier_->buffer, barrier_->Mins());
      const Expr barrier = AddressOf(buffer, indices);
      issue = IssueTmaLoad(src_, dst_, plan, barrier, issue_, scope, span);
      if (issue_.elected) return issue;
      const Expr bytes = MakeInt(TmaBytes(dst_));
      issue = MakeSeq({MakeEvaluate(CallOp(kMbarrierExpectTx, {barrier, bytes}), span), issue});
    } else {
      issue = IssueTmaStore(src_, dst_, plan, issue_, scope, span);
      if (issue_.elected) return issue;
    }
    if (issue_.by_one_thread) return issue;
    return MakeIf(ElectThread(*scope, issue_.leader_scope_threads), issue, span);
  }

 private:
  const TileRegion& Shared() const { return is_load_ ? dst_ : src_; }

  Call call_;
  TileRegion src_, dst_;
  std::optional<TileRegion> barrier_;
  bool is_load_;
  TmaIssue issue_;
};

OperatorRegistration tma_copy_registration(kTmaCopy, "tl.tma_copy", MakeOperator<TmaCopyOperator>);

}  // namespace

bool IsTmaLoad(const CallNode* call) {
  const Expr e = GetRef<Expr>(call);
  return IsCallTo(e, kTmaIm2col) || (IsCallTo(e, kTmaCopy) && call->args.size() > 2);
}

Call ElectedTmaLoad(const CallNode* copy, const Expr& barrier, int64_t cluster_mask) {
  Array<Expr> args = copy->args;
  args.push_back(barrier);
  const bool pixels = IsCallTo(copy, kIm2col);
  Map<String, Any> attrs = {{kElected, int64_t(1)}};
  const Any eviction = TileOpAttr(copy, "eviction_policy");
  if (eviction != nullptr) attrs.Set("eviction_policy", eviction);
  if (cluster_mask) attrs.Set("cluster_mask", cluster_mask);
  return WithTileOpAttrs(CallOp(pixels ? kTmaIm2col : kTmaCopy, args).get(), attrs);
}

bool ProposeTma(const Call& call, const Var& tile, LayoutScope* scope, const Span& span) {
  const TmaDecision tma =
      SelectTma(call.get(), TmaMoment::kProposal, Layout(), *scope->target, scope->analyzer);
  if (tma.IsMade()) scope->SetLayout(tile, tma.layout, span);
  return tma.IsMade();
}

Call WithTmaPlan(const CallNode* copy, const TmaPlan& plan) {
  return WithTileOpAttr(copy, kTmaBoxes, plan.Describe());
}

TmaPlan TmaPlanOf(const CallNode* copy) {
  return TmaPlan::From(TileOpAttr(copy, kTmaBoxes).cast<Map<String, Any>>());
}

int64_t TmaBytes(const TileRegion& dst) {
  int64_t bytes = DTypeOf(dst.buffer).bits / 8;
  for (const Range& r : dst.ranges) bytes *= ToInt(r->extent);
  return bytes;
}

Expr SharedAddress(const Var& tile, const Array<Expr>& element, LoweringScope* scope) {
  const auto [buffer, indices] = scope->ToPhysical(tile, element);
  FoldConstantXor fold;
  return AddressOf(buffer, indices.Map([&](const Expr& e) {
    return scope->analyzer->Simplify(fold.Mutate(e));
  }));
}

TmaIssue TmaIssueOf(const CallNode* call) {
  TmaIssue issue;
  issue.eviction_policy = TileOpIntAttr(call, "eviction_policy", 0);
  issue.cluster_mask = TileOpIntAttr(call, "cluster_mask", 0);
  issue.leader_scope_threads = TileOpIntAttr(call, "leader_scope_threads", 0);
  issue.elected = TileOpIntAttr(call, kElected, 0) != 0;
  issue.by_one_thread = TileOpIntAttr(call, kByOneThread, 0) != 0;
  return issue;
}

Expr ElectOne(const Target& target, const Expr& thread, int64_t threads) {
  // elect.sync takes whole warps (PTX ISA).
  if (threads % target.warp_threads || PassConfigFlag("tl.disable_shuffle_elect", false)) {
    return EqualOf(thread, MakeInt(thread->dtype(), 0));
  }
  return CallOp(kShuffleElect, {MakeInt(threads)}, PrimTy(kBool));
}

Expr ElectThread(const LoweringScope& scope, int64_t leader_scope_threads) {
  if (!leader_scope_threads) return ElectOne(*scope.target, scope.thread, scope.num_threads);
  return ElectOne(*scope.target, FloorModOf(scope.thread, leader_scope_threads),
                  leader_scope_threads);
}

namespace {

Stmt IssueBulkLoad(const TileRegion& global, const TileRegion& shared, const TmaPlan& plan,
                   const Expr& barrier, const TmaIssue& issue, LoweringScope* scope,
                   const Span& span) {
  Array<Expr> args = {HintOf(issue), SharedAddress(shared.buffer, shared.Mins(), scope),
                      AddressOf(global.buffer, global.Mins()), MakeInt(plan.bulk_bytes), barrier};
  if (issue.cluster_mask) args.push_back(MakeInt(issue.cluster_mask));
  const char* op = issue.cluster_mask ? kBulkLoadMulticast
                   : issue.waited     ? kBulkLoadWaited
                                      : kBulkLoad;
  return MakeEvaluate(CallOp(op, args), span);
}

/*! The C++ type of what the unit adds. */
std::string ElementName(const Var& buffer) {
  const DLDataType t = DTypeOf(buffer);
  if (t.code == kDLBfloat) return "bfloat16_t";
  if (t.code == kDLFloat) return t.bits == 16 ? "half_t" : "float";
  return t.code == kDLInt ? "int" : "uint" + std::to_string(t.bits) + "_t";
}

Stmt IssueBulkStore(const TileRegion& shared, const TileRegion& global, const TmaPlan& plan,
                    const TmaIssue& issue, LoweringScope* scope, const Span& span) {
  Array<Expr> args = {AddressOf(global.buffer, global.Mins()),
                      SharedAddress(shared.buffer, shared.Mins(), scope), MakeInt(plan.bulk_bytes)};
  args.insert(args.begin(), issue.adds ? StringOf(ElementName(global.buffer)) : HintOf(issue));
  return MakeEvaluate(CallOp(issue.adds ? kBulkReduceAdd : kBulkStore, args), span);
}

}  // namespace

Stmt IssueTmaLoad(const TileRegion& global, const TileRegion& shared, const TmaPlan& plan,
                  const Expr& barrier, const TmaIssue& issue, LoweringScope* scope,
                  const Span& span) {
  if (plan.bulk_bytes > 0) {
    return IssueBulkLoad(global, shared, plan, barrier, issue, scope, span);
  }
  BoxAddress place;
  const Array<Expr> coordinates = CoordinatesOf(global, shared, plan, scope, &place);
  Array<Expr> args = {HintOf(issue), TmaDescriptor(global.buffer, plan, scope->analyzer), barrier,
                      place.shared};
  if (issue.cluster_mask) args.push_back(MakeInt(issue.cluster_mask));
  for (const Expr& c : coordinates) args.push_back(c);
  const char* op = issue.cluster_mask ? kTmaLoadMulticast
                   : issue.waited     ? kTmaLoadWaited
                                      : kTmaLoad;
  return OverBoxes(place, MakeEvaluate(CallOp(op, args), span), span);
}

Stmt IssueTmaStore(const TileRegion& shared, const TileRegion& global, const TmaPlan& plan,
                   const TmaIssue& issue, LoweringScope* scope, const Span& span) {
  Stmt stores;
  if (plan.bulk_bytes > 0) {
    stores = IssueBulkStore(shared, global, plan, issue, scope, span);
  } else {
    BoxAddress place;
    const Array<Expr> coordinates = CoordinatesOf(global, shared, plan, scope, &place);
    Array<Expr> args = {issue.adds ? StringOf("tl::SumOp") : HintOf(issue),
                        TmaDescriptor(global.buffer, plan, scope->analyzer), place.shared};
    for (const Expr& c : coordinates) args.push_back(c);
    const char* op = issue.adds ? kTmaReduce : kTmaStore;
    stores = OverBoxes(place, MakeEvaluate(CallOp(op, args), span), span);
  }
  return MakeSeq({stores, MakeEvaluate(CallOp(kTmaStoreArrive, {}), span)});
}

Stmt WaitedStore(const Stmt& store, const TileRegion& shared, const TileRegion& global,
                 const char* order, LoweringScope* scope) {
  const Var tile = scope->ToPhysical(shared.buffer, shared.Mins()).first;
  return MakeAttr(Array<Any>{tile, global.buffer, String(order)}, kStoreWait, global.ToExpr(),
                  store);
}

void RefuseSafeValue(const LoweringScope& scope, const Var& tensor, const std::string& op,
                     const Span& span) {
  if (!scope.HasSafeValue(tensor)) return;
  RefuseTma(op, std::string(tensor->name) + " with a safe value, where the unit fills in zeros,",
            span);
}

void RefuseTma(const std::string& op, const std::string& why, const Span& span) {
  ThrowAt(span, "ValueError",
          op + ": found " + why +
              ", wanted a tile that TMA can copy; use T.copy without "
              "prefer_instruction, which copies any");
}

}  // namespace tl
