/*!
 * SpreadInstances: several warp groups run one body of code, each with tiles of its own.
 *
 * In:  a flat thread program. `T.ws(2, 3, each=True)` is so far what its first group does: a branch
 *      that this group takes, and in it a loop over the groups (`tl.instances`, which has the
 *      number of the first one).
 * Out: the branch that all these groups take. In it, the loop is its body, and its variable the
 *      number of the thread's group among them: `s = warp_group - 2`. Threads have the numbers of
 *      the first group's, `t = tx - s * 128`, also in what names outside of the branch stand for:
 *      those of the thread alone are replaced, others are bound anew in the branch.
 *      To the numbers of named barriers s is added: ThreadSync has left the next ones free.
 * Establishes: code that stands once. All passes in front have seen one warp group's threads; a
 * body for each group would be as many times as long, and where roles do not fit in the instruction
 * cache, their warps wait for instructions.
 * Refuses nothing. That the groups' tiles are apart is the program's affair, as between other
 * ranges.
 */
#include "../../analysis/thread_set.h"
#include "../../layout/int_program.h"
#include "../../op/intrinsics.h"
#include "../../target/mma.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "../instances.h"
#include "thread_names.h"

namespace tl {
namespace {

/*! The value that a shuffle gives to the warp, for another expression itself. */
Expr OfLane(const Expr& e) { return IsCallTo(e, kShuffleSync) ? e.as<CallNode>()->args[1] : e; }

/*! The body for all groups: loop variable, threads' numbers, barriers. */
class BodySpreader : public Substituter {
 public:
  explicit BodySpreader(const Var& instance) : instance_(instance) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    if (!IsInstances(op)) return Default<Stmt>(op);
    map[op->loop_var.get()] = instance_;
    return Mutate(op->body);
  }

  Expr Mutate_(const CallNode* op) final {
    const Expr call = Default<Expr>(op);
    if (!IsCallTo(call, kSyncPartial) && !IsCallTo(call, kNamedBarrierArrive)) return call;
    auto own = make_object<CallNode>(*call.as<CallNode>());
    own->args.Set(0, own->args[0] + instance_);
    return Call(own);
  }

 private:
  const Var instance_;
};

/*! Spreads the branches of a kernel. */
class InstanceSpreader : public StmtExprMutator {
 public:
  InstanceSpreader(const Var& thread, int64_t threads, int64_t warp_threads)
      : thread_(thread), threads_(threads), warp_threads_(warp_threads) {}

 protected:
  Stmt Mutate_(const BindNode* op) final {
    named_.Note(op->var, OfLane(named_.InNumbers(op->value)), thread_);
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const IfThenElseNode* op) final {
    const bool spreads =
        HasNode<ForNode>(op->then_case, [](const ForNode* loop) { return IsInstances(loop); });
    const Expr condition = named_.InNumbers(op->condition);
    if (!spreads || !Uses(condition, thread_)) return Default<Stmt>(op);
    const ForNode* loop = nullptr;
    ForEachIn<ForNode>(op->then_case, [&](const ForNode* l) {
      if (IsInstances(l)) loop = l;
    });
    const int64_t first = *IntAnnotation(loop->annotations, kInstances);
    if (op->else_case || !IsTakenBy(condition, first)) {
      ThrowBug(
          op->span, "SpreadInstances",
          "a branch that other threads take than those of warp group " + std::to_string(first));
    }
    return Spread(op, first, ToInt(loop->extent));
  }

 private:
  /*! Arithmetic of the thread's number alone. */
  bool IsOfThread(const Expr& e) const {
    const std::vector<Var> vars = VarsOf(e);
    const bool alone = AllOf(vars, [&](const Var& v) { return v.same_as(thread_); });
    const auto any = [](const auto*) { return true; };
    return !vars.empty() && alone && !HasNode<CallNode>(e, any) && !HasNode<TensorLoadNode>(e, any);
  }

  /*! Whether the threads of a warp group take the branch, and no others. */
  bool IsTakenBy(const Expr& condition, int64_t group) const {
    if (!IsOfThread(condition)) return false;
    const IntProgram taken(condition, {thread_});
    for (int64_t t = 0; t < threads_; ++t) {
      if ((taken(&t) != 0) != (t / kWarpGroupThreads == group)) return false;
    }
    return true;
  }

  Stmt Spread(const IfThenElseNode* op, int64_t first, int64_t count) {
    Expr group = FromFirstLane(FloorDivOf(thread_, kWarpGroupThreads), warp_threads_);
    std::vector<Stmt> stmts;
    const Var instance = MakeVar("instance"), number = MakeVar("tx_of_first", thread_->dtype());
    BodySpreader body(instance);
    std::vector<Stmt> named;
    for (const auto& [name, value] : named_) {
      const Expr own = Substitute(value, thread_, number);
      body.map[name.get()] = own;
      if (!IsOfThread(value) && Uses(op->then_case, name)) {
        const Var again = MakeVar(name->name, name->dtype());
        named.push_back(MakeBind(again, own, op->span));
        body.map[name.get()] = again;
      }
      const auto* quotient = value.as<FloorDivNode>();
      const bool is_group =
          quotient && quotient->a.same_as(thread_) && IsConst(quotient->b, kWarpGroupThreads);
      if (is_group) group = name;
    }
    body.map[thread_.get()] = number;
    stmts.push_back(MakeBind(instance, group + (-first), op->span));
    stmts.push_back(MakeBind(number, thread_ - instance * kWarpGroupThreads, op->span));
    AppendRange(&stmts, named);
    stmts.push_back(body.Mutate(op->then_case));
    const Stmt spread = MakeSeq(stmts);
    const bool is_named = group.as<VarNode>() != nullptr;
    const int64_t unit = is_named ? 1 : kWarpGroupThreads;
    const Expr at = is_named ? group : Expr(thread_);
    const Expr behind = at >= MakeInt(first * unit), before = at < MakeInt((first + count) * unit);
    if ((first + count) * kWarpGroupThreads < threads_) {
      return MakeIf(first == 0 ? before : behind && before, spread, op->span);
    }
    return first == 0 ? spread : MakeIf(behind, spread, op->span);
  }

  const Var thread_;
  const int64_t threads_;
  const int64_t warp_threads_;
  ThreadNames named_;
};

PrimFunc SpreadInstances(PrimFunc f) {
  return ForEachKernel(f, [warp = TargetOf(f).warp_threads](const AttrStmtNode* op) {
    Stmt kernel = GetRef<Stmt>(op);
    if (!HasNode<ForNode>(kernel, IsInstances)) return kernel;
    for (const AttrStmtNode* axis = op; axis && axis->attr_key == kThreadExtent;
         axis = axis->body.as<AttrStmtNode>()) {
      const IterVar of = axis->node.cast<IterVar>();
      if (std::string(of->thread_tag) == "threadIdx.x") {
        kernel = InstanceSpreader(of->var, ToInt(axis->value), warp).Mutate(kernel);
      }
    }
    ForEachIn<ForNode>(kernel, [](const ForNode* loop) {
      if (IsInstances(loop) && !IsConst(loop->extent, 1)) {
        ThrowBug(loop->span, "SpreadInstances", "a loop over warp groups outside of their branch");
      }
    });
    return kernel;
  });
}

TL_REGISTER_PASS(SpreadInstances);

}  // namespace
}  // namespace tl
