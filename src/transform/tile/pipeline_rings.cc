#include "pipeline_rings.h"

#include <tvm/ffi/extra/structural_equal.h>

#include "../../analysis/effects.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../op/thread_range.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "../inline_names.h"
#include "pipeline.h"
#include "pipeline_bindings.h"
#include "pipeline_roles.h"

namespace tl {
namespace {

bool IsArrival(const Expr& call) {
  return IsCallTo(call, kMbarrierArrive) || IsCallTo(call, kMbarrierArriveExpectTx);
}

/*! Rewrites arrivals at the previous iteration's slot to arrivals at this iteration's slot, as the
 * previous iteration would make them. `only_arrivals` is false if there is anything else. */
class AtSlotBefore : public StmtExprMutator {
 public:
  AtSlotBefore(Expr count, Analyzer* analyzer) : count_(std::move(count)), analyzer_(analyzer) {}
  bool only_arrivals = true;

 protected:
  Stmt Mutate_(const EvaluateNode* op) override {
    only_arrivals &= IsArrival(op->value);
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const BufferStoreNode* op) override {
    only_arrivals = false;
    return GetRef<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) override {
    only_arrivals = false;
    return GetRef<Stmt>(op);
  }
  Expr Mutate_(const TensorLoadNode* op) override {
    const Var barrier = op->source.as_or_throw<Var>();
    if (!IsBarrier(barrier)) return Default<Expr>(op);
    const int64_t slots = ToInt(BufferOf(barrier)->shape[0]);
    const Expr count = CastTo(op->indices[0]->dtype(), count_);
    only_arrivals &=
        analyzer_->CanProveEqual(op->indices[0], FloorModOf(count + (slots - 1), slots));
    return LoadOf(barrier, {FloorModOf(count, slots)});
  }

 private:
  const Expr count_;
  Analyzer* analyzer_;
};

/*! An arrival that a role makes one iteration late. For the last iteration it is behind the loop.
 */
struct LateArrival {
  Var barrier;
  Any threads;  // the role's range of threads
  /*! The role has waited for its MMAs in front of the arrival. */
  bool waited;
  /*! An arrival behind the loop, its slot, and its condition if it has one. */
  Stmt stmt = {};
  Expr index = {}, condition = {};
};

/*! Finds the arrivals of roles behind a loop. It ends at a statement that may wait for other roles
 * or tell them something. */
class LastArrivals : public StmtExprVisitor {
 public:
  explicit LastArrivals(const ForNode* loop) : loop_(loop) {}
  std::vector<LateArrival> found;

 protected:
  void Visit_(const SeqStmtNode* op) override {
    const std::vector<Stmt> list = FlatSeq(GetRef<Stmt>(op));
    const auto at = FindIf(list, [this](const Stmt& s) { return s.get() == loop_; });
    if (at == list.end()) return Default(op);
    for (auto s = at + 1; s != list.end() && AddRole(*s); ++s) {
    }
  }

 private:
  /*! False if the search ends at this statement. */
  bool AddRole(const Stmt& s) {
    const AttrStmtNode* range = RangeOfRole(s);
    if (!range) return s.as<BindNode>() != nullptr;
    bool waited = false;
    for (const Stmt& step : FlatSeq(range->body)) {
      const CallNode* tile_op = AsTileOp(step);
      waited |= tile_op && IsCallTo(tile_op, kWgmmaWait) && IsConst(tile_op->args[0], 0);
      const Guarded guarded = SplitGuard(step);
      const Stmt& body = guarded.condition.defined() ? guarded.body : step;
      const auto* evaluate = body.as<EvaluateNode>();
      const auto* call = evaluate ? evaluate->value.as<CallNode>() : nullptr;
      const TensorLoadNode* element = call ? BarrierOf(call) : nullptr;
      if (element && IsArrival(evaluate->value)) {
        const bool is_of_loop = CountMentions(loop_->body, element->source.as_or_throw<Var>()) > 0;
        if (!is_of_loop) continue;
        found.push_back({element->source.as_or_throw<Var>(), range->node, waited, step,
                         element->indices[0], guarded.condition});
      } else if (HasIntrinsic(step, [](const IntrinsicEffects& e) {
                   return e.tells != ThreadScope::kThread || e.meets > ThreadScope::kLanes;
                 })) {
        return false;
      }
    }
    return true;
  }

