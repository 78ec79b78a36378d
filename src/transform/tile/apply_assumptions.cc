/*!
 * ApplyAssumptions: what T.assume states simplifies what is behind it.
 *
 * In:  a tile program, its pipelines injected.
 * Out: the same; where an assumption holds, branches that it decides are gone, and comparisons,
 *      quotients, remainders, minima and maxima of integers are what they come to. TVM's
 *      simplifier, which comes next, does not read assumptions.
 * Refuses nothing. Functions without assumptions are unchanged.
 */
#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class Applier : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  using AnalyzingMutator::Mutate_;

  Stmt Mutate_(const IfThenElseNode* op) final {
    const auto decided = AsInt(Mutate(op->condition));
    if (!decided) return AnalyzingMutator::Mutate_(op);
    if (*decided) return Mutate(op->then_case);
    return op->else_case ? Mutate(*op->else_case) : MakeSeq({});
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    // An assumption that it knew to hold would be lost.
    const Stmt s = GetRef<Stmt>(op);
    return AssumptionOf(s).defined() ? s : Default<Stmt>(op);
  }
  Expr Mutate_(const FloorDivNode* op) final { return Simplified(op); }
  Expr Mutate_(const FloorModNode* op) final { return Simplified(op); }
  Expr Mutate_(const MinNode* op) final { return Simplified(op); }
  Expr Mutate_(const MaxNode* op) final { return Simplified(op); }
  Expr Mutate_(const LTNode* op) final { return Simplified(op); }
  Expr Mutate_(const LENode* op) final { return Simplified(op); }
  Expr Mutate_(const GTNode* op) final { return Simplified(op); }
  Expr Mutate_(const GENode* op) final { return Simplified(op); }
  Expr Mutate_(const EQNode* op) final { return Simplified(op); }
  Expr Mutate_(const NENode* op) final { return Simplified(op); }

 private:
  template <typename Node>
  Expr Simplified(const Node* op) {
    const Expr e = Default<Expr>(op);
    const bool of_integers = IsPureInteger(op->a) && IsPureInteger(op->b);
    return of_integers ? analyzer_.Simplify(e) : e;
  }
};

PrimFunc ApplyAssumptions(PrimFunc f) {
  if (!HasCall(f->body, {"tirx.assume"})) return f;
  Applier apply(f);
  const Stmt body = apply.Mutate(f->body);
  return WithBody(std::move(f), body);
}

Registration apply_assumptions_registration([] {
  RegisterPass("ApplyAssumptions", ApplyAssumptions);
});

}  // namespace
}  // namespace tl
