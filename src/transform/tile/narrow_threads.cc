/*!
 * NarrowThreads: each operator gets the threads that reach it.
 *
 * In:  a tile program under thread_extent attributes, as traced.
 * Out: the same, in which
 *      - a branch that consecutive whole warps take, and that has work for several threads, is a
 *        `tl.thread_range` (kOfBranch): operators in it work with those threads;
 *      - a copy by TMA that one thread alone reaches is issued by that one;
 *      - an atomic operation on one element is each thread's own, where values differ by thread or
 *        one thread alone reaches it;
 *      - a store at block level that depends on the element that it writes is made by one thread;
 *      - a store of elements of each thread, of what it reads from other places of that memory, is
 *        two statements, so that there is a place for a barrier;
 *      - a reduction over a warp combines the lanes that get there, and a mask of all lanes is that
 *        of the target's warp.
 * Establishes: all threads of the block, or of the innermost range, reach each tile operator and
 * parallel loop together, and agree on its operands.
 * Refuses (ValueError): operators, and stores to fragments, in other control that threads take
 * apart; operands that differ by thread; an element that each thread would change from a value of
 * its own; reductions by lanes that data choose; shuffles and votes of lanes that do not get there;
 * matches in warps of more than 32 lanes.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include <utility>

#include "../../analysis/effects.h"
#include "../../op/call_attrs.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../op/tma_copy.h"
#include "../../op/tma_reduce.h"
#include "../../op/views.h"
#include "../../target/target.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "reaching_threads.h"
#include "thread_texts.h"

namespace tl {
namespace {

/*! Work for several threads. */
bool IsWork(const Stmt& s) {
  const auto* loop = s.as<ForNode>();
  return AsTileOp(s) || (loop && loop->kind == ForKind::kParallel);
}

/*! Whether a statement has work that no range of threads has yet. */
bool HasWork(const Stmt& s) {
  struct Finder : StmtExprVisitor {
    bool found = false;
    void Visit_(const AttrStmtNode* op) final {
      if (op->attr_key != kThreadRange) Default(op);
    }
    void Visit_(const EvaluateNode* op) final { found |= IsWork(GetRef<Stmt>(op)); }
    void Visit_(const ForNode* op) final {
      found |= IsWork(GetRef<Stmt>(op));
      if (!found) Default(op);
    }
    void Visit_(const BufferStoreNode* op) final { found |= IsFragment(op->buffer); }
  } finder;
  finder(s);
  return finder.found;
}

/*! A call that lanes of a warp, or threads of the block, make together. */
bool IsMeeting(const CallNode* call) {
  const IntrinsicEffects* e = EffectsOf(call);
  return e && !e->schedules && (e->meets == ThreadScope::kLanes || e->meets == ThreadScope::kBlock);
}

bool HasMeeting(const ObjectRef& node) {
  return HasNode<CallNode>(node, [&](const CallNode* op) { return IsMeeting(op); });
}

/*! A vote is about the lanes that call it, so lanes that the block does not have are not missed. A
 * shuffle would read one of them. */
bool IsVote(const CallNode* call) {
  const std::initializer_list<const char*> votes = {kAnySync, kAllSync, kBallotSync, kMatchAnySync,
                                                    kMatchAllSync};
  return AnyOf(votes, [&](const char* op) { return IsCallTo(call, op); });
}