  const ForNode* loop_;
};

/*! Moves late arrivals to the end of the iteration that they are for. If arrivals for the last
 * iteration stand behind the loop, each run of the loop makes all of its arrivals. Otherwise the
 * next run makes the one for the last iteration. */
class LateArrivals : public StmtExprMutator {
 public:
  LateArrivals(const ForNode* loop, const IterationCount& count, bool in_each_run)
      : loop_(loop),
        count_(count.Of(loop)),
        before_(in_each_run ? loop->loop_var - loop->min : count_) {
    for (const ForNode* outer : count.around) analyzer_.BindLoop(outer);
  }
  std::vector<LateArrival> found;

  Stmt Move(const Stmt& body) {
    analyzer_.BindLoop(loop_);
    return Mutate(body);
  }

  /*! Whether the arrivals behind the loop are those for its last iteration. */
  bool AreLast(const std::vector<LateArrival>& behind) {
    const Expr has_run = MakeInt(loop_->extent->dtype(), 0) < loop_->extent;
    const Expr last = Substitute(count_, loop_->loop_var,
                                 loop_->min + loop_->extent - MakeInt(loop_->extent->dtype(), 1));
    const auto is_same = [&](const LateArrival& a, const LateArrival& b) {
      return a.barrier.same_as(b.barrier) && ffi::StructuralEqual()(a.threads, b.threads);
    };
    const auto is_last = [&](const LateArrival& b) {
      const int64_t slots = ToInt(BufferOf(b.barrier)->shape[0]);
      const Expr slot = FloorModOf(CastTo(b.index->dtype(), last), slots);
      bool is_slot = false;
      analyzer_.WithConstraint(has_run, [&] { is_slot = analyzer_.CanProveEqual(b.index, slot); });
      const bool when = b.condition.defined()
                            ? Implies(b.condition, has_run) && Implies(has_run, b.condition)
                            : analyzer_.CanProveSymbolic(has_run);
      return is_slot && when && 1 == CountIf(found, [&](const LateArrival& a) {
                                  return is_same(a, b) && (b.waited || !a.waited);
                                });
    };
    return behind.size() == found.size() && AllOf(behind, is_last);
  }

 protected:
  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key != kThreadRange || !IsApart(op)) return Default<Stmt>(op);
    std::vector<Stmt> steps, late;
    int64_t started = 0;
    bool waited = false;  // for all MMAs of the previous iteration
    for (const Stmt& s : FlatSeq(op->body)) {
      const CallNode* call = AsTileOp(s);
      if (call && IsGemm(call)) started += TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
      if (call && IsCallTo(call, kWgmmaWait)) {
        waited |= ToInt(call->args[0]) <= started;
      }
      const Stmt arrival = AtEndOfIteration(s);
      if (!arrival.defined()) {
        steps.push_back(s);
        continue;
      }
      if (waited) late.push_back(MakeEvaluate(CallOp(kWgmmaWait, {MakeInt(0)}), s->span));
      late.push_back(arrival);
      for (const Stmt& made : FlatSeq(arrival)) {
        const auto* call = made.as<EvaluateNode>()->value.as<CallNode>();
        found.push_back({BarrierOf(call)->source.as_or_throw<Var>(), op->node, waited});
      }
    }
    AppendRange(&steps, late);
    return MakeAttr(op->node, op->attr_key, op->value, MakeSeq(steps));
  }

 private:
  /*! The arrivals of a statement `if not the first iteration: arrive at the previous slot`, as the
   * previous iteration makes them at its end; undefined for other statements. */
  Stmt AtEndOfIteration(const Stmt& s) {
    const Guarded guarded = SplitGuard(s);
    if (!guarded.condition.defined()) return Stmt();
    const Expr is_later = MakeInt(before_->dtype(), 0) < before_;
    if (!Implies(guarded.condition, is_later) || !Implies(is_later, guarded.condition)) {
      return Stmt();
    }
    AtSlotBefore mover(count_, &analyzer_);
    const Stmt moved = mover.Mutate(guarded.body);
    return mover.only_arrivals ? moved : Stmt();
  }
  bool Implies(const Expr& known, const Expr& wanted) {
    bool proved = false;
    analyzer_.WithConstraint(known, [&] { proved = analyzer_.CanProveSymbolic(wanted); });
    return proved;
  }

  const ForNode* loop_;
  const Expr count_;
  /*! Greater than 0 if there is a previous iteration. */
  const Expr before_;
  Analyzer analyzer_;
};

/*! Finds how a loop's body indexes the first dimension of mbarriers and shared buffers. */
class SlotReader : public StmtExprVisitor {
 public:
  SlotReader(const ForNode* loop, const IterationCount& count) : loop_(loop), count_(count) {
    for (const ForNode* outer : count.around) analyzer_.BindLoop(outer);
    analyzer_.BindLoop(loop);
  }

