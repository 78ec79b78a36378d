/*!
 * RemoveUnusedBindings: names of numbers that no statement reads any more.
 *
 * In:  a thread program.
 * Out: the same without each `Bind` whose variable is never read and whose value is arithmetic:
 *      Simplify substitutes such values and leaves the name. A `Bind` whose value loads or calls
 *      stays. `assume` statements are gone, too, because no later pass reads them.
 * Refuses nothing.
 */
#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../analysis/unused_bindings.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class AssumptionRemover : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const EvaluateNode* op) final {
    if (AssumptionOf(GetRef<Stmt>(op)).defined()) return MakeSeq({});
    return Default<Stmt>(op);
  }
};

PrimFunc RemoveUnusedBindings(PrimFunc f) {
  const Stmt body = AssumptionRemover().Mutate(f->body);
  return WithBody(
      f, WithoutUnusedBindings(body, [](const BindNode* op) { return IsArithmetic(op->value); }));
}

Registration remove_unused_bindings_registration([] {
  RegisterPass("RemoveUnusedBindings", RemoveUnusedBindings);
});

}  // namespace
}  // namespace tl