/*! One walk over a kernel. */
class Walk : public StmtExprMutator {
 public:
  Walk(const Stmt& kernel, int64_t warp_threads, bool acts)
      : acts_(acts),
        warp_threads_(warp_threads),
        views_(kernel),
        block_(kernel, Uniformity::Asked::kVisibly, warp_threads) {
    if (acts && HasMeeting(kernel)) {
      lanes_.emplace(kernel, Uniformity::Asked::kVisiblyInWarps, warp_threads);
    }
    level_ = block_.Block();
  }
  /*! Branches have become ranges; what is uniform in them is to be asked again. */
  bool changed = false;

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != kThreadRange) return Default<Stmt>(op);
    Enter([&](ReachingThreads* reach) { reach->EnterRange(op); });
    std::optional<ThreadSet> outside = std::exchange(level_, block_.Here());
    Stmt result = Default<Stmt>(op);
    level_ = std::move(outside);
    Leave();
    return result;
  }

  Stmt Mutate_(const IfThenElseNode* op) final {
    span_ = op->span;
    // Later passes see the threads of a condition on these alone.
    const auto* both = op->condition.as<AndNode>();
    if (both && !op->else_case && HasWork(op->then_case) && block_.IsMixed(op->condition)) {
      return Mutate(MakeIf(both->a, MakeIf(both->b, op->then_case, op->span), op->span));
    }
    auto n = make_object<IfThenElseNode>(*op);
    n->condition = Mutate(op->condition);
    n->then_case = Branch(op, op->then_case, true);
    if (op->else_case) n->else_case = Branch(op, *op->else_case, false);
    return IfThenElse(n);
  }

  Stmt Mutate_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) {
      return acts_ ? OfWholeWarps(Work(GetRef<Stmt>(op))) : GetRef<Stmt>(op);
    }
    span_ = op->span;
    auto n = make_object<ForNode>(*op);
    n->min = Mutate(op->min);
    n->extent = Mutate(op->extent);
    Enter([&](ReachingThreads* reach) { reach->EnterLoop(op); });
    vectors_ += op->kind == ForKind::kVectorized;
    n->body = Mutate(op->body);
    vectors_ -= op->kind == ForKind::kVectorized;
    Leave();
    return For(n);
  }
  Stmt Mutate_(const WhileNode* op) final {
    span_ = op->span;
    Enter([&](ReachingThreads* reach) { reach->EnterLoop(op); });
    Stmt loop = Default<Stmt>(op);
    Leave();
    return loop;
  }

  Stmt Mutate_(const BindNode* op) final {
    block_.Note(op);
    if (lanes_) lanes_->Note(op);
    span_ = op->span;
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const EvaluateNode* op) final {
    span_ = op->span;
    if (acts_ && IsWork(GetRef<Stmt>(op))) return Work(GetRef<Stmt>(op));
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const BufferStoreNode* op) final {
    span_ = op->span;
    if (!acts_) return GetRef<Stmt>(op);
    if (IsFragment(op->buffer) && !IsForAll())
      RefuseControl(GetRef<Stmt>(op), block_, warp_threads_);
    const Stmt store = Default<Stmt>(op);
    if (DependsOnItself(op)) return ByOneThread(op, store);
    return ReadsOtherPlaces(op) ? ReadFirst(store) : store;
  }
  Stmt Mutate_(const SeqStmtNode* op) final { return MakeSeq({Default<Stmt>(op)}); }

  Expr Mutate_(const CallNode* op) final {
    if (lanes_ && IsIfThenElse(op)) {
      auto n = make_object<CallNode>(*op);
      const Expr yes = Under(op->args[0], true, op->args[1]);
      n->args = {Mutate(op->args[0]), yes, Under(op->args[0], false, op->args[2])};
      return Call(n);
    }
    if (lanes_ && IsCallTo(op, kAllReduce)) return Reduction(op);
    if (lanes_ && IsOfLanes(op)) CheckLanes(op);
    const Expr call = Default<Expr>(op);
    return acts_ && IsOfLanes(op) ? OfAllLanes(call.as_or_throw<Call>()) : call;
  }

  Expr Mutate_(const AndNode* op) final {
    if (!lanes_) return Default<Expr>(op);
    const Expr left = Mutate(op->a);
    return left && Under(op->a, true, op->b);
  }
  Expr Mutate_(const OrNode* op) final {
    if (!lanes_) return Default<Expr>(op);
    const Expr left = Mutate(op->a);
    return left || Under(op->a, false, op->b);
  }

 private:
  /*! An operand that is evaluated where a condition has a value: its lanes are those of a branch.
   */
  Expr Under(const Expr& condition, bool value, const Expr& operand) {
    const Stmt branch = MakeIf(condition, MakeEvaluate(operand, span_), span_);
    Enter([&](ReachingThreads* reach) { reach->EnterBranch(branch.as<IfThenElseNode>(), value); });
    Expr result = Mutate(operand);
    Leave();
    return result;
  }

  /*! All threads of the innermost range, or of the block, are here. */
  bool IsForAll() const { return block_.Here() == level_; }

  template <typename F>
  void Enter(F enter) {
    enter(&block_);
    if (lanes_) enter(&*lanes_);
  }
  void Leave() {
    block_.Leave();
    if (lanes_) lanes_->Leave();
  }

  Stmt Branch(const IfThenElseNode* op, const Stmt& body, bool value) {
    Enter([&](ReachingThreads* reach) { reach->EnterBranch(op, value); });
    const std::optional<ThreadSet> here = block_.Here();
    Stmt result = here && here->Size() == 0 && HasWork(body) ? MakeSeq({}) : Mutate(body);
    Leave();
    const std::optional<ThreadRange> range = here ? here->AsWarps(warp_threads_) : std::nullopt;
    if (!range || here == level_ || !HasWork(result)) return result;
    changed = true;
    return MakeAttr(Array<Any>{range->first, range->threads}, kThreadRange, MakeInt(kOfBranch),
                    result);
  }

  /*! A tile operator or a parallel loop. */
  Stmt Work(const Stmt& s) {
    if (const CallNode* atomic = AsTileOp(s, kAtomic); atomic && IsOfEach(atomic)) {
      return OfElement(atomic, s->span);
    }
    if (!IsForAll()) {
      const bool one = block_.Here() && block_.Here()->Size() == 1;
      if (one && (AsTileOp(s, kTmaCopy) || AsTileOp(s, kCopyCluster))) {
        return ByThisThread(s);
      }
      if (!OperatorOf(s)->IsOfThread()) RefuseControl(s, block_, warp_threads_);
    }
    if (const auto* loop = s.as<ForNode>()) {
      CheckExtents(loop);
    } else {
      CheckOperands(s);
    }
    return s;
  }

  static Stmt ByThisThread(const Stmt& s) {
    return MakeEvaluate(WithTileOpAttr(AsTileOp(s), kByOneThread, int64_t(1)), s->span);
  }

  void CheckExtents(const ForNode* loop) const {
    for (const ForNode* l = loop; l && l->kind == ForKind::kParallel; l = l->body.as<ForNode>()) {
      if (!block_.IsUniform(l->min) || !block_.IsUniform(l->extent)) RefuseExtents(loop->span);
    }
  }

  void CheckOperands(const Stmt& s) const {
    const CallNode* call = AsTileOp(s);
    const auto agreed = [&](const Expr& e) { return block_.IsUniform(e); };
    for (const Expr& arg : call->args) {
      const auto* region = arg.as<TensorRegionNode>();
      const bool same =
          region ? AllOf(region->region,
                         [&](const Range& r) { return agreed(r->min) && agreed(r->extent); })
                 : agreed(arg);
      if (!same && !OperatorOf(s)->IsOfThread()) RefuseOperand(s, arg);
    }
  }

  static bool IsOneElement(const Expr& e) {
    const auto* region = e.as<TensorRegionNode>();
    return !region || AllOf(region->region, [](const Range& r) { return IsConst(r->extent, 1); });
  }

  /*! An atomic operation on one element that is plainly each thread's own: it has a value of its
   * own, another element, or is alone. */
  bool IsOfEach(const CallNode* atomic) const {
    const TileRegion dst = TileRegion::From(atomic->args[0]);
    if (!IsOneElement(atomic->args[0]) || !IsOneElement(atomic->args[1])) return false;
    if (IsFragment(dst.buffer) || TileOpIntAttr(atomic, "use_tma", 0)) return false;
    if (block_.Here() && block_.Here()->Size() == 1) return true;
    const Array<Expr> mins = dst.Mins();
    return !block_.IsUniform(ValueOf(atomic)) ||
           AnyOf(mins, [&](const Expr& e) { return !block_.IsUniform(e); });
  }
  static Expr ValueOf(const CallNode* atomic) {
    if (!atomic->args[1].as<TensorRegionNode>()) return atomic->args[1];
    const TileRegion src = TileRegion::From(atomic->args[1]);
    return LoadOf(src.buffer, src.Mins());
  }
  static Stmt OfElement(const CallNode* atomic, const Span& span) {
    const TileRegion dst = TileRegion::From(atomic->args[0]);
    return AtomicOnElement(atomic, dst.buffer, dst.Mins(), ValueOf(atomic), span);
  }

  /*! A store at block level to memory that threads share, of a value that the element had a part
   * in: threads that make it one after the other do not make the same. */
  bool DependsOnItself(const BufferStoreNode* op) const {
    if (!IsShared(op->buffer) && !IsGlobal(op->buffer)) return false;
    const std::optional<ThreadSet>& here = block_.Here();
    if (!here || here->Size() < 2 || (!IsForAll() && !here->AsWarps(warp_threads_))) return false;
    const bool loads = HasNode<TensorLoadNode>(op->value, [&](const TensorLoadNode* load) {
      const Var source = load->source.as_or_throw<Var>();
      return views_.RootOf(source).same_as(views_.RootOf(op->buffer)) &&
             !(source.same_as(op->buffer) && AreApart(load->indices, op->indices));
    });
    return loads && AllOf(op->indices, [&](const Expr& i) { return block_.IsUniform(i); });
  }
  static bool AreApart(const Array<Expr>& a, const Array<Expr>& b) {
    Analyzer analyzer;
    for (size_t i = 0; i < a.size(); ++i) {
      if (analyzer.CanProve(NotEqualOf(a[i], b[i]))) return true;
    }
    return false;
  }

  /*! Threads that run it together read elements of the memory that they write, at other places:
   * `S[tx] = S[63 - tx]`. */
  bool ReadsOtherPlaces(const BufferStoreNode* op) const {
    if (vectors_ > 0 || (!IsShared(op->buffer) && !IsGlobal(op->buffer))) return false;
    const std::optional<ThreadSet>& here = block_.Here();
    if (!here || here->Size() < 2 || (!IsForAll() && !here->AsWarps(warp_threads_))) return false;
    bool found = false, has_fragment = false;
    ForEachIn<TensorLoadNode>(op->value, [&](const TensorLoadNode* load) {
      const Var source = load->source.as_or_throw<Var>();
      has_fragment |= IsFragment(source);
      found |= Reads(GetRef<Expr>(load), op->buffer) &&
               !(source.same_as(op->buffer) && ffi::StructuralEqual()(load->indices, op->indices));
    });
    for (const Expr& index : op->indices) found |= Reads(index, op->buffer);
    // A value of a fragment becomes a loop, whose iterations are compared as such.
    return found && !has_fragment;
  }
  bool Reads(const Expr& e, const Var& memory) const {
    return HasNode<TensorLoadNode>(e, [&](const TensorLoadNode* load) {
      return views_.IsSameMemory(load->source.as_or_throw<Var>(), memory);
    });
  }
  /*! All of them read before one writes: a statement has no place for the barrier that ThreadSync
   * puts between two. */
  Stmt ReadFirst(const Stmt& s) const {
    const auto* store = s.as<BufferStoreNode>();
    std::vector<Stmt> out;
    const auto named = [&](const Expr& e) {
      const Var value = MakeVar("value", e->dtype());
      out.push_back(MakeBind(value, e, s->span));
      return Expr(value);
    };
    const Expr value = named(store->value);
    const Array<Expr> indices =
        store->indices.Map([&](const Expr& i) { return Reads(i, store->buffer) ? named(i) : i; });
    out.push_back(MakeStore(store->buffer, value, indices, s->span));
    return MakeSeq(out);
  }

  Stmt ByOneThread(const BufferStoreNode* op, const Stmt& store) const {
    // What threads find out together is the same in all of them.
    if (HasMeeting(op->value)) return store;
    if (!block_.IsUniform(op->value)) RefuseRace(op);
    const ThreadSet& here = *block_.Here();
    const Expr thread = ThreadIndexOf(here);
    return MakeIf(EqualOf(thread, MakeInt(thread->dtype(), here.First())), store, op->span);
  }

  /*! A parallel loop, which whole warps run: what it does over all lanes is over those of the
   * target's warp. */
  Stmt OfWholeWarps(const Stmt& loop) const {
    struct Widen : StmtExprMutator {
      explicit Widen(const Walk* w) : walk(w) {}
      Expr Mutate_(const CallNode* op) final {
        Call call = Default<Expr>(op).as_or_throw<Call>();
        if (IsOfLanes(op)) return walk->OfAllLanes(call);
        if (IsCallTo(call, kAllReduce) && IsConst(op->args[1], kTracedLanes)) {
          call.CopyOnWrite()->args.Set(1, MakeInt(walk->warp_threads_));
        }
        return call;
      }
      const Walk* walk;
    };
    return warp_threads_ == kTracedLanes ? loop : Widen(this).Mutate(loop);
  }

  /*! Over the lanes that get there. */
  Expr Reduction(const CallNode* op) {
    if (!IsConst(op->args[1], kTracedLanes)) return Default<Expr>(op);
    if (!lanes_->Here()) RefuseLanes(op, *lanes_, span_);
    const Expr mask = LanesOf(*lanes_->Here());
    if (const auto* lanes = mask.as<IntImmNode>();
        lanes && lanes->value == AllLanes(warp_threads_)->value) {
      Call call = Default<Expr>(op).as_or_throw<Call>();
      call.CopyOnWrite()->args.Set(1, MakeInt(warp_threads_));
      return call;
    }
    return CallOp(kReduceLanes, {op->args[0], mask, Mutate(op->args[3])}, op->ty);
  }

  /*! A program without a mask means all lanes of the target's warp, and votes of those that the
   * block has. */
  Expr OfAllLanes(Call call) const {
    CheckWidth(call);
    const bool is_match = IsCallTo(call, kMatchAnySync) || IsCallTo(call, kMatchAllSync);
    if (is_match && warp_threads_ != kTracedLanes) {
      ThrowAt(span_, "ValueError",
              "found a match of lanes for a target with warps of " + std::to_string(warp_threads_) +
                  " threads, whose result has 32 bits, wanted warps of 32; compare with the value "
                  "of a lane by T.shfl_sync, and vote by T.ballot_sync, which gives 64 bits");
    }
    if (!IsConst(call->args[0], kTracedMask)) return call;
    const Expr all = AllLanes(warp_threads_);
    const Expr lanes = lanes_ && IsVote(call.get()) ? LanesOf(lanes_->Block()) : all;
    if (warp_threads_ != kTracedLanes || !ffi::StructuralEqual()(lanes, all)) {
      call.CopyOnWrite()->args.Set(0, lanes);
    }
    return call;
  }

  /*! Lanes are numbered within groups of a warp. */
  void CheckWidth(const Call& call) const {
    const auto width = AsShuffle(call) ? AsInt(call->args[3]) : std::nullopt;
    if (!width || *width <= warp_threads_) return;
    ThrowAt(
        span_, "ValueError",
        "found a shuffle with width=" + std::to_string(*width) + " for a target with warps of " +
            std::to_string(warp_threads_) +
            " threads, wanted at most as many; exchange values of other warps by shared memory");
  }

  /*! The thread's number in its block. */
  static Expr ThreadIndexOf(const ThreadSet& threads) {
    Expr index = MakeInt(0);
    for (size_t i = threads.axes().size(); i-- > 0;) {
      const Axis& axis = threads.axes()[i];
      if (axis.extent > 1) index = index * axis.extent + axis.var;
    }
    return index;
  }

  /*! The lanes of its warp, by the thread's number. */
  Expr LanesOf(const ThreadSet& here) const {
    const int64_t warps = (here.BlockSize() + warp_threads_ - 1) / warp_threads_;
    const Expr thread = ThreadIndexOf(here);
    Expr mask;
    for (int64_t w = 0; w < warps; ++w) {
      const uint64_t lanes = here.LanesOf(w, warp_threads_);
      if (lanes == 0) continue;
      const IntImm own = LaneMask(lanes, warp_threads_);
      if (const auto* known = mask.as<IntImmNode>(); known && known->value == own->value) continue;
      const Expr warp = FloorDivOf(thread, warp_threads_);
      mask = mask.defined() ? IfThenElseOf(EqualOf(warp, MakeInt(warp->dtype(), w)), own, mask)
                            : Expr(own);
    }
    return mask.defined() ? mask : Expr(AllLanes(warp_threads_));
  }

  /*! The lanes that a shuffle or a vote names get there. */
  void CheckLanes(const CallNode* op) const {
    const std::optional<int64_t> mask = AsInt(op->args[0]);
    if (!mask || !lanes_->Here()) return;
    const ThreadSet& here = *lanes_->Here();
    const auto of_warp = static_cast<int64_t>(~uint64_t(0) >> (64 - warp_threads_));
    for (int64_t w = 0; w * warp_threads_ < here.BlockSize(); ++w) {
      const auto lanes = static_cast<int64_t>(here.LanesOf(w, warp_threads_));
      const auto block = static_cast<int64_t>(lanes_->Block().LanesOf(w, warp_threads_));
      // A barrier does not wait for lanes that the block does not have, nor does a vote of all.
      const bool names_all = *mask == kTracedMask;
      const int64_t named = names_all ? ~int64_t(0) : static_cast<uint32_t>(*mask);
      const bool of_block = EffectsOf(op)->orders || (names_all && IsVote(op));
      const int64_t wanted = named & of_warp & (of_block ? block : ~int64_t(0));
      if (lanes && (wanted & ~lanes)) {
        RefuseMask(op, here, w, warp_threads_, span_);
      }
    }
  }

  // What is traced of a warp as a whole, before the target is known: its lanes, and their mask.
  static constexpr int64_t kTracedLanes = 32, kTracedMask = 0xFFFFFFFF;

  const bool acts_;
  const int64_t warp_threads_;
  const Views views_;
  ReachingThreads block_;
  std::optional<ReachingThreads> lanes_;
  int vectors_ = 0;  // vectorised loops around
  /*! The threads of the innermost range around, or of the block. */
  std::optional<ThreadSet> level_;
  Span span_;
};

PrimFunc NarrowThreads(PrimFunc f) {
  return ForEachKernel(f, [warp = TargetOf(f).warp_threads](const AttrStmtNode* op) {
    Stmt kernel = GetRef<Stmt>(op);
    for (bool changed = true; changed;) {
      Walk walk(kernel, warp, false);
      kernel = walk.Mutate(kernel);
      changed = walk.changed;
    }
    return Walk(kernel, warp, true).Mutate(kernel);
  });
}

TL_REGISTER_PASS(NarrowThreads);

}  // namespace
}  // namespace tl
