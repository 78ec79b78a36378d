/*!
 * AddWrapperForSingleBufStore: accesses of single elements of fragments become loops that layout
 * inference sees.
 *
 * In:  a tile program under thread_extent attributes.
 * Out: the same; a store outside of T.Parallel that writes or reads a fragment stands in a parallel
 * loop of one iteration that every thread of its range runs (`parallel_loop_layout`). A condition,
 * an extent or another value outside of T.Parallel that reads a fragment, as in `if mask[k] != 0`,
 * is such a store to a variable of the thread, and the variable. The variable of a `while` is
 * stored again at the end of the body and in front of each `continue`.
 * Establishes: fragments are accessed by tile operators and parallel loops alone. Stores of shared
 * memory that read no fragment stay: all threads run them.
 * Refuses nothing.
 */

#include "../../analysis/effects.h"
#include "../../layout/inverse.h"
#include "../../op/operator.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {
namespace {

/*! Runs a statement in front of what goes on with the next iteration of a loop. */
class BeforeContinues : public StmtExprMutator {
 public:
  explicit BeforeContinues(const Stmt& s) : statement_(s) {}

 protected:
  Stmt Mutate_(const SeqStmtNode* op) final { return MakeSeq({Default<Stmt>(op)}); }
  Stmt Mutate_(const ContinueNode* op) final { return MakeSeq({statement_, GetRef<Stmt>(op)}); }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    return IsContinue(s) ? MakeSeq({statement_, s}) : s;
  }
  // A `continue` in an inner loop goes on with that one.
  Stmt Mutate_(const ForNode* op) final { return GetRef<Stmt>(op); }
  Stmt Mutate_(const WhileNode* op) final { return GetRef<Stmt>(op); }

 private:
  Stmt statement_;
};

class Wrapper : public StmtExprMutator {
 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    return scope_.Within(op, [&] { return Default<Stmt>(op); });
  }
  Stmt Mutate_(const SBlockNode* op) final {
    const SBlock block = Default<Stmt>(op).as_or_throw<SBlock>();
    if (op->alloc_buffers.empty()) return block;
    return WithBuffers(block, std::exchange(variables_, {}));
  }
  Stmt Mutate_(const SeqStmtNode* op) final { return MakeSeq({Default<Stmt>(op)}); }
  Stmt Mutate_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) return GetRef<Stmt>(op);
    For loop = Default<Stmt>(op).as_or_throw<For>();
    std::vector<Stmt> out;
    for (Expr* e : {&loop.CopyOnWrite()->min, &loop.CopyOnWrite()->extent}) {
      *e = Stored(*e, op->span, &out);
    }
    out.push_back(loop);
    return MakeSeq(out);
  }
  Stmt Mutate_(const IfThenElseNode* op) final {
    IfThenElse branch = Default<Stmt>(op).as_or_throw<IfThenElse>();
    std::vector<Stmt> out;
    branch.CopyOnWrite()->condition = Stored(op->condition, op->span, &out);
    out.push_back(branch);
    return MakeSeq(out);
  }
  Stmt Mutate_(const WhileNode* op) final {
    While loop = Default<Stmt>(op).as_or_throw<While>();
    std::vector<Stmt> out;
    const Expr condition = Stored(op->condition, op->span, &out);
    if (out.empty()) return loop;
    WhileNode* changed = loop.CopyOnWrite();
    changed->condition = condition;
    changed->body = MakeSeq({BeforeContinues(out[0]).Mutate(changed->body), out[0]});
    out.push_back(loop);
    return MakeSeq(out);
  }
  Stmt Mutate_(const BindNode* op) final {
    std::vector<Stmt> out;
    out.push_back(MakeBind(op->var, Stored(op->value, op->span, &out), op->span));
    return MakeSeq(out);
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const auto* call = op->value.as<CallNode>();
    if (!call || OperatorOf(s) || !TouchesFragment(s)) return s;
    std::vector<Stmt> out;
    Call changed = GetRef<Call>(call);
    changed.CopyOnWrite()->args = call->args.Map(
        [&](const Expr& e) { return e->ty.as<PrimTypeNode>() ? Stored(e, op->span, &out) : e; });
    out.push_back(MakeEvaluate(changed, op->span));
    return MakeSeq(out);
  }
  Stmt Mutate_(const BufferStoreNode* op) final {
    const Stmt store = GetRef<Stmt>(op);
    return TouchesFragment(store) ? Wrapped(store) : store;
  }

 private:
  static bool TouchesFragment(const Stmt& s) {
    const BufferUse use = CollectBufferUse(s);
    return AnyOf(use.reads, IsFragment) || AnyOf(use.writes, IsFragment);
  }

  Stmt Wrapped(const Stmt& store) const {
    const Fragment layout = MakeReplicatedFragment({1}, scope_.Threads(store->span).threads);
    return MakeFor(MakeVar("u"), MakeInt(1), ForKind::kParallel, store, store->span,
                   {{"parallel_loop_layout", layout}});
  }

  /*! The value itself; or, if it reads a fragment, a variable that it has been stored to. */
  Expr Stored(const Expr& value, const Span& span, std::vector<Stmt>* before) {
    if (!TouchesFragment(MakeEvaluate(value, span))) return value;
    variables_.push_back(MakeBuffer("element", value->dtype(), {MakeInt(1)}, "local.var"));
    const Array<Expr> at = {MakeInt(0)};
    before->push_back(Wrapped(MakeStore(variables_.back(), value, at, span)));
    return LoadOf(variables_.back(), at);
  }

  KernelScope scope_;
  std::vector<Var> variables_;
};

PrimFunc AddWrapperForSingleBufStore(PrimFunc f) { return WithBody(f, Wrapper().Mutate(f->body)); }

TL_REGISTER_PASS(AddWrapperForSingleBufStore);

}  // namespace
}  // namespace tl
