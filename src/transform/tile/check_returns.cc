/*!
 * CheckReturns: where threads leave the kernel, what follows does not need them.
 *
 * In:  a tile program with thread bindings.   Out: the same program.
 * Establishes: no tile operator and no parallel loop, which are work for all threads, runs after
 * some threads of the block may have left by T.thread_return; no thread leaves in a parallel loop.
 * Refuses (ValueError): that. Barriers are ThreadSync's affair, which knows all of them; what lanes
 * of a warp do together is the emulator's.
 */
#include <utility>

#include "../../analysis/uniformity.h"
#include "../../op/intrinsics.h"
#include "../../op/operator.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

bool IsReturn(const EvaluateNode* op) { return IsCallTo(op->value, kThreadReturn); }

bool HasReturn(const Stmt& s) {
  return HasNode<EvaluateNode>(s, [&](const EvaluateNode* op) { return IsReturn(op); });
}

/*! Walks a kernel in the order of its run, a loop's body as if an iteration had run before. */
class ReturnChecker : public StmtExprVisitor {
 public:
  explicit ReturnChecker(const Stmt& kernel) : uniformity_(kernel) { Visit(kernel); }

 protected:
  void Visit_(const EvaluateNode* op) final {
    if (AsTileOp(GetRef<Stmt>(op))) RefuseWork(op->span, "a tile operator");
    if (IsReturn(op) && divergent_) left_ = op->span;
  }
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) {
      if (HasReturn(op->body)) RefuseInParallel(op->span);
      return RefuseWork(op->span, "a parallel loop");
    }
    VisitLoop(op->body, uniformity_.IsUniform(op));
  }
  void Visit_(const WhileNode* op) final { VisitLoop(op->body, uniformity_.IsUniform(op)); }
  void Visit_(const IfThenElseNode* op) final {
    const bool outside =
        std::exchange(divergent_, divergent_ || !uniformity_.IsUniform(op->condition));
    const std::optional<Span> before = left_;
    Visit(op->then_case);
    const std::optional<Span> then = std::exchange(left_, before);
    if (op->else_case) Visit(*op->else_case);
    if (!left_) left_ = then;
    divergent_ = outside;
  }

 private:
  void VisitLoop(const Stmt& body, bool uniform) {
    const bool outside = std::exchange(divergent_, divergent_ || !uniform);
    Visit(body);
    // An iteration that follows one in which threads have left.
    if (left_ && HasReturn(body)) Visit(body);
    divergent_ = outside;
  }

  void RefuseWork(const Span& span, const std::string& what) const {
    if (!left_) return;
    const std::string where = Where(*left_);
    ThrowAt(
        span, "ValueError",
        "found " + what + " after some threads of the block may have left by T.thread_return" +
            (where.empty() ? "" : " (" + where + ")") +
            ", wanted all threads, which share its work; put what follows for the others into an "
            "`if` instead");
  }
  [[noreturn]] static void RefuseInParallel(const Span& span) {
    ThrowAt(span, "ValueError",
            "found T.thread_return in a T.Parallel loop, whose iterations are dealt to threads, "
            "wanted it in a thread's own code; use `if` in the loop");
  }

  const Uniformity uniformity_;
  bool divergent_ = false;
  std::optional<Span> left_;
};

PrimFunc CheckReturns(PrimFunc f) {
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    if (HasReturn(op->body)) ReturnChecker{GetRef<Stmt>(op)};
    return GetRef<Stmt>(op);
  });
}

TL_REGISTER_PASS(CheckReturns);

}  // namespace
}  // namespace tl
