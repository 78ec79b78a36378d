/*!
 * HideOperations and ShowOperations, around TVM's own simplifier: see src/tvm/hidden_operations.h.
 */
#include "../analysis/analyzing_mutator.h"
#include "../tvm/hidden_operations.h"
#include "../tvm/registry.h"

namespace tl {
namespace {

bool ComparesUnsigned(const Expr& e) {
  const auto is_unsigned = [](const auto* op) { return op && op->a->dtype().code == kDLUInt; };
  return is_unsigned(e.as<LTNode>()) || is_unsigned(e.as<LENode>()) ||
         is_unsigned(e.as<GTNode>()) || is_unsigned(e.as<GENode>());
}

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
  // clang-format off
#define TL_FOR_EACH_MISLEADING(X)                                              \
  X(Cast) X(Add) X(Sub) X(Mul) X(LShift) X(LT) X(LE) X(GT) X(GE) X(Div) X(Mod) \
  X(FloorDiv) X(FloorMod)
#define X(N)                                 \
  Expr Mutate_(const N##Node* op) override { \
    Look(GetRef<Expr>(op));                  \
    return Default<Expr>(op);                \
  }
  TL_FOR_EACH_MISLEADING(X)
#undef X
#undef TL_FOR_EACH_MISLEADING
  // clang-format on

 private:
  void Look(const Expr& e) {
    const auto bound_of = [this](const Expr& part) { return analyzer_.ConstBound(part); };
    if (unreached_ || ComparesUnsigned(e) || MisleadsTvm(e, bound_of)) found.insert(e.get());
  }

  bool unreached_ = false;
};

PrimFunc HideOperationsPass(PrimFunc f) {
  MisleadingFinder finder(f);
  finder.Mutate(f->body);
  const auto misleads = [&](const Expr& original, const Expr&) {
    return finder.found.count(original.get()) != 0;
  };
  return WithBody(f, HideOperations(f->body, misleads));
}

PrimFunc ShowOperationsPass(PrimFunc f) { return WithBody(f, ShowOperations(f->body)); }

Registration registration([] {
  RegisterPass("HideOperations", HideOperationsPass);
  RegisterPass("ShowOperations", ShowOperationsPass);
});

}  // namespace
}  // namespace tl