  struct Use {
    Var buffer;
    bool always_at_slot = true;
    bool changes = false;
    int64_t Slots() const { return AsInt(BufferOf(buffer)->shape[0]).value_or(0); }
  };
  std::vector<Use> uses;  // in the order of their first access

 protected:
  void Visit_(const TensorRegionNode* op) override {
    const Range& first = op->region[0];
    Note(op->source.as_or_throw<Var>(), first->min, IsConst(first->extent, 1));
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) override {
    Note(op->source.as_or_throw<Var>(), op->indices[0], true);
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) override {
    Note(op->buffer, op->indices[0], true);
    Default(op);
  }

 private:
  void Note(const Var& buffer, const Expr& index, bool is_one) {
    if (!IsBarrier(buffer) && !IsShared(buffer)) return;
    auto use = FindIf(uses, [&](const Use& u) { return u.buffer.same_as(buffer); });
    if (use == uses.end()) use = uses.insert(uses.end(), Use{buffer});
    use->changes |= !AsInt(index);
    use->always_at_slot &= is_one && use->Slots() > 1 && IsSlot(index, use->Slots());
  }
  bool IsSlot(const Expr& index, int64_t slots) {
    if (!IsPureInteger(index)) return false;
    const Expr count = CastTo(index->dtype(), count_.Of(loop_));
    return analyzer_.CanProveEqual(index, FloorModOf(count, slots));
  }

  const ForNode* loop_;
  const IterationCount& count_;
  Analyzer analyzer_;
};

/*! Replaces each ring by a buffer with one slot. */
class Folder : public StmtExprMutator {
 public:
  explicit Folder(const std::vector<Var>& rings) {
    for (const Var& ring : rings) {
      const BufferTypeNode* type = BufferOf(ring);
      Array<Expr> shape(type->shape.begin() + 1, type->shape.end());
      if (IsBarrier(ring)) shape = {MakeInt(1)};
      one_[ring.get()] = MakeBuffer(ring->name, type->dtype->dtype, shape, ScopeOf(ring));
    }
  }
  Var OneOf(const Var& ring) const { return one_.at(ring.get()); }

 protected:
  Expr Mutate_(const TensorRegionNode* op) override {
    const Expr region = Default<Expr>(op);
    const auto it = one_.find(op->source.get());
    if (it == one_.end()) return region;
    const Array<Range>& ranges = region.as<TensorRegionNode>()->region;
    if (IsBarrier(it->second)) {
      return TileRegion{it->second, {MakeRange(MakeInt(0), MakeInt(1))}}.ToExpr();
    }
    return TileRegion{it->second, Array<Range>(ranges.begin() + 1, ranges.end())}.ToExpr();
  }
  Expr Mutate_(const TensorLoadNode* op) override {
    const auto it = one_.find(op->source.get());
    return it == one_.end() ? Default<Expr>(op)
                            : LoadOf(it->second, Inner(it->second, op->indices));
  }
  Stmt Mutate_(const BufferStoreNode* op) override {
    const auto it = one_.find(op->buffer.get());
    if (it == one_.end()) return Default<Stmt>(op);
    return MakeStore(it->second, Mutate(op->value), Inner(it->second, op->indices), op->span);
  }

 private:
  Array<Expr> Inner(const Var& one, const Array<Expr>& indices) {
    if (IsBarrier(one)) return {MakeInt(0)};
    Array<Expr> inner;
    for (size_t i = 1; i < indices.size(); ++i) inner.push_back(Mutate(indices[i]));
    return inner;
  }

  std::unordered_map<const Object*, Var> one_;
};

/*! Replaces a loop by another one, and drops the arrivals behind it that the new loop makes. */
class LoopReplacer : public StmtExprMutator {
 public:
  LoopReplacer(const ForNode* from, For to, const std::vector<LateArrival>& without)
      : from_(from), to_(std::move(to)), without_(without) {}

 protected:
  Stmt Mutate_(const ForNode* op) override { return op == from_ ? Stmt(to_) : Default<Stmt>(op); }
  Stmt Mutate_(const EvaluateNode* op) override { return Rest(op); }
  Stmt Mutate_(const IfThenElseNode* op) override { return Rest(op); }

 private:
  template <typename Node>
  Stmt Rest(const Node* op) {
    const bool is_out = AnyOf(without_, [&](const LateArrival& a) { return a.stmt.get() == op; });
    return is_out ? MakeSeq({}) : Default<Stmt>(op);
  }

