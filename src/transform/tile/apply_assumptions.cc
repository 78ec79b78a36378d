/*!
 * ApplyAssumptions: what T.assume states simplifies what is behind it.
 *
 * In:  a tile program, its pipelines injected.
 * Out: the same; where an assumption holds, branches that it decides are gone, and comparisons,
 *      quotients, remainders, minima and maxima of integers are what they come to. Of comparisons
 *      the bounds of loops decide, too, which may be symbols: `b * 128 + j < n` where tiles of 128
 *      divide n. What is left of a mask that holds everywhere, a store of what is there, is gone.
 *      TVM's simplifier, which comes next, does not read assumptions.
 * Refuses nothing. Functions without assumptions are unchanged.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../analysis/extrema.h"
#include "../../tvm/attrs.h"
#include "../../tvm/registry.h"
#include "../../tvm/tile_numbers.h"

namespace tl {
namespace {

/*! Whether it is a number from memory that the program keeps below a bound, `min(A[i], n - 1)`:
 * then `v`, which stands for it, has that range. The analyzer asks for ranges of variables alone.
 */
bool BindClamp(const MinNode* op, const Var& v, Analyzer* analyzer) {
  if (!IsPureInteger(op->b) || IsArithmetic(op->a) || v->dtype().code != kDLInt) return false;
  // The ends of the range are numbers of its type.
  const int64_t least = analyzer->ConstBound(op->a).min;
  if (least < 0 || analyzer->ConstBound(op->b).max == INT32_MAX) return false;
  const Expr from = MinOf(MakeInt(v->dtype(), least), op->b);
  analyzer->Bind(v, from, op->b + 1 - from);
  return true;
}

class NameClamps : public StmtExprMutator {
 public:
  explicit NameClamps(Analyzer* analyzer) : analyzer_(analyzer) {}

 protected:
  Expr Mutate_(const MinNode* op) final {
    const Var v = MakeVar("clamped", GetRef<Expr>(op)->dtype());
    return BindClamp(op, v, analyzer_) ? Expr(v) : Default<Expr>(op);
  }

 private:
  Analyzer* analyzer_;
};

