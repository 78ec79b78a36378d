/*!
 * HideOperations and ShowOperations, around TVM's own simplifier: see src/tvm/hidden_operations.h.
 */
#include "../analysis/analyzing_mutator.h"
#include "../tvm/hidden_operations.h"
#include "../tvm/registry.h"

namespace tl {
namespace {

/*! The integer operations that mislead TVM in one of the places where they stand. */
class MisleadingFinder : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;
  std::unordered_set<const Object*> found;

 protected:
  using AnalyzingMutator::Mutate_;
  Stmt Mutate_(const ForNode* op) override {
    // The variable of a loop without iterations has no value: TVM may take it for any.
    const bool outside = unreached_;
    unreached_ |= analyzer_.ConstBound(op->extent).max <= 0;
    const Stmt s = AnalyzingMutator::Mutate_(op);
    unreached_ = outside;
    return s;
  }
#define X(N)                                                        \
  Expr Mutate_(const N##Node* op) override {                        \
    const Expr e = GetRef<Expr>(op);                                \
    if (unreached_ || MisleadsTvm(&analyzer_, e)) found.insert(op); \
    return Default<Expr>(op);                                       \
  }
  X(Cast)
 X(LT)
 X(LE) X(GT) X(GE) X(Div) X(Mod) X(FloorDiv) X(FloorMod)
#undef X

     private : bool unreached_ = false;
};

PrimFunc HideOperationsPass(PrimFunc f) {
  MisleadingFinder finder(f);
  finder.Mutate(f->body);
  return WithBody(
      f, HideOperations(f->body, [&](const Expr& e) { return finder.found.count(e.get()) != 0; }));
}

PrimFunc ShowOperationsPass(PrimFunc f) { return WithBody(f, ShowOperations(f->body)); }

Registration registration([] {
  RegisterPass("HideOperations", HideOperationsPass);
  RegisterPass("ShowOperations", ShowOperationsPass);
});

}  // namespace
}  // namespace tl
