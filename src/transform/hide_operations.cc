/*!
 * HideOperations and ShowOperations, around TVM's own simplifier: see src/tvm/hidden_operations.h.
 *
 * In:  a thread program. Out: the same, in which operations that TVM would write otherwise with
 * another result are calls that it does not know; ShowOperations makes them operations again.
 * Establishes: the simplifier between the two changes no value. Refuse nothing.
 *
 * Indices and comparisons are computed as mathematical integers (FlattenBuffer), so TVM may write
 * them otherwise. What is stored wraps. There TVM would bring differences to where they leave the
 * type: max(x, 8) - 8 becomes max(x - 8, 0), and (x - 3) % 5 becomes (x + 2) % 5. So such sums,
 * differences and products of large values are hidden, too (ValueFinder). A name of a value that is
 * an index as well is taken for an index, since guards depend on it.
 */
#include <unordered_set>
#include <vector>

#include "../analysis/analyzing_mutator.h"
#include "../op/intrinsics.h"
#include "../tvm/find.h"
#include "../tvm/hidden_operations.h"
#include "../tvm/registry.h"

namespace tl {
namespace {

bool ComparesUnsigned(const Expr& e) {
  const auto is_unsigned = [](const auto* op) { return op && op->a->dtype().code == kDLUInt; };
  return is_unsigned(e.as<LTNode>()) || is_unsigned(e.as<LENode>()) ||
         is_unsigned(e.as<GTNode>()) || is_unsigned(e.as<GENode>());
}

/*! Finds the sums, differences and products of what is stored, also by atomic operations, that are
 * an operand of something else than these, such as a cast to a wider type, or have an extremum in
 * them: of others all bits are those of their terms, in any order. Names are walked from their uses
 * to what they name. */
class ValueFinder : public StmtExprVisitor {
 public:
  explicit ValueFinder(const Stmt& s) {
    ForEachIn<BindNode>(s, [&](const BindNode* op) {
      if (HasExtremum(op->value)) extrema_.insert(op->var.get());
    });
    Visit(s);
  }
  bool Has(const Expr& e) const { return found_.count(e.get()) != 0; }

 protected:
  void Visit_(const SeqStmtNode* op) override {
    for (size_t i = op->seq.size(); i-- > 0;) Visit(op->seq[i]);
  }
  void Visit_(const BufferStoreNode* op) override {
    for (const Expr& i : op->indices) VisitAs(Use::kIndex, i);
    VisitAs(Use::kValue, op->value);
  }
  void Visit_(const CallNode* op) override {
    const std::vector<PointerAccess> accesses = PointerAccesses(op);
    const bool is_atomic =
        AnyOf(accesses, [](const PointerAccess& p) { return p.access == Access::kAtomic; });
    if (!is_atomic) return Default(op);
    for (const Expr& arg : op->args) VisitAs(Use::kValue, arg);
  }
  void Visit_(const BindNode* op) override {
    const auto is = [&](Use use) { return uses_[static_cast<int>(use)].count(op->var.get()) != 0; };
    VisitAs(is(Use::kIndex)     ? Use::kIndex
            : is(Use::kOperand) ? Use::kOperand
            : is(Use::kValue)   ? Use::kValue
                                : Use::kCompared,
            op->value);
  }
#define TL_COMPARISON_(N)                   \
  void Visit_(const N##Node* op) override { \
    VisitAs(Use::kCompared, op->a);         \
    VisitAs(Use::kCompared, op->b);         \
  }
  TL_COMPARISON_(LT)
  TL_COMPARISON_(LE)
  TL_COMPARISON_(GT)
  TL_COMPARISON_(GE)
  TL_COMPARISON_(EQ)
  TL_COMPARISON_(NE)
#undef TL_COMPARISON_
#define TL_OPERANDS_(N)                                         \
  void Visit_(const N##Node* op) override {                     \
    const Use use = use_ == Use::kValue ? Use::kOperand : use_; \
    VisitAs(use, op->a);                                        \
    VisitAs(use, op->b);                                        \
  }
  TL_OPERANDS_(Div)
  TL_OPERANDS_(Mod)
  TL_OPERANDS_(FloorDiv)
  TL_OPERANDS_(FloorMod)
  TL_OPERANDS_(Min)
  TL_OPERANDS_(Max)
#undef TL_OPERANDS_
  void Visit_(const CastNode* op) override {
    // TVM makes a sum of casts of the cast of a sum, which then has the bits above the sum's type.
    const bool is_integer = op->dtype().code == kDLInt || op->dtype().code == kDLUInt;
    const bool widens = is_integer && op->dtype().bits > op->value->dtype().bits;
    VisitAs(widens && use_ == Use::kValue ? Use::kOperand : use_, op->value);
  }
#define TL_ARITHMETIC_(N)                                                       \
  void Visit_(const N##Node* op) override {                                     \
    const bool is_value = use_ == Use::kValue && HasExtremum(GetRef<Expr>(op)); \
    if (is_value || use_ == Use::kOperand) found_.insert(op);                   \
    Default(op);                                                                \
  }
  TL_ARITHMETIC_(Add)
  TL_ARITHMETIC_(Sub)
  TL_ARITHMETIC_(Mul)
#undef TL_ARITHMETIC_
  void Visit_(const TensorLoadNode* op) override {
    for (const Expr& i : op->indices) VisitAs(Use::kIndex, i);
  }
  void Visit_(const VarNode* op) override { uses_[static_cast<int>(use_)].insert(op); }

