/*!
 * SelectInstructions: decides which instructions make each product.
 *
 * In:  a tile program under thread_extent attributes, before warps have roles and loops are
 * pipelined.
 * Out: the same; each gemm has attributes `instruction` (the rows that make it, in order along K),
 * `warps` (how warps share it) and `rejected` (why better rows do not make it): gemm_instruction.h.
 * Function attribute `tl.selected`. The operands, layouts that the user gives and the threads that
 * run the gemm decide: those of the block or of the range around, or of the role that
 * T.annotate_ws_schedule gives it.
 * Establishes: passes behind this one choose no instruction of a gemm, they read the attribute.
 * Refuses (ValueError): operands in memory that no instruction reads, types without arithmetic,
 * and shapes of sparse, asynchronous or 4-bit products that no row has.
 */
#include "select_instructions.h"

#include "../../layout/annotation.h"
#include "../../op/gemm_instruction.h"
#include "../../op/views.h"
#include "../../tvm/error.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "kernel_scope.h"
#include "ws_schedule.h"

namespace tl {
namespace {

class Selector : public StmtExprMutator {
 public:
  Selector(const Stmt& kernel, const Target& target) : views_(kernel), target_(target) {}

 protected:
  using StmtExprMutator::Mutate_;

  Stmt Mutate_(const AttrStmtNode* op) final {
    const bool names = op->attr_key == kWsOp;
    return Named(names ? std::string(op->node.cast<String>()) : "", [&] {
      Stmt out;
      scope_.Within(op, [&] { out = Default<Stmt>(op); });
      return out;
    });
  }
  Stmt Mutate_(const SBlockNode* op) final {
    for (auto [buffer, layout] : GetLayoutMap(op->annotations)) annotated_.Set(buffer, layout);
    if (!schedule_) schedule_ = ScheduleOf(op, target_.warp_threads);
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    return Named(schedule_ ? NameOf(GetRef<Stmt>(op)) : "", [&] { return Default<Stmt>(op); });
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call || !IsGemm(call)) return s;
    const GemmOp gemm = ParseGemm(call, op->span);
    const ThreadRange threads = ThreadsOf(s);
    const GemmContext context{threads.threads,
                              &target_,
                              AnnotatedOf(gemm.a.buffer),
                              AnnotatedOf(gemm.b.buffer),
                              views_.IsView(gemm.a.buffer) || views_.IsView(gemm.b.buffer),
                              threads.first};
    return MakeEvaluate(WithInstruction(call, gemm, PlanGemm(gemm, context)), op->span);
  }

 private:
  /*! Gives a name, if it is one, to the statements that `mutate` reaches and that have none. */
  template <typename F>
  Stmt Named(const std::string& name, F mutate) {
    if (name.empty()) return mutate();
    const std::string outside = std::exchange(name_, name);
    const Stmt out = mutate();
    name_ = outside;
    return out;
  }

  ThreadRange ThreadsOf(const Stmt& s) const {
    if (schedule_) {
      const std::string own = NameOf(s);
      const auto op = schedule_->FindOp(own.empty() ? name_ : own);
      if (op) return schedule_->roles[schedule_->ops[*op].role].range;
    }
    return scope_.Threads(s->span);
  }

  Layout AnnotatedOf(const Var& buffer) const {
    auto it = annotated_.find(buffer);
    return it == annotated_.end() ? Layout() : (*it).second;
  }

  const Views views_;
  const Target& target_;
  KernelScope scope_;
  Map<Var, Layout> annotated_;
  std::optional<Schedule> schedule_;
  /*! Of the statements here in the schedule. */
  std::string name_;
};

PrimFunc SelectInstructions(PrimFunc f) {
  const auto select = [&target = TargetOf(f)](const AttrStmtNode* op) {
    return Selector(GetRef<Stmt>(op), target).Mutate(GetRef<Stmt>(op));
  };
  return WithAttr(ForEachKernel(f, select), kSelected, int64_t(1));
}

Registration registration([] { RegisterPass("SelectInstructions", SelectInstructions); });

}  // namespace
}  // namespace tl