  const ForNode* from_;
  const For to_;
  const std::vector<LateArrival>& without_;
};

std::string Counted(const SlotReader::Use& use) {
  return std::string(IsBarrier(use.buffer) ? "mbarrier " : "") + std::string(use.buffer->name) +
         " has " + (use.Slots() == 1 ? "one slot" : std::to_string(use.Slots()) + " slots");
}

/*! Finds the rings. Their mbarriers all have to have one number of slots: says why they have not,
 * or
 * "". */
std::string ChooseRings(const std::vector<SlotReader::Use>& uses, Rings* out) {
  const SlotReader::Use* first = nullptr;
  for (const SlotReader::Use& use : uses) {
    if (!IsBarrier(use.buffer)) continue;
    if (use.changes && !use.always_at_slot) {
      return "the index of mbarrier " + std::string(use.buffer->name) +
             " is neither a constant nor the number of iterations before, modulo that of its "
             "mbarriers";
    }
    if (!first) first = &use;
    if (use.changes != first->changes || (use.changes && use.Slots() != first->Slots())) {
      return Counted(*first) + ", " + Counted(use);
    }
  }
  out->slots = first->Slots();
  for (const SlotReader::Use& use : uses) {
    if (use.always_at_slot && use.Slots() == out->slots) out->buffers.push_back(use.buffer);
  }
  return "";
}

/*! Gives the mbarrier of the one slot its arrival count. All slots have to have the same count:
 * says why they have not, or "". */
std::string FoldArrivals(const Folder& folder, Rings* rings) {
  auto known = rings->block->annotations.find(kBarrierInit);
  if (known == rings->block->annotations.end())
    return "";  // the proof refuses mbarriers without a count
  auto arrivals = (*known).second.cast<Map<Var, Array<IntImm>>>();
  for (const Var& ring : rings->buffers) {
    if (!IsBarrier(ring) || !arrivals.count(ring)) continue;
    const Array<IntImm> of_slots = arrivals.at(ring);
    for (const IntImm& n : of_slots) {
      if (ToInt(n) == ToInt(of_slots[0])) continue;
      return "the mbarriers of " + std::string(ring->name) + " take different numbers of arrivals";
    }
    arrivals.Set(folder.OneOf(ring), {of_slots[0]});
  }
  rings->block.CopyOnWrite()->annotations.Set(kBarrierInit, arrivals);
  return "";
}

}  // namespace

std::optional<Rings> FoldRings(const Stmt& function_body, const ForNode* loop, const Views& views,
                               const SBlockNode* block) {
  const IterationCount count = CountIterations(function_body, loop);
  if (!count.unknown.empty()) return std::nullopt;
  LastArrivals last(loop);
  last(function_body);
  LateArrivals late(loop, count, !last.found.empty());
  const Stmt body = late.Move(NameInliner().Mutate(loop->body));
  SlotReader reader(loop, count);
  reader(body);
  const bool has_ring =
      AnyOf(reader.uses, [](const SlotReader::Use& u) { return IsBarrier(u.buffer) && u.changes; });
  if (!has_ring) return std::nullopt;
  Rings rings;
  rings.late = !late.found.empty();
  rings.why = ChooseRings(reader.uses, &rings);
  if (rings.why.empty() && !last.found.empty() && !late.AreLast(last.found)) {
    rings.why = "the arrivals behind the loop are not those that its last iteration lacks";
  }
  if (!rings.why.empty()) return rings;
  for (const Var& ring : rings.buffers) {
    const bool is_viewed =
        AnyOf(views.all, [&](const Var& view) { return views.RootOf(view).same_as(ring); });
    const size_t behind =
        CountIf(last.found, [&](const auto& a) { return a.barrier.same_as(ring); });
    const bool outside =
        CountMentions(function_body, ring) > CountMentions(loop->body, ring) + behind;
    if (!is_viewed && !outside) continue;
    rings.why = std::string(ring->name) +
                (is_viewed ? " has another name" : " is used outside of the loop");
    return rings;
  }
  Folder folder(rings.buffers);
  for (const Var& ring : rings.buffers) rings.folded.push_back(folder.OneOf(ring));
  rings.loop = GetRef<For>(loop);
  rings.loop.CopyOnWrite()->body = folder.Mutate(body);
  rings.function_body = LoopReplacer(loop, rings.loop, last.found).Mutate(function_body);
  rings.block = GetRef<SBlock>(block);
  rings.why = FoldArrivals(folder, &rings);
  return rings;
}

}  // namespace tl