 private:
  enum class Use : uint8_t { kIndex, kCompared, kValue, kOperand };
  void VisitAs(Use use, const Expr& e) {
    const Use outside = use_;
    use_ = use;
    Visit(e);
    use_ = outside;
  }

  /*! Whether a term of a sum is a minimum or a maximum, or a name of one: TVM brings the others
   * into it. */
  bool HasExtremum(const Expr& e) const {
    if (e.as<MinNode>() || e.as<MaxNode>()) return true;
    if (const auto* op = e.as<AddNode>()) return HasExtremum(op->a) || HasExtremum(op->b);
    if (const auto* op = e.as<SubNode>()) return HasExtremum(op->a) || HasExtremum(op->b);
    if (const auto* op = e.as<MulNode>()) return HasExtremum(op->a) || HasExtremum(op->b);
    return extrema_.count(e.get()) != 0;
  }

  Use use_ = Use::kIndex;
  std::unordered_set<const Object*> uses_[4], extrema_, found_;
};

/*! The integer operations that mislead TVM in one of the places where they stand. */
class MisleadingFinder : public AnalyzingMutator {
 public:
  explicit MisleadingFinder(const PrimFunc& f) : AnalyzingMutator(f), values_(f->body) {}
  std::unordered_set<const Object*> found;

 protected:
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
  X(Cast) X(Add) X(Sub) X(Mul) X(LShift) X(LT) X(LE) X(GT) X(GE) X(EQ) X(NE)   \
  X(Min) X(Max) X(Div) X(Mod) X(FloorDiv) X(FloorMod)
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
    const bool misleads = unreached_ || ComparesUnsigned(e) || MisleadsTvm(e, bound_of) ||
                          (values_.Has(e) && IsOfLarge(e));
    if (misleads) found.insert(e.get());
  }

  /*! Is an operand large? The difference of two numbers below a quarter of the type is one of the
   * type, wherever TVM brings it; vectors it leaves as they are. */
  bool IsOfLarge(const Expr& e) {
    const DLDataType type = e->dtype();
    if (type.code != kDLInt || type.lanes != 1) return false;
    const int64_t most = int64_t{1} << (type.bits - 2);
    const auto is_large = [&](const Expr& part) {
      const Analyzer::Bound bound = analyzer_.ConstBound(part);
      return bound.min < -most || bound.max > most;
    };
    const auto of = [&](const auto* op) { return op && (is_large(op->a) || is_large(op->b)); };
    return e.as<MulNode>() ? is_large(e) : of(e.as<AddNode>()) || of(e.as<SubNode>());
  }

  const ValueFinder values_;
  bool unreached_ = false;
};

/*! Lets loops of one iteration begin at 0: of one that begins at a number that varies TVM learns
 * two values of the variable, and refuses the second. */
class FromZero : public StmtExprMutator {
 protected:
  Stmt Mutate_(const ForNode* op) override {
    const Stmt s = Default<Stmt>(op);
    op = s.as<ForNode>();
    if (AsInt(op->min) || op->step || !IsConst(Analyzer().Simplify(op->extent), 1)) return s;
    auto n = make_object<ForNode>(*op);
    n->min = MakeInt(op->loop_var->dtype(), 0);
    n->extent = MakeInt(op->loop_var->dtype(), 1);
    n->body = Substitute(op->body, op->loop_var, op->min + op->loop_var);
    return For(n);
  }
};

PrimFunc HideOperationsPass(PrimFunc f) {
  f = WithBody(f, FromZero().Mutate(f->body));
  MisleadingFinder finder(f);
  finder.Mutate(f->body);
  const auto misleads = [&](const Expr& original, const Expr&) {
    return finder.found.count(original.get()) != 0;
  };
  return WithBody(f, HideOperations(f->body, misleads));
}

PrimFunc ShowOperationsPass(PrimFunc f) { return WithBody(f, ShowOperations(f->body)); }

Registration hide_operations_registration([] {
  RegisterPass("HideOperations", HideOperationsPass);
  RegisterPass("ShowOperations", ShowOperationsPass);
});

}  // namespace
}  // namespace tl
