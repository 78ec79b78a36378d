/*!
 * RemoveUnusedBindings: names of numbers that no statement reads any more.
 *
 * In:  a thread program.
 * Out: the same without each `Bind` whose variable is never read and whose value is arithmetic:
 *      Simplify substitutes such values and leaves the name. A `Bind` whose value loads or calls
 *      stays. `assume` statements are gone, too, because no later pass reads them.
 * Refuses nothing.
 */
#include <algorithm>
#include <unordered_set>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! From the end to the front: what reads a name comes after it, and is gone already if nobody reads
 * what it makes. */
class Remover : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
  Expr Mutate_(const VarNode* op) override {
    used_.insert(op);
    return GetRef<Expr>(op);
  }
  Stmt Mutate_(const SeqStmtNode* op) override {
    std::vector<Stmt> kept(op->seq.begin(), op->seq.end());
    for (auto s = kept.rbegin(); s != kept.rend(); ++s) *s = Mutate(*s);
    kept.erase(std::remove_if(kept.begin(), kept.end(), IsEmpty), kept.end());
    return MakeSeq(kept);
  }
  Stmt Mutate_(const EvaluateNode* op) override {
    if (AssumptionOf(GetRef<Stmt>(op)).defined()) return MakeSeq({});
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const BindNode* op) override {
    if (!used_.count(op->var.get()) && IsArithmetic(op->value)) return MakeSeq({});
    Mutate(op->value);
    return GetRef<Stmt>(op);
  }

 private:
  static bool IsEmpty(const Stmt& s) {
    const auto* op = s.as<EvaluateNode>();
    return op && AsInt(op->value);
  }

  std::unordered_set<const Object*> used_;
};

PrimFunc RemoveUnusedBindings(PrimFunc f) { return WithBody(f, Remover().Mutate(f->body)); }

Registration remove_unused_bindings_registration([] {
  RegisterPass("RemoveUnusedBindings", RemoveUnusedBindings);
});

}  // namespace
}  // namespace tl