class Applier : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  Stmt Mutate_(const IfThenElseNode* op) final {
    const auto decided = AsInt(Mutate(op->condition));
    if (!decided) {
      const Stmt branch = AnalyzingMutator::Mutate_(op);
      const auto* n = branch.as<IfThenElseNode>();
      const bool is_empty = IsNothing(n->then_case) && (!n->else_case || IsNothing(*n->else_case));
      return is_empty && IsArithmetic(n->condition) ? MakeSeq({}) : branch;
    }
    if (*decided) return Mutate(op->then_case);
    return op->else_case ? Mutate(*op->else_case) : MakeSeq({});
  }
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) BindSymbols(op->node.cast<IterVar>()->var, op->value);
    return AnalyzingMutator::Mutate_(op);
  }
  Stmt Mutate_(const BindNode* op) final {
    const Stmt s = AnalyzingMutator::Mutate_(op);
    const auto* bind = s.as<BindNode>();
    const auto* clamp = bind->value.as<MinNode>();
    if (clamp && BindClamp(clamp, bind->var, &analyzer_)) BindSymbols(bind->var, clamp->b);
    if (IsCallTo(bind->value, kTileIndex) || IsCallTo(bind->value, kOrderedIndex)) {
      BindSymbols(bind->var, bind->value.as<CallNode>()->args.back());
      return s;
    }
    for (const Var& v : VarsOf(bind->value)) {
      const auto it = symbols_.find(v.get());
      if (it != symbols_.end()) symbols_[bind->var.get()] = it->second;
    }
    return s;
  }
  // A mask that masks nothing stores what is there. As a statement it would use its tile, and
  // products would be awaited for it.
  Stmt Mutate_(const BufferStoreNode* op) final {
    const BufferStore store = Default<Stmt>(op).as_or_throw<BufferStore>();
    const auto* load = store->value.as<TensorLoadNode>();
    const bool same = load && load->source.same_as(store->buffer) &&
                      ffi::StructuralEqual()(load->indices, store->indices);
    return same ? MakeSeq({}) : Stmt(store);
  }
  Stmt Mutate_(const ForNode* op) final {
    BindSymbols(op->loop_var, op->extent);
    const Stmt loop = AnalyzingMutator::Mutate_(op);
    return IsNothing(loop.as<ForNode>()->body) ? MakeSeq({}) : loop;
  }
  Expr Mutate_(const CallNode* op) final {
    const Expr e = AnalyzingMutator::Mutate_(op);
    const auto* call = e.as<CallNode>();
    if (!call || !IsIfThenElse(call)) return e;
    const auto decided = AsInt(call->args[0]);
    return decided ? call->args[*decided ? 1 : 2] : e;
  }
  Stmt Mutate_(const EvaluateNode* op) final {
    // The analyzer knows the assumption here: simplified, it would be `true`, and lost.
    const Stmt s = GetRef<Stmt>(op);
    return AssumptionOf(s).defined() ? s : Default<Stmt>(op);
  }
  Expr Mutate_(const FloorDivNode* op) final { return Simplified(op); }
  Expr Mutate_(const FloorModNode* op) final { return Simplified(op); }
  Expr Mutate_(const MinNode* op) final { return Simplified(op); }
  Expr Mutate_(const MaxNode* op) final { return Simplified(op); }
  Expr Mutate_(const LTNode* op) final { return Ordered(op); }
  Expr Mutate_(const LENode* op) final { return Ordered(op); }
  Expr Mutate_(const GTNode* op) final { return Ordered(op); }
  Expr Mutate_(const GENode* op) final { return Ordered(op); }
  Expr Mutate_(const EQNode* op) final { return Simplified(op); }
  Expr Mutate_(const NENode* op) final { return Simplified(op); }

 private:
  template <typename Node>
  Expr Simplified(const Node* op) {
    const Expr e = Default<Expr>(op);
    const bool of_integers = IsPureInteger(op->a) && IsPureInteger(op->b);
    return of_integers ? analyzer_.Simplify(e) : e;
  }
  /*! The simplifier does not ask whether the bounds of loops, which are symbols, decide it: of
   * tiles of 128 of n keys, n % 128 == 0, the last one ends at n. */
  template <typename Node>
  Expr Ordered(const Node* op) {
    const Expr e = Simplified(op);
    if (!e.as<Node>()) return e;
    const Expr bounded = NameClamps(&analyzer_).Mutate(e);
    const auto* sides = bounded.as<Node>();
    const bool of_integers = IsPureInteger(sides->a) && IsPureInteger(sides->b);
    if (!of_integers || HasExtremum(bounded)) return e;
    if (bounded.same_as(e) && !HasSymbolsOfBounds(e)) return e;
    return analyzer_.CanProveSymbolic(bounded) ? MakeInt(kBool, 1) : e;
  }

  void BindSymbols(const Var& v, const Expr& end) {
    const std::vector<Var> symbols = VarsOf(end);
    if (!symbols.empty()) symbols_[v.get()] = symbols;
  }
  /*! It has a variable together with a size that bounds it; others cost time, and find nothing that
   * the simplifier does not. */
  bool HasSymbolsOfBounds(const Expr& e) const {
    const std::vector<Var> used = VarsOf(e);
    return AnyOf(used, [&](const Var& v) {
      const auto it = symbols_.find(v.get());
      return it != symbols_.end() &&
             AnyOf(it->second, [&](const Var& symbol) { return Contains(used, symbol); });
    });
  }

  /*! By variables of loops, threads and blocks, and names of what uses them: the sizes that their
   * bounds are made of. */
  std::unordered_map<const Object*, std::vector<Var>> symbols_;
};

PrimFunc ApplyAssumptions(PrimFunc f) {
  if (!HasCall(f->body, {"tirx.assume"})) return f;
  Applier apply(f);
  const Stmt body = apply.Mutate(f->body);
  return WithBody(std::move(f), body);
}

TL_REGISTER_PASS(ApplyAssumptions);

}  // namespace
}  // namespace tl
