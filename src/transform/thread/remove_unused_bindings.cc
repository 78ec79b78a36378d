/*!
 * RemoveUnusedBindings: names of numbers that no statement reads any more.
 *
 * In:  a thread program.
 * Out: the same without each `Bind` whose variable is never read and whose value is arithmetic:
 *      Simplify substitutes such values and leaves the name. A `Bind` whose value loads or calls
 *      stays. `assume` statements are gone, too, because no later pass reads them; a loop with MMAs
 *      of warp groups that has an iteration by them has `tl.loop_runs`, for code generation.
 *      So are the stores to a variable of the thread (`local.var`) that nothing reads but these
 *      stores, and the `while` loops of nothing else: the place in a list that one role of warps
 *      looks for, and the other one does not need. NVVM keeps a loop that it cannot count.
 * Refuses nothing.
 */
#include <unordered_set>
#include <utility>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../analysis/unused_bindings.h"
#include "../../op/wgmma_calls.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! The variable of the thread that the store, and nothing else, is for; undefined if there is none.
 */
Var AdvancedBy(const BufferStoreNode* op) {
  return ScopeOf(op->buffer) == "local.var" && !HasEffect(op->value) ? op->buffer : Var();
}

/*! The same of a loop. */
Var AdvancedBy(const WhileNode* op) {
  if (HasEffect(op->condition)) return Var();
  Var variable;
  for (const Stmt& s : FlatSeq(op->body)) {
    const auto* store = s.as<BufferStoreNode>();
    const Var own = store ? AdvancedBy(store) : Var();
    if (!own.defined() || (variable.defined() && !own.same_as(variable))) return Var();
    variable = own;
  }
  return variable;
}

/*! The variables of the thread that are read by more than what advances them. */
class NumberReads : public StmtExprVisitor {
 public:
  explicit NumberReads(const Stmt& body) { Visit(body); }
  bool IsUnused(const Var& variable) const {
    return variable.defined() && !read_.count(variable.get());
  }

 protected:
  void Visit_(const BufferStoreNode* op) override {
    Within(AdvancedBy(op), [&] {
      for (const Expr& i : op->indices) Visit(i);
      Visit(op->value);
    });
  }
  void Visit_(const WhileNode* op) override {
    Within(AdvancedBy(op), [&] { Default(op); });
  }
  void Visit_(const TensorLoadNode* op) override {
    if (op->source.get() != advanced_) read_.insert(op->source.get());
    for (const Expr& i : op->indices) Visit(i);
  }
  // A buffer outside of a load or store is a pointer that goes somewhere.
  void Visit_(const AllocBufferNode*) override {}
  void Visit_(const SBlockNode* op) override { Visit(op->body); }
  void Visit_(const VarNode* op) override { read_.insert(op); }

 private:
  template <typename Body>
  void Within(const Var& own, Body body) {
    const Object* outside = std::exchange(advanced_, own.defined() ? own.get() : advanced_);
    body();
    advanced_ = outside;
  }

  const Object* advanced_ = nullptr;
  std::unordered_set<const Object*> read_;
};

/*! Removes what is said for other passes, and numbers that are counted for nobody. */
class UnreadRemover : public StmtExprMutator {
 public:
  explicit UnreadRemover(const Stmt& body) : read_(body) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    if (AssumptionOf(GetRef<Stmt>(op)).defined()) return MakeSeq({});
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const BufferStoreNode* op) final {
    return read_.IsUnused(AdvancedBy(op)) ? MakeSeq({}) : Default<Stmt>(op);
  }
  Stmt Mutate_(const WhileNode* op) final {
    return read_.IsUnused(AdvancedBy(op)) ? MakeSeq({}) : Default<Stmt>(op);
  }

 private:
  const NumberReads read_;
};

/*! Marks loops with MMAs of warp groups that have an iteration. */
class RunMarker : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  Stmt Mutate_(const ForNode* op) final {
    const bool runs = op->kind == ForKind::kSerial && !AsInt(op->extent) && HasWgmmas(op->body) &&
                      analyzer_.ConstBound(op->extent).min > 0;
    For loop = AnalyzingMutator::Mutate_(op).as_or_throw<For>();
    if (runs) loop.CopyOnWrite()->annotations.Set(kLoopRuns, MakeInt(1));
    return loop;
  }
};

PrimFunc RemoveUnusedBindings(PrimFunc f) {
  const Stmt marked = HasWgmmas(f->body) ? RunMarker(f).Mutate(f->body) : f->body;
  const Stmt body = UnreadRemover(marked).Mutate(marked);
  return WithBody(
      f, WithoutUnusedBindings(body, [](const BindNode* op) { return IsArithmetic(op->value); }));
}

TL_REGISTER_PASS(RemoveUnusedBindings);

}  // namespace
}  // namespace tl
