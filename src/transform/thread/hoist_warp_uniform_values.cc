/*!
 * HoistWarpUniformValues: computes the number of the warp group once, as a value that is uniform in
 * a warp.
 *
 * In:  a flat thread program.
 * Out: the same, with changes in kernels that have descriptors of wgmma (`tl.wgmma_descriptor`).
 *      A quotient of the thread's number that is equal in all threads of a warp becomes a variable.
 *      The kernel defines it at its beginning as the value of the warp's first thread:
 *      `warp_group = tl.shfl_sync(mask, tx // 128, 0, 32)`. Branches that whole warp groups take
 *      compare that variable: `if tx < 128` becomes `if warp_group < 1`.
 * Establishes: ptxas can prove that a warp agrees on its descriptors. It then computes them in
 *      uniform registers, where wgmma reads them, instead of moving each there (CUTLASS uses
 *      `canonical_warp_group_idx` for the same reason). On an H200 these moves are a quarter of a
 *      GEMM's instructions between MMAs. After a branch on the thread's number, ptxas takes
 *      warps for divergent; if there are branches or loops that it does not see through, it does so
 *      up to the end of the kernel and uses no uniform registers there.
 *      Named barriers and stores after loops keep the thread's number: for them the variable would
 *      live through the loops, which took uniform registers from attention's gradients.
 * Refuses nothing. Unchanged: kernels whose threads have several dimensions, and kernels whose
 * threads are no whole warps, because a shuffle needs all lanes.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../analysis/thread_set.h"
#include "../../layout/int_program.h"
#include "../../op/intrinsics.h"
#include "../../target/mma.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

/*! An integer expression of one variable: no load, no call. */
bool IsOf(const Expr& e, const Var& variable) {
  return !HasNode<TensorLoadNode, CallNode>(e) &&
         !HasNode<VarNode>(e, [&](const VarNode* op) { return op != variable.get(); });
}

/*! Names the quotients in the descriptors and the warp groups in the branches of a kernel. */
class UniformValueNamer : public StmtExprMutator {
 public:
  UniformValueNamer(const Var& thread, int64_t threads, int64_t warp_threads)
      : thread_(thread), threads_(threads), warp_threads_(warp_threads) {}

  /*! The statements that give the names their values. */
  std::vector<Stmt> Binds() const {
    std::vector<Stmt> binds;
    for (const auto& [value, name] : names_) {
      binds.push_back(MakeBind(name, FromFirstLane(value, warp_threads_), Span()));
    }
    return binds;
  }

 protected:
  Expr Mutate_(const CallNode* op) final {
    const bool outside = in_descriptor_;
    in_descriptor_ |= IsCallTo(op, kWgmmaDescriptor);
    const Expr call = Default<Expr>(op);
    in_descriptor_ = outside;
    return call;
  }
  Expr Mutate_(const FloorDivNode* op) final {
    const Expr e = GetRef<Expr>(op);
    return in_descriptor_ && IsOf(e, thread_) && AgreesInWarps(e) ? NameOf(e) : Default<Expr>(op);
  }
  Stmt Mutate_(const IfThenElseNode* op) final {
    auto named = make_object<IfThenElseNode>(*op);
    in_condition_ = true;
    named->condition = Mutate(op->condition);
    in_condition_ = false;
    named->then_case = Mutate(op->then_case);
    if (op->else_case) named->else_case = Mutate(*op->else_case);
    return IfThenElse(named);
  }
  Expr Mutate_(const LTNode* op) final {
    const Expr bound = InGroups(op->b);
    return bound.defined() && op->a.same_as(thread_) ? Group() < bound : Default<Expr>(op);
  }
  Expr Mutate_(const LENode* op) final {
    const Expr bound = InGroups(op->a);
    if (!bound.defined() || !op->b.same_as(thread_)) return Default<Expr>(op);
    auto order = make_object<LENode>(*op);
    order->a = bound;
    order->b = Group();
    return LE(order);
  }

 private:
  /*! In a condition a number of threads that are whole warp groups, as a number of these. */
  Expr InGroups(const Expr& threads) const {
    const std::optional<int64_t> number = in_condition_ ? AsInt(threads) : std::nullopt;
    return number && *number % kWarpGroupThreads == 0 ? MakeInt(*number / kWarpGroupThreads)
                                                      : Expr();
  }
  Expr Group() { return NameOf(FloorDivOf(thread_, kWarpGroupThreads)); }

  bool AgreesInWarps(const Expr& e) const {
    const IntProgram value(e, {thread_});
    for (int64_t t = 0; t < threads_; ++t) {
      const int64_t first = t / warp_threads_ * warp_threads_;
      if (value(&t) != value(&first)) return false;
    }
    return true;
  }

  Expr NameOf(const Expr& e) {
    for (const auto& [value, name] : names_) {
      if (tvm::ffi::StructuralEqual()(value, e)) return name;
    }
    const auto* quotient = e.as<FloorDivNode>();
    const bool is_group = quotient->a.same_as(thread_) && IsConst(quotient->b, kWarpGroupThreads);
    names_.emplace_back(e, MakeVar(is_group ? "warp_group" : "of_warp", e->dtype()));
    return names_.back().second;
  }

  const Var thread_;
  const int64_t threads_;
  const int64_t warp_threads_;
  bool in_descriptor_ = false;
  bool in_condition_ = false;
  std::vector<std::pair<Expr, Var>> names_;
};

/*! A kernel with names; `thread` has threadIdx.x of the axes around `op` so far. */
Stmt NameInKernel(const AttrStmtNode* op, Var thread, int64_t threads, int64_t warp_threads) {
  const IterVar axis = op->node.cast<IterVar>();
  const std::string tag = axis->thread_tag;
  if (tag == "threadIdx.x") {
    thread = axis->var;
    threads = ToInt(op->value);
  } else if (tag.rfind("threadIdx", 0) == 0 && !IsConst(op->value, 1)) {
    return GetRef<Stmt>(op);
  }
  auto attr = make_object<AttrStmtNode>(*op);
  const auto* inner = op->body.as<AttrStmtNode>();
  if (inner && inner->attr_key == kThreadExtent) {
    attr->body = NameInKernel(inner, thread, threads, warp_threads);
  } else if (thread.defined() && threads % warp_threads == 0 &&
             HasCall(op->body, {kWgmmaDescriptor})) {
    UniformValueNamer namer(thread, threads, warp_threads);
    const Stmt named = namer.Mutate(op->body);
    std::vector<Stmt> stmts = namer.Binds();
    stmts.push_back(named);
    attr->body = MakeSeq(stmts);
  }
  return AttrStmt(attr);
}

PrimFunc HoistWarpUniformValues(PrimFunc f) {
  return ForEachKernel(f, [warp = TargetOf(f).warp_threads](const AttrStmtNode* op) {
    return NameInKernel(op, Var(), 0, warp);
  });
}

TL_REGISTER_PASS(HoistWarpUniformValues);

}  // namespace
}  // namespace tl
