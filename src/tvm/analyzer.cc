#include "analyzer.h"

#include <tvm/ffi/reflection/accessor.h>

#include "find.h"
#include "functor.h"
#include "hidden_operations.h"
#include "shuffles.h"
#include "tile_numbers.h"

namespace tl {
namespace {

/*! The value of `ask()`, or `unknown` where TVM makes a constant that its type does not hold, and
 * raises: it computes bounds in int64, such as those of `i // 21 * 23` for any int32 `i`, and takes
 * them for constants of the type. Bounds do not tell these before: those of most products of a
 * block's number leave int32, and TVM simplifies them without a constant. Of an expression that is
 * well formed it refuses values alone; its own failures are no ValueError. */
template <typename Ask, typename Answer>
Answer Asked(Ask ask, const Answer& unknown) {
  try {
    return ask();
  } catch (const tvm::ffi::Error& error) {
    if (error.kind() != "ValueError") throw;
    return unknown;
  }
}

/*! Tells a TVM analyzer that `v` is at least `min`. */
void BindAtLeast(const ObjectRef& analyzer, const Var& v, int64_t min) {
  const ObjectRef bound = TL_GLOBAL("sym.ConstIntBound")(min, INT64_MAX).cast<ObjectRef>();
  TL_GLOBAL("sym.AnalyzerConstIntBoundUpdate")(analyzer, v, bound, true);
}

/*! The largest value of a signed type of less than 64 bits. */
int64_t MostOf(const DLDataType& type) { return (int64_t{1} << (type.bits - 1)) - 1; }

/*! Whether a sum, difference or product of a signed type in `e` has a bound that the type does not
 * hold. Unbounded ones count as none: their bounds are symbols. */
bool MayLeaveType(Analyzer* analyzer, const Expr& e) {
  constexpr int64_t kInfinity = INT64_MAX;
  const auto leaves = [&](const auto* op) {
    const Expr part = GetRef<Expr>(op);
    const DLDataType type = part->dtype();
    if (type.code != kDLInt || type.bits >= 64 || type.lanes != 1) return false;
    const Analyzer::Bound bound = analyzer->ConstBound(part);
    return (bound.max > MostOf(type) && bound.max != kInfinity) ||
           (bound.min < -MostOf(type) - 1 && bound.min != -kInfinity);
  };
  return HasNode<AddNode>(e, leaves) || HasNode<SubNode>(e, leaves) || HasNode<MulNode>(e, leaves);
}

/*! Inclusive bounds of an expression that TVM does not misread. */
Analyzer::Bound BoundOfHidden(const ObjectRef& analyzer, const Expr& e) {
  static const ffi::reflection::FieldGetter min("sym.ConstIntBound", "min_value");
  static const ffi::reflection::FieldGetter max("sym.ConstIntBound", "max_value");
  const ObjectRef bound = TL_GLOBAL("sym.AnalyzerConstIntBound")(analyzer, e).cast<ObjectRef>();
  return {min(bound).cast<int64_t>(), max(bound).cast<int64_t>()};
}

/*! The expression without what TVM could misread, with what the analyzer knows. */
Expr Hidden(const ObjectRef& analyzer, const Expr& e) {
  const BoundOf bound_of = [&](const Expr& part) { return BoundOfHidden(analyzer, part); };
  return HideOperations(
      e, [&](const Expr&, const Expr& operation) { return MisleadsTvm(operation, bound_of); });
}

Analyzer::Modular ModularSetOfHidden(const ObjectRef& analyzer, const Expr& e) {
  static const ffi::reflection::FieldGetter coeff("sym.ModularSet", "coeff");
  static const ffi::reflection::FieldGetter base("sym.ModularSet", "base");
  const ObjectRef set = TL_GLOBAL("sym.AnalyzerModularSet")(analyzer, e).cast<ObjectRef>();
  return {coeff(set).cast<int64_t>(), base(set).cast<int64_t>()};
}

/*! Says of hidden operations what they are multiples of: what wraps stays a multiple of a power of
 * two, so that the elements at int32(n * 64) are loaded in vectors. */
class KeepFactors : public StmtExprMutator {
 public:
  explicit KeepFactors(const ObjectRef& analyzer) : analyzer_(analyzer) {}

