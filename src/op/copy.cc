/*!
 * T.copy and T.async_copy: an elementwise copy, casting where dtypes differ. The side that is
 * closer to the arithmetic (fragment, then shared, then global memory) gives the iteration space.
 *
 * It is made by its `instruction` (copy_instruction.h), which is known when all layouts are: a
 * store by TMA, for which PlaceAsyncWaits says when threads wait; a load by TMA that is asked for,
 * for which all threads wait; between two fragments shuffles in a warp or an exchange through
 * shared memory (fragment_copy.h); ldmatrix and its like (matrix_copy.h); else a parallel nest.
 * cp.async is chosen by the pipeline around a copy, or demanded: `prefer_instruction="cp_async"`
 * commits and waits here unless the pipeline does, and T.async_copy commits only. LowerAsyncCopy
 * refuses a demand that it cannot meet. AMD's loads to LDS (lds_copy.h) are the same there.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

#include "../layout/annotation.h"
#include "../target/mma.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "../tvm/pass_configs.h"
#include "copy_instruction.h"
#include "fragment_copy.h"
#include "intrinsics.h"
#include "lds_copy.h"
#include "matrix_copy.h"
#include "region_nest.h"
#include "thread_nest.h"
#include "tma_copy.h"
#include "tma_select.h"

namespace tl {
namespace {

class CopyOperator : public TileOperator {
 public:
  CopyOperator(const CallNode* call, Span s)
      : TileOperator(std::move(s)),
        call_(GetRef<Call>(call)),
        src_(TileRegion::From(call->args[0])),
        dst_(TileRegion::From(call->args[1])) {}

  BufferUse Use() const final {
    BufferUse use{{src_.buffer}, {dst_.buffer}};
    for (const Expr& place : call_->args) {
      // An element of a buffer may say where the rows are.
      for (const Var& v : CollectBufferUse(MakeEvaluate(place, span)).reads) {
        if (!Contains(use.reads, v)) use.reads.push_back(v);
      }
    }
    return use;
  }
  bool IsOfThread() const final { return Nest().IsOfThread(); }
  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level == InferLevel::kPrefer && ProposeLayout(scope)) return true;
    return Nest().Infer(scope, level);
  }
  void InferSwizzle(LayoutScope* scope) const final {
    const Var& tile = IsShared(dst_.buffer) ? dst_.buffer : src_.buffer;
    if (scope->Find(tile).defined() || scope->IsPointedTo(tile) || scope->IsView(tile)) return;
    const Layout layout = ProposeMatrixLayout(src_, dst_, *scope);
    if (layout.defined()) return scope->SetLayout(tile, layout, span);
    Nest().InferSwizzle(scope);
  }
  void Verify(const LayoutScope& scope) const final {
    const auto find = [&](const Var& v) { return scope.FindFragment(v); };
    if (!Fragments().IsPlaced(find)) Nest().Verify(scope);
  }
  std::vector<FragmentAccess> Unreached(const LayoutScope& scope) const final {
    const auto find = [&](const Var& v) { return scope.FindFragment(v); };
    if (Fragments().IsPlaced(find)) return {};
    return Nest().Unreached(scope);
  }
  int64_t LayoutCost(const LayoutScope& scope) const final {
    const auto find = [&](const Var& v) { return scope.FindFragment(v); };
    return Fragments().IsPlaced(find) ? Fragments().LayoutCost(scope) : Nest().LayoutCost(scope);
  }

  Stmt Lower(LoweringScope* scope) const final {
    if (TileOpIntAttr(call_.get(), kConverts, 0)) NoteConversion(scope);
    const CopyChoice choice = ChoiceOf(call_.get());
    if (choice.Is(kByShuffles)) return Fragments().LowerByShuffles(scope, span);
    if (choice.Is(kByExchange)) return Fragments().LowerThroughShared(scope, span);
    if (choice.Is(kByCpAsync)) return LowerToCpAsync(choice, Nest().Lower(scope), *scope);
    if (choice.Is(kByLdsLoads)) {
      LdsPlan plan;
      const std::string why =
          PlanLdsLoads(*scope, TileOpIntAttr(call_.get(), kLaneBytes, 0), &plan);
      if (!why.empty()) ThrowBug(span, "T.copy", "a load to LDS that was planned: found " + why);
      return LowerToCpAsync(choice, LowerToLdsLoads(src_, dst_, plan, scope, span), *scope);
    }
    if (choice.Is(kByTma)) return Loads() ? LowerToTmaLoad(scope) : LowerToTmaStore(scope);
    for (const char* name : kByMatrices) {
      if (!choice.Is(name)) continue;
      return LowerToMatrixCopy(name, src_, dst_, MatrixPlan::Of(call_.get()), scope, span);
    }
    // A pipeline may wait for what LowerAsyncCopy finds wide enough.
    if (!choice.Is(kByThreads) && !choice.Has(kByCpAsync)) {
      ThrowBug(span, "T.copy", "found a copy without an instruction");
    }
    if (choice.touched_elsewhere) {
      scope->Note(span, "T.copy " + std::string(src_.buffer->name) + " to " +
                            std::string(dst_.buffer->name) +
                            ": by the threads, not by TMA: found " + choice.WhyNot(kByTma) +
                            ", wanted stores by T.copy alone");
    }
    return Nest().Lower(scope);
  }

  Call SelectInstruction(const LayoutScope& scope) const final {
    const CopyChoice candidates = ChoiceOf(call_.get());
    Map<String, Any> to_do;
    const CopyChoice choice = FirstOf(
        candidates, scope.has_async_owner, [&](const std::string& instruction) -> std::string {
          if (instruction == kByTma) return WhyNotTma(candidates, scope, &to_do);
          if (instruction == kByLdsLoads) return WhyNotLdsLoads(candidates, scope, &to_do);
          if (instruction == kByRegisters) return "no pipeline loads it ahead";
          if (std::find(kByMatrices.begin(), kByMatrices.end(), instruction) != kByMatrices.end()) {
            return PlanMatrixCopy(instruction, src_, dst_, scope, &to_do);
          }
          if (instruction == kByShuffles) return Fragments().WhyNotShuffles(scope);
          const bool is_exchange = instruction == kByThreads && candidates.Has(kByExchange);
          return is_exchange ? Fragments().WhyNotThreads(scope) : "";
        });
    Call call = call_;
    for (const auto& [key, value] : to_do) call = WithTileOpAttr(call.get(), key.c_str(), value);
    return WithChoice(call.get(), choice);
  }

 private:
  /*! The copy as a nest. Most who make the operator ask for its buffers alone, so the nest is made
   * when someone asks for it. */
  struct Made {
    FragmentCopy fragments;
    std::unique_ptr<TileOperator> nest;
  };
  const Made& AsNest() const {
    if (!made_) {
      ParallelNest nest = NestOfCopy(call_.get(), span);
      made_.emplace(
          Made{{src_, dst_, nest}, MakeNestOperator(std::move(nest), {src_.buffer, dst_.buffer})});
    }
    return *made_;
  }
  TileOperator& Nest() const { return *AsNest().nest; }
  const FragmentCopy& Fragments() const { return AsNest().fragments; }

  bool Loads() const { return IsGlobal(src_.buffer); }
  const TileRegion& Shared() const { return Loads() ? dst_ : src_; }

  void NoteConversion(LoweringScope* scope) const {
    if (IsFragment(src_.buffer) && IsFragment(dst_.buffer)) return;
    const bool to_shared = IsFragment(src_.buffer);
    const Var& fragment = to_shared ? src_.buffer : dst_.buffer;
    const int64_t elements = Product(ConstShape(fragment));
    const int64_t bytes = (elements * DTypeOf(fragment).bits + 7) / 8;
    scope->Note(span, std::string(fragment->name) +
                          (to_shared ? ": copied to shared memory, " : ": copied back, ") +
                          std::to_string(bytes) +
                          " bytes, because the statement wants elements of other threads");
  }

  /*! Where TMA makes the copy, the layout that it writes and threads read best. */
  bool ProposeLayout(LayoutScope* scope) const {
    const Var tile = Shared().buffer;
    if (!IsShared(tile) || scope->Find(tile).defined() || scope->IsPointedTo(tile)) return false;
    return ProposeTma(call_, tile, scope, span);
  }

  /*! Why TMA does not make the copy; what it does is added to `to_do`. */
  std::string WhyNotTma(const CopyChoice& candidates, const LayoutScope& scope,
                        Map<String, Any>* to_do) const {
    TmaDecision tma = Decide(call_, scope);
    if (!tma.IsMade() && candidates.demanded) RefuseTma("T.copy", tma.why, span);
    if (!tma.IsMade()) return tma.why;
    if (!Loads()) {
      if (auto part = PlanByGroups(tma.plan, scope)) tma.plan = *part;
    }
    to_do->Set(kTmaBoxes, tma.plan.Describe());
    return "";
  }

  TmaDecision Decide(const Call& copy, const LayoutScope& scope) const {
    return SelectTma(copy.get(), TmaMoment::kFinal, scope.Find(Shared().buffer), *scope.target,
                     scope.analyzer);
  }

  /*! `most`: bytes that the rows of both sides are multiples of. */
  template <typename Scope>
  std::string PlanLdsLoads(const Scope& scope, int64_t most, LdsPlan* plan) const {
    return PlanLdsCopy(dst_, LayoutIn(scope, dst_.buffer), scope.target->ThreadCopy()->bytes, most,
                       scope.num_threads, plan);
  }
  static Layout LayoutIn(const LayoutScope& scope, const Var& tile) { return scope.Find(tile); }
  static Layout LayoutIn(const LoweringScope& scope, const Var& tile) {
    return scope.LayoutOf(tile);
  }

  std::string WhyNotLdsLoads(const CopyChoice& candidates, const LayoutScope& scope,
                             Map<String, Any>* to_do) const {
    LdsPlan plan;
    const std::string why = PlanLdsLoads(scope, candidates.aligned, &plan);
    if (why.empty()) {
      to_do->Set(kLaneBytes, plan.bytes);
    } else if (candidates.demanded) {
      RefuseLdsLoads(why, span);
    }
    return why;
  }

  /*! Asked for only: one thread issues, all wait before they go on. */
  Stmt LowerToTmaLoad(LoweringScope* scope) const {
    const TmaPlan plan = TmaPlanOf(call_.get());
    RefuseSafeValue(*scope, src_.buffer, "T.copy", span);
    const OwnBarrier own = scope->AllocBarrier(std::string(dst_.buffer->name) + "_full");
    const Expr barrier = AddressOf(own.barrier, {MakeInt(0)}), bytes = MakeInt(TmaBytes(dst_));
    TmaIssue issue = TmaIssueOf(call_.get());
    issue.waited = true;
    const Stmt load =
        MakeSeq({MakeEvaluate(CallOp(kMbarrierArriveExpectTx, {barrier, bytes}), span),
                 IssueTmaLoad(src_, dst_, plan, barrier, issue, scope, span)});
    const Expr parity = own.parity.defined() ? LoadOf(own.parity, {MakeInt(0)}) : MakeInt(0);
    std::vector<Stmt> out = {MakeIf(ElectThread(*scope, 0), load, span),
                             MakeEvaluate(CallOp(kMbarrierWait, {barrier, parity}), span)};
    if (own.parity.defined()) {
      const Expr next = XorOf(parity, MakeInt(parity->dtype(), 1));
      out.push_back(MakeStore(own.parity, next, {MakeInt(0)}, span));
    }
    return MakeSeq(out);
  }

  Stmt LowerToTmaStore(LoweringScope* scope) const {
    const TmaPlan plan = TmaPlanOf(call_.get());
    TileRegion src = src_, dst = dst_;
    if (plan.group_dim) {
      const Expr group = FloorDivOf(scope->thread, kWarpGroupThreads);
      std::tie(src, dst) = PartOf(*plan.group_dim, group, scope->num_threads / kWarpGroupThreads);
    }
    const Stmt store =
        MakeIf(ElectThread(*scope, plan.group_dim ? kWarpGroupThreads : 0),
               IssueTmaStore(src, dst, plan, TmaIssueOf(call_.get()), scope, span), span);
    const bool again = scope->StoresTo(dst_.buffer).repeated;
    return WaitedStore(store, src_, dst_, again ? kOrderStores : kOrderNone, scope);
  }

  /*! In a range of several warp groups each stores rows of its own: where it has also made them, it
   * waits for no other. */
  std::optional<TmaPlan> PlanByGroups(const TmaPlan& whole, const LayoutScope& scope) const {
    const int64_t groups = scope.num_threads / kWarpGroupThreads;
    const size_t rank = src_.ranges.size();
    if (!scope.in_range || groups < 2 || scope.num_threads % kWarpGroupThreads || rank < 2) {
      return std::nullopt;
    }
    const auto rows = FindIf(whole.dims, [&](const TmaDim& d) { return d.shared == RowsOfTile(); });
    if (rows == whole.dims.end() || !StaysInGroups(rows->global, scope)) return std::nullopt;
    if (ToInt(src_.ranges[RowsOfTile()]->extent) % groups) return std::nullopt;
    const Var group = MakeVar("group");
    scope.analyzer->BindConst(group, groups);
    const auto [src, dst] = PartOf(rows->global, group, groups);
    const Call part = CallOp(kCopy, {src.ToExpr(), dst.ToExpr()});
    TmaDecision tma = Decide(WithTileOpAttrs(part.get(), TileOpAttrs(call_.get())), scope);
    if (!tma.IsMade()) return std::nullopt;
    tma.plan.group_dim = rows->global;
    return tma.plan;
  }

  /*! The dimension that groups share: the outermost one, so that a group's part is in one piece, as
   * are the rows of an accumulator that it has. */
  size_t RowsOfTile() const {
    size_t d = 0;
    while (d + 2 < src_.ranges.size() && IsConst(src_.ranges[d]->extent, 1)) ++d;
    return d;
  }

  /*! The rows of a store, and those of dimension `dim` of the tensor, that a warp group has. */
  std::pair<TileRegion, TileRegion> PartOf(size_t dim, const Expr& group, int64_t groups) const {
    const size_t rows = RowsOfTile();
    const int64_t part = ToInt(src_.ranges[rows]->extent) / groups;
    return {RowsOf(src_, rows, group * part, part), RowsOf(dst_, dim, group * part, part)};
  }

  /*! A row of the tensor is always stored by the same warp group, which has its stores in order. */
  bool StaysInGroups(size_t dim, const LayoutScope& scope) const {
    const StoreTraffic traffic = scope.StoresTo(dst_.buffer);
    return !traffic.repeated || AllOf(traffic.regions, [&](const TileRegion& r) {
      if (!ffi::StructuralEqual()(r.Extents(), dst_.Extents())) return false;
      const auto [min, extent] = std::pair(r.ranges[dim]->min, r.ranges[dim]->extent);
      return scope.analyzer->CanProveEqual(FloorModOf(min, extent), MakeInt(min->dtype(), 0));
    });
  }

  static TileRegion RowsOf(const TileRegion& tile, size_t dim, const Expr& first, int64_t count) {
    TileRegion rows = tile;
    const Expr& min = tile.ranges[dim]->min;
    rows.ranges.Set(dim,
                    MakeRange(min + CastTo(min->dtype(), first), MakeInt(min->dtype(), count)));
    return rows;
  }

  Stmt LowerToCpAsync(const CopyChoice& choice, const Stmt& loads,
                      const LoweringScope& scope) const {
    if (!EnablesAsyncCopy()) {
      ThrowAt(span, "ValueError",
              "T.copy: found a demand for cp.async and tl.enable_async_copy=False, wanted one of "
              "them; remove the pass config or the demand");
    }
    const bool waits = !TileOpIntAttr(call_.get(), "is_async_copy", 0);
    const String who(choice.demanded ? kDemanded : kProved);
    const Stmt copies = MakeAttr(who, kAsyncCopy, MakeInt(kBool, 1), loads);
    if (scope.has_async_owner) {
      if (waits) return copies;
      ThrowAt(span, "ValueError",
              "found T.async_copy in a T.Pipelined loop that places commits and waits itself, "
              "wanted T.copy; or use T.serial and wait with T.ptx_wait_group");
    }
    std::vector<Stmt> out = {copies, MakeEvaluate(CallOp(kCpAsyncCommit, {}), span)};
    if (waits) out.push_back(MakeEvaluate(CallOp(kCpAsyncWait, {MakeInt(0)}), span));
    return MakeSeq(out);
  }

  Call call_;
  TileRegion src_, dst_;
  mutable std::optional<Made> made_;
};

OperatorRegistration copy_registration(kCopy, "tl.copy", MakeOperator<CopyOperator>);

}  // namespace
}  // namespace tl
