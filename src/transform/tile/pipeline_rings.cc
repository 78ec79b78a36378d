#include "pipeline_rings.h"

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../op/thread_range.h"
#include "../../op/wgmma_wait.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "pipeline.h"
#include "pipeline_bindings.h"

namespace tl {
namespace {

/*! A mutator that knows the values of integer names. */
class NamesInliner : public Substituter {
 protected:
  using Substituter::Mutate_;
  Stmt Mutate_(const BindNode* op) override {
    const Expr value = Mutate(op->value);
    if (!IsPureInteger(value)) return Default<Stmt>(op);
    map[op->var.get()] = value;
    return MakeSeq({});
  }
};

bool IsArrival(const Expr& call) {
  return IsCallTo(call, kMbarrierArrive) || IsCallTo(call, kMbarrierArriveExpectTx);
}

/*! Arrivals at the slot of the iteration before, as it would make them itself. */
class AtSlotBefore : public StmtExprMutator {
 public:
  AtSlotBefore(Expr count, Analyzer* analyzer) : count_(std::move(count)), analyzer_(analyzer) {}
  bool only_arrivals = true;

 protected:
  using StmtExprMutator::Mutate_;
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

/*! Puts arrivals for the iteration before where that iteration ends. */
class LateArrivals : public StmtExprMutator {
 public:
  LateArrivals(const ForNode* loop, const IterationCount& count) : count_(count.Of(loop)) {
    for (const ForNode* outer : count.around) analyzer_.BindLoop(outer);
    analyzer_.BindLoop(loop);
  }
  bool found = false;

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) override {
    if (op->attr_key != kThreadRange || !IsApart(op)) return Default<Stmt>(op);
    std::vector<Stmt> steps, late;
    int64_t started = 0;
    bool waited = false;  // for all MMAs of the iteration before
    for (const Stmt& s : FlatSeq(op->body)) {
      const CallNode* call = AsTileOp(s);
      if (call && IsGemm(call)) started += TileOpIntAttr(call, kWgWait, 0) == kNobodyWaits;
      if (call && IsCallTo(GetRef<Expr>(call), kWgmmaWait)) {
        waited |= ToInt(call->args[0]) <= started;
      }
      const Stmt arrival = AtEndOfIteration(s);
      if (!arrival.defined()) {
        steps.push_back(s);
        continue;
      }
      if (waited) late.push_back(MakeEvaluate(CallOp(kWgmmaWait, {MakeInt(0)}), s->span));
      late.push_back(arrival);
    }
    found |= !late.empty();
    steps.insert(steps.end(), late.begin(), late.end());
    return MakeAttr(op->node, op->attr_key, op->value, MakeSeq(steps));
  }

 private:
  /*! `if this is not the first iteration: arrive at the slot before`, at its end; undefined for
   * other statements. */
  Stmt AtEndOfIteration(const Stmt& s) {
    const Guarded guarded = SplitGuard(s);
    if (!guarded.condition.defined()) return Stmt();
    const Expr is_later = MakeInt(count_->dtype(), 0) < count_;
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

  const Expr count_;
  Analyzer analyzer_;
};

/*! How a loop's body indexes the first dimension of mbarriers and shared buffers. */
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
  using StmtExprVisitor::Visit_;
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
    auto use = std::find_if(uses.begin(), uses.end(),
                            [&](const Use& u) { return u.buffer.same_as(buffer); });
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

/*! Points accesses of rings at their one slot. */
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
  using StmtExprMutator::Mutate_;
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

class LoopReplacer : public StmtExprMutator {
 public:
  LoopReplacer(const ForNode* from, For to) : from_(from), to_(std::move(to)) {}

 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const ForNode* op) override { return op == from_ ? Stmt(to_) : Default<Stmt>(op); }

 private:
  const ForNode* from_;
  const For to_;
};

std::string Counted(const SlotReader::Use& use) {
  return std::string(IsBarrier(use.buffer) ? "mbarrier " : "") + std::string(use.buffer->name) +
         " has " + (use.Slots() == 1 ? "one slot" : std::to_string(use.Slots()) + " slots");
}

/*! The buffers that are rings, with mbarriers of one number of slots. */
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

/*! Each slot's mbarrier takes as many arrivals as the one slot's. */
std::string FoldArrivals(const Folder& folder, Rings* rings) {
  auto known = rings->block->annotations.find(kBarrierInit);
  if (known == rings->block->annotations.end()) return "";  // the proof will not find its own
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
  LateArrivals late(loop, count);
  const Stmt body = late.Mutate(NamesInliner().Mutate(loop->body));
  SlotReader reader(loop, count);
  reader(body);
  const bool has_ring =
      std::any_of(reader.uses.begin(), reader.uses.end(),
                  [](const SlotReader::Use& u) { return IsBarrier(u.buffer) && u.changes; });
  if (!has_ring) return std::nullopt;
  Rings rings;
  rings.late = late.found;
  rings.why = ChooseRings(reader.uses, &rings);
  if (!rings.why.empty()) return rings;
  for (const Var& ring : rings.buffers) {
    const bool is_viewed = std::any_of(views.all.begin(), views.all.end(), [&](const Var& view) {
      return views.RootOf(view).same_as(ring);
    });
    const bool outside = CountMentions(function_body, ring) > CountMentions(loop->body, ring);
    if (!is_viewed && !outside) continue;
    rings.why = std::string(ring->name) +
                (is_viewed ? " has another name" : " is used outside of the loop");
    return rings;
  }
  Folder folder(rings.buffers);
  for (const Var& ring : rings.buffers) rings.folded.push_back(folder.OneOf(ring));
  rings.loop = GetRef<For>(loop);
  rings.loop.CopyOnWrite()->body = folder.Mutate(body);
  rings.function_body = LoopReplacer(loop, rings.loop).Mutate(function_body);
  rings.block = GetRef<SBlock>(block);
  rings.why = FoldArrivals(folder, &rings);
  return rings;
}

}  // namespace tl