 protected:
  Expr Mutate_(const CallNode* op) override {
    const Expr e = Default<Expr>(op), shown = ShowOperations(e);
    const auto* cast = shown.as<CastNode>();
    const bool keeps = cast || shown.as<AddNode>() || shown.as<SubNode>() || shown.as<MulNode>() ||
                       shown.as<LShiftNode>();
    const Expr exact = cast ? cast->value : shown;
    if (!keeps || !IsScalarInteger(shown) || !IsScalarInteger(exact)) return e;
    const Analyzer::Modular m = ModularSetOfHidden(analyzer_, exact);
    const int64_t most = int64_t{1} << std::min(shown->dtype().bits - 2, 32);
    const int64_t unit = m.coeff == 0 ? most : std::min(m.coeff & -m.coeff, most);
    const int64_t rest = (m.base % unit + unit) % unit;
    const DLDataType type = shown->dtype();
    return MakeVar("wrapped", type) * MakeInt(type, unit) + MakeInt(type, rest);
  }

 private:
  static bool IsScalarInteger(const Expr& e) {
    const auto* type = e->ty.as<PrimTypeNode>();
    return type && type->dtype.lanes == 1 &&
           (type->dtype.code == kDLInt || type->dtype.code == kDLUInt);
  }

  const ObjectRef& analyzer_;
};

/*! The operand of a shuffle, whose value in one of the lanes is the call's; undefined for another
 * expression. */
Expr OperandOfSomeLane(const Expr& e) {
  const CallNode* shuffle = AsShuffle(e);
  return shuffle ? shuffle->args[1] : Expr();
}

/*! The end of a call's range, which begins at 0; undefined for another expression. */
Expr EndOfIndex(const Expr& e) {
  if (IsCallTo(e, kTilesOfBlock)) return e.as<CallNode>()->args[0] + 1;
  for (const char* op : {kTileOfBlock, kTileIndex, kOrderedIndex}) {
    if (IsCallTo(e, op)) return e.as<CallNode>()->args.back();
  }
  return Expr();
}

/*! What is known of a signed variable that has a value of these bounds. */
void BindBound(Analyzer* analyzer, const ObjectRef& self, const Var& v,
               const Analyzer::Bound& bound) {
  const DLDataType type = v->dtype();
  const int64_t most = type.bits < 32 ? MostOf(type) : INT32_MAX;
  const bool bounded = bound.min >= -most - 1 && bound.max <= most;
  if (type.code != kDLInt || !bounded || bound.max - bound.min >= most) return;
  if (bound.max == most) {
    // The end of a range, 2^31 for int32, would wrap, and from a range without values TVM proves
    // everything. As for shapes there is no upper bound.
    BindAtLeast(self, v, bound.min);
    return;
  }
  analyzer->Bind(v, MakeInt(type, bound.min), MakeInt(type, bound.max - bound.min + 1));
}

}  // namespace

void Analyzer::Bind(const Var& v, const Expr& min, const Expr& extent) {
  const Range range = MakeRange(Hidden(self_, min), Hidden(self_, extent));
  TL_GLOBAL("sym.AnalyzerBind")(self_, v, range, true);
}

void Analyzer::BindThread(const AttrStmtNode* thread_extent) {
  const Var& v = thread_extent->node.cast<IterVar>()->var;
  Bind(v, MakeInt(v->dtype(), 0), CastTo(v->dtype(), thread_extent->value));
}

void Analyzer::BindLoop(const ForNode* loop) {
  // Anything holds in a loop without iterations; a range without values has bounds such as -1,
  // which TVM refuses to cast to an unsigned integer.
  const bool empty = AsInt(loop->extent).value_or(1) <= 0;
  Bind(loop->loop_var, loop->min, empty ? MakeInt(loop->loop_var->dtype(), 1) : loop->extent);
}

void Analyzer::BindValue(const BindNode* bind) {
  const auto* type = bind->value->ty.as<PrimTypeNode>();
  if (!type || type->dtype.code != kDLInt || type->dtype.lanes != 1) return;
  if (const Expr end = EndOfIndex(bind->value); end.defined()) {
    return Bind(bind->var, MakeInt(bind->var->dtype(), 0), end);
  }
  // What is known here, such as the condition of a branch, holds in the lanes that are here. What
  // the operand's form says, such as that of x % 8, holds in all.
  const Expr given = OperandOfSomeLane(bind->value);
  const Bound bound = given.defined() ? Analyzer().ConstBound(given) : ConstBound(bind->value);
  BindBound(this, self_, bind->var, bound);
}

void Analyzer::BindExpr(const Var& v, const Expr& value) {
  const Expr hidden = Hidden(self_, value);
  const bool is_wide = !names_.Add(v, value);
  // TVM puts the value in the place of its name, also of the names in it.
  const auto written_out = [&] {
    return Asked([&] { return TL_GLOBAL("sym.AnalyzerSimplify")(self_, hidden, 1).cast<Expr>(); },
                 hidden);
  };
  const bool is_deep = !is_wide && WeightIn(hidden) > 0 && WeightIn(written_out()) > kMostWeight;
  if (is_wide || is_deep) {
    BindBound(this, self_, v, BoundOfHidden(self_, hidden));
  } else {
    TL_GLOBAL("sym.AnalyzerBind")(self_, v, hidden, true);
    if (hidden.same_as(value)) return;
  }
  const Modular m = ModularSet(value);
  const ObjectRef set = TL_GLOBAL("sym.ModularSet")(m.coeff, m.base).cast<ObjectRef>();
  TL_GLOBAL("sym.AnalyzerModularSetUpdate")(self_, v, set, true);
}

void Analyzer::BindShapes(const PrimFunc& f) {
  for (const Var& p : f->params) {
    if (!AsBuffer(p)) continue;
    for (const Var& v : SizeSymbolsOf(p)) {
      // No upper bound: near the top of int32, TVM's bounds of `extent + 31` wrap around, and a
      // contradiction proves everything.
      BindAtLeast(self_, v, 0);
    }
  }
}

Expr Analyzer::Simplify(const Expr& e) {
  const Expr hidden = Hidden(self_, e);
  const Expr simple = Asked(
      [&] { return TL_GLOBAL("sym.AnalyzerSimplify")(self_, hidden, 2).cast<Expr>(); }, hidden);
  return hidden.same_as(e) ? simple : ShowOperations(simple);
}

bool Analyzer::CanProve(const Expr& condition, int strength) {
  if (AsInt(condition)) return ToInt(condition) != 0;
  const Expr hidden = Hidden(self_, condition);
  const auto ask = [&](int with) {
    return Asked(
        [&] { return TL_GLOBAL("sym.AnalyzerCanProve")(self_, hidden, with).cast<bool>(); }, false);
  };
  // Intervals of symbols, which the greater strengths ask, have ends of the expression's type, and
  // these wrap: of `(v & 0x3fffffff) * 3` the largest value would be negative.
  if (strength > 0 && MayLeaveType(this, hidden)) return ask(0);
  return ask(strength);
}

bool Analyzer::CanProveEqual(const Expr& a, const Expr& b) {
  return Asked(
      [&] {
        const Function equal = TL_GLOBAL("sym.AnalyzerCanProveEqual");
        return equal(self_, Hidden(self_, a), Hidden(self_, b)).cast<bool>();
      },
      false);
}

Analyzer::Modular Analyzer::ModularSet(const Expr& e) {
  return ModularSetOfHidden(self_, KeepFactors(self_).Mutate(Hidden(self_, e)));
}

Analyzer::Bound Analyzer::ConstBound(const Expr& e) {
  return BoundOfHidden(self_, Hidden(self_, e));
}

Function Analyzer::EnterConstraint(const Expr& condition) {
  return TL_GLOBAL("sym.AnalyzerEnterConstraintContext")(self_, Hidden(self_, condition))
      .cast<Function>();
}

}  // namespace tl
