#include "hidden_operations.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "find.h"
#include "name_counts.h"
#include "registry.h"

namespace tl {
namespace {

// clang-format off
#define TL_FOR_EACH_HIDDEN_PAIR(X)                                       \
  X(Add) X(Sub) X(Mul) X(Div) X(Mod) X(FloorDiv) X(FloorMod) X(LShift)   \
  X(Min) X(Max) X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE)
// clang-format on

bool IsFloat(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && !IsIntegral(type->dtype) && type->dtype.code != kDLOpaqueHandle;
}

bool IsUnsigned(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && type->dtype.code == kDLUInt;
}

/*! The bits of a value of the type; the sign is none. */
int Digits(const DLDataType& t) {
  return t.code == kDLBool ? 1 : t.code == kDLInt ? t.bits - 1 : t.bits;
}

bool Holds(const DLDataType& type, const Analyzer::Bound& bound) {
  if (bound.min > bound.max) return false;  // not reached: TVM may take it for anything
  if (bound.min == INT64_MIN || bound.max == INT64_MAX) return false;
  const int digits = Digits(type);
  const int64_t most = digits >= 63 ? INT64_MAX : (int64_t{1} << digits) - 1;
  return bound.max <= most && bound.min >= (type.code == kDLInt ? -most - 1 : 0);
}

/*! A sum, product or shift that wraps, where TVM takes integers for numbers without ends. */
bool MayWrap(const Expr& e, const BoundOf& bound_of) {
  const DLDataType type = e->dtype();
  // There are no bounds of vectors.
  return IsModulo(type) && (type.lanes != 1 || !Holds(type, bound_of(e)));
}

bool CastMisleads(const CastNode* op, const BoundOf& bound_of) {
  const auto *from_type = op->value->ty.as<PrimTypeNode>(), *to_type = op->ty.as<PrimTypeNode>();
  if (!from_type || !to_type) return false;
  const DLDataType from = from_type->dtype, to = to_type->dtype;
  if (from.code == kDLOpaqueHandle || to.code == kDLOpaqueHandle) return false;
  const auto held_by = [&](const DLDataType& type) {
    if (to.lanes == 1) return Holds(type, bound_of(op->value));
    if (const auto* equal = op->value.as<BroadcastNode>()) {
      return Holds(type, bound_of(equal->value));
    }
    // TVM casts the step of a ramp, too.
    const auto* ramp = op->value.as<RampNode>();
    const std::optional<int64_t> step = ramp ? AsInt(ramp->stride) : std::nullopt;
    if (!step || !Holds(type, {*step, *step})) return false;
    const Analyzer::Bound first = bound_of(ramp->base);
    int64_t rise = 0, last = 0;
    return Holds(type, first) && !__builtin_mul_overflow(*step, int64_t{to.lanes} - 1, &rise) &&
           !__builtin_add_overflow(rise > 0 ? first.max : first.min, rise, &last) &&
           Holds(type, {last, last});
  };
  if (IsFloat(op->value)) return IsIntegral(to) || to.bits < from.bits;
  if (!IsIntegral(to)) {
    // Rounded, too, by the type of these bits that has the fewest digits.
    const int digits = to.bits < 16 ? 1 : to.bits == 16 ? 8 : to.bits == 32 ? 24 : 53;
    const Analyzer::Bound bound = bound_of(op->value);
    const int64_t most = int64_t{1} << digits;
    return to.lanes != 1 || bound.min < -most || bound.max > most;
  }
  return !HoldsAll(to, from) && !held_by(to);
}

/*! The constants of a part of a sum or of a comparison: at most their sum, and what that may be
 * multiplied by. */
struct Constants {
  double sum = 0, divisor = 1;
};

Constants operator+(const Constants& a, const Constants& b) {
  return {a.sum + b.sum, std::max(a.divisor, b.divisor)};
}

/*! TVM adds up the constants of a sum, brings those of a comparison to one side, and multiplies
 * them by divisors. */
Constants ConstantsOf(const Expr& e) {
  const auto size = [](const Expr& by) {
    const std::optional<int64_t> constant = AsInt(by);
    return constant ? std::abs(static_cast<double>(*constant)) : 1;
  };
  if (e.as<IntImmNode>()) return {size(e), 1};
  if (const auto* op = e.as<AddNode>()) return ConstantsOf(op->a) + ConstantsOf(op->b);
  if (const auto* op = e.as<SubNode>()) return ConstantsOf(op->a) + ConstantsOf(op->b);
  if (const auto* op = e.as<MinNode>()) return ConstantsOf(op->a) + ConstantsOf(op->b);
  if (const auto* op = e.as<MaxNode>()) return ConstantsOf(op->a) + ConstantsOf(op->b);
  if (const auto* op = e.as<MulNode>()) {
    const Constants inside = ConstantsOf(op->a);
    return {inside.sum * size(op->b), inside.divisor};
  }
  if (const auto* op = e.as<FloorDivNode>()) {
    const double by = std::max(size(op->b), 1.0);
    const Constants inside = ConstantsOf(op->a);
    return {inside.sum / by, inside.divisor * by};
  }
  return {};
}

/*! Whether constants may leave the type of `e`: TVM raises, or takes 2^31, which it makes of -2^31,
 * for its negative, so that x == -2^31 is false. */
bool AreLarge(double constants, const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && type->dtype.code == kDLInt && constants >= std::ldexp(1.0, type->dtype.bits - 1);
}

bool HasLargeConstants(const Expr& a, const Expr& b) {
  const Constants both = ConstantsOf(a) + ConstantsOf(b);
  return AreLarge(both.sum * both.divisor, a);
}

/*! TVM subtracts unsigned constants for it, one of x < c, too: no side may become zero. */
bool ComparisonMisleads(const Expr& a, const Expr& b, const BoundOf& bound_of) {
  if (!IsUnsigned(a)) return HasLargeConstants(a, b);
  const auto stays = [&](const Expr& e) {
    if (e->dtype().lanes != 1 || (!e.as<VarNode>() && !e.as<TensorLoadNode>())) return false;
    const Analyzer::Bound bound = bound_of(e);
    return bound.min < bound.max;
  };
  const auto is_positive = [](const Expr& e) { return AsInt(e).value_or(0) > 0; };
  return !(is_positive(a) && stays(b)) && !(is_positive(b) && stays(a));
}

bool DivisionMisleads(const Expr& divisor, const BoundOf& bound_of) {
  const auto* type = divisor->ty.as<PrimTypeNode>();
  if (!type || !IsIntegral(type->dtype) || type->dtype.lanes != 1) return false;
  const std::optional<int64_t> constant = AsInt(divisor);
  const Analyzer::Bound bound =
      constant ? Analyzer::Bound{*constant, *constant} : bound_of(divisor);
  if (bound.min != bound.max) return bound.min > bound.max;
  // TVM makes x * (c - 2) % c of x * -2 % c, which a large c has leave the type, and asks for the
  // absolute value of c, which the least integer has not.
  const int64_t large = int64_t{1} << type->dtype.bits * 3 / 4;
  const bool is_large = bound.min > large || bound.min < -large;
  return bound.min == 0 || (type->dtype.code == kDLInt && is_large);
}

constexpr const char* kIfThenElseOp = "prim.if_then_else";
constexpr const char* kHiddenCast = "tl.hidden.Cast";
constexpr const char* kHiddenIfThenElse = "tl.hidden.IfThenElse";
/*! A value that is not put in the place of its name. */
constexpr const char* kHiddenValue = "tl.hidden.Value";

/*! How much more often TVM simplifies the operands of an operation than the operation itself, as a
 * power of two. Those of floats are out of its sight. */
int WeightOf(const Expr& e) {
#define X(N, WEIGHT) \
  if (const auto* op = e.as<N##Node>()) return IsFloat(op->a) ? 0 : WEIGHT;
  X(Div, 1)
  X(Mod, 1)
  X(FloorDiv, 1)
  X(FloorMod, 1)
  // It looks at the sides in many forms.
  X(EQ, 3)
  X(NE, 3)
  X(LT, 3)
  X(LE, 3)
  X(GT, 3)
  X(GE, 3)
#undef X
  if (const auto* op = e.as<CastNode>()) return IsFloat(op->value) || IsFloat(e) ? 0 : 1;
  return IsCallTo(e, kHiddenCast) ? 1 : 0;
}

/*! The most weight of operations within each other, of names as much as they are given. */
class WeightFinder : public StmtExprVisitor {
 public:
  using Weights = std::unordered_map<const Object*, int>;
  explicit WeightFinder(const Weights& names) : names_(names) {}
  int Of(const Expr& e) {
    around_ = most_ = 0;
    Visit(e);
    return most_;
  }

 protected:
#define X(N) \
  void Visit_(const N##Node* op) override { Within(op); }
  TL_FOR_EACH_HIDDEN_PAIR(X)
  X(Cast)
  X(Call)
#undef X
  void Visit_(const VarNode* op) override {
    const auto it = names_.find(op);
    if (it != names_.end()) most_ = std::max(most_, around_ + it->second);
  }

 private:
  template <typename Node>
  void Within(const Node* op) {
    const int weight = WeightOf(GetRef<Expr>(op));
    around_ += weight;
    most_ = std::max(most_, around_);
    Default(op);
    around_ -= weight;
  }

  const Weights& names_;
  int around_ = 0, most_ = 0;
};

/*! The names whose values have too many names for TVM, which writes each name in them as its value
 * (`NameCounts`), or operations of more weight within each other: a chain of selections of what the
 * one before gives has three times as many with each link, one of quotients two more in each other.
 */
std::unordered_set<const Object*> WideNames(const Stmt& s) {
  std::unordered_set<const Object*> found;
  NameCounts counts;
  WeightFinder::Weights weight_of;
  WeightFinder weight_in(weight_of);
  ForEachIn<BindNode>(s, [&](const BindNode* op) {
    const int weight = weight_in.Of(op->value);
    const bool is_wide = !counts.Add(op->var, op->value) || weight > kMostWeight;
    if (is_wide) found.insert(op->var.get());
    weight_of[op->var.get()] = is_wide ? 0 : weight;
  });
  return found;
}

/*! A selection, quotient or comparison as a call of what it is made of, variables, loads and calls,
 * which holds the rest where TVM does not look: in attributes. */
constexpr const char* kHiddenPart = "tl.hidden.Part";

/*! Takes an operation out of an expression: what it is made of, and variables for that. */
class PartTaker : public StmtExprMutator {
 public:
  Array<Var> vars;
  Array<Expr> values;

 protected:
  Expr Mutate_(const VarNode* op) override { return Leaf(GetRef<Expr>(op)); }
  Expr Mutate_(const TensorLoadNode* op) override { return Leaf(GetRef<Expr>(op)); }
  Expr Mutate_(const CallNode* op) override {
    const Expr e = GetRef<Expr>(op);
    return IsCallTo(e, kIfThenElseOp) ? Default<Expr>(op) : Leaf(e);
  }

 private:
  Var Leaf(const Expr& e) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].same_as(e)) return vars[i];
    }
    vars.push_back(MakeVar("part", e->dtype()));
    values.push_back(e);
    return vars.back();
  }
};

class Hider : public StmtExprMutator {
 public:
  explicit Hider(const Misleads& misleads) : misleads_(misleads) {}

  Stmt Hide(const Stmt& s) {
    wide_ = WideNames(s);
    return Mutate(s);
  }

 protected:
#define X(N)                                                          \
  Expr Mutate_(const N##Node* op) override {                          \
    if (IsTooDeep(GetRef<Expr>(op))) return Part(GetRef<Expr>(op));   \
    const Expr e = Within(op);                                        \
    if (!IsFloat(op->a) && !misleads_(GetRef<Expr>(op), e)) return e; \
    const auto* n = e.as<N##Node>();                                  \
    return Hidden("tl.hidden." #N, {n->a, n->b}, n->ty, n->span);     \
  }
  TL_FOR_EACH_HIDDEN_PAIR(X)
#undef X

  Expr Mutate_(const CastNode* op) override {
    if (IsTooDeep(GetRef<Expr>(op))) return Part(GetRef<Expr>(op));
    const Expr e = Within(op);
    if (!misleads_(GetRef<Expr>(op), e)) return e;
    const auto* n = e.as<CastNode>();
    return Hidden(kHiddenCast, {n->value}, n->ty, n->span);
  }

  Stmt Mutate_(const BindNode* op) override {
    Bind bind = Default<Stmt>(op).as_or_throw<Bind>();
    if (!wide_.count(op->var.get())) return bind;
    bind.CopyOnWrite()->value = Hidden(kHiddenValue, {bind->value}, bind->value->ty, op->span);
    return bind;
  }
  Expr Mutate_(const CallNode* op) override {
    if (!IsCallTo(op, kIfThenElseOp)) return Default<Expr>(op);
    if (conditions_ == kMostConditions) return Part(GetRef<Expr>(op));
    ++conditions_;
    const Expr condition = Mutate(op->args[0]);
    --conditions_;
    const Array<Expr> args = {condition, Mutate(op->args[1]), Mutate(op->args[2])};
    return Hidden(conditions_ ? kHiddenIfThenElse : kIfThenElseOp, args, op->ty, op->span);
  }

 private:
  /*! TVM simplifies a comparison's sides several times, with all that they are made of. */
  static constexpr int kMostConditions = 2;

  bool IsTooDeep(const Expr& e) const {
    const int weight = WeightOf(e);
    return weight > 0 && weight_ + weight > kMostWeight;
  }
  template <typename Node>
  Expr Within(const Node* op) {
    const int weight = WeightOf(GetRef<Expr>(op));
    weight_ += weight;
    const Expr e = Default<Expr>(op);
    weight_ -= weight;
    return e;
  }
  Expr Part(const Expr& operation) {
    PartTaker taken;
    const Expr value = taken.Mutate(operation);
    // Its number tells it from others of the same values: TVM may compare operands alone.
    Array<Expr> args = {MakeInt(++parts_)};
    for (const Expr& e : taken.values) args.push_back(Mutate(e));
    Call call = Hidden(kHiddenPart, args, operation->ty, operation->span);
    call.CopyOnWrite()->attrs = MakeDict({{"vars", taken.vars}, {"value", value}});
    return call;
  }
  static Call Hidden(const char* op, const Array<Expr>& args, const Type& type, const Span& span) {
    Call call = CallOp(op, args, type);
    call.CopyOnWrite()->span = span;
    return call;
  }

  const Misleads& misleads_;
  std::unordered_set<const Object*> wide_;
  /*! How many conditions are around. */
  int conditions_ = 0;
  /*! The weight of the operations around the current one. */
  int weight_ = 0;
  int64_t parts_ = 0;
};

/*! The constant of the type, as C converts integers to it. */
Expr Wrapped(const ffi::BigInt& value, const DLDataType& type) {
  if (type.code == kDLBool) return MakeInt(type, value != 0);
  const ffi::BigInt count = ffi::BigInt(1) << int64_t{type.bits};
  ffi::BigInt bits = value & (count - 1);
  if (type.code == kDLInt && bits >= count / 2) bits -= count;
  auto n = make_object<IntImmNode>();
  n->ty = PrimTy(type);
  n->value = bits;
  return IntImm(n);
}

class Shower : public StmtExprMutator {
 protected:
  Expr Mutate_(const CallNode* op) override {
    const Expr e = Default<Expr>(op);
    const auto* call = e.as<CallNode>();
    const OpNode* callee = OpOf(call);
    if (!callee) return e;
    const std::string name = callee->name;
    if (name == kHiddenCast) return Cast_(call);
    if (name == kHiddenValue) return call->args[0];
    if (name == kHiddenPart) return Part_(call);
    if (name == kHiddenIfThenElse) {
      Call shown = CallOp(kIfThenElseOp, call->args, call->ty);
      shown.CopyOnWrite()->span = call->span;
      return shown;
    }
#define X(N)                              \
  if (name == "tl.hidden." #N) {          \
    auto n = make_object<N##Node>();      \
    n->a = call->args[0];                 \
    n->b = call->args[1];                 \
    n->ty = call->ty;                     \
    n->span = call->span;                 \
    return Computed(Expr(n), n->a, n->b); \
  }
    TL_FOR_EACH_HIDDEN_PAIR(X)
#undef X
    return e;
  }

 private:
  static Expr Part_(const CallNode* call) {
    const auto& held = call->attrs.as_or_throw<DictAttrs>()->__dict__;
    const auto vars = held.at("vars").cast<Array<Var>>();
    Substituter values;
    for (size_t i = 0; i < vars.size(); ++i) values.map[vars[i].get()] = call->args[i + 1];
    return values.Mutate(held.at("value").cast<Expr>());
  }

  static Expr Cast_(const CallNode* call) {
    const Expr& value = call->args[0];
    const DLDataType to = call->ty.as<PrimTypeNode>()->dtype;
    if (IsIntegral(to)) {
      if (const auto* constant = value.as<IntImmNode>()) return Wrapped(constant->value, to);
    }
    auto n = make_object<CastNode>();
    n->value = value;
    n->ty = call->ty;
    n->span = call->span;
    return Expr(n);
  }

  static Expr Computed(const Expr& e, const Expr& a, const Expr& b) {
    const auto *x = a.as<IntImmNode>(), *y = b.as<IntImmNode>();
    if (!x || !y) return e;
    const DLDataType type = e->dtype();
    if (e.as<AddNode>()) return Wrapped(x->value + y->value, type);
    if (e.as<SubNode>()) return Wrapped(x->value - y->value, type);
    if (e.as<MulNode>()) return Wrapped(x->value * y->value, type);
    if (e.as<EQNode>()) return MakeInt(type, x->value == y->value);
    if (e.as<NENode>()) return MakeInt(type, x->value != y->value);
    if (e.as<LTNode>()) return MakeInt(type, x->value < y->value);
    if (e.as<LENode>()) return MakeInt(type, x->value <= y->value);
    if (e.as<GTNode>()) return MakeInt(type, x->value > y->value);
    if (e.as<GENode>()) return MakeInt(type, x->value >= y->value);
    return e;
  }
};

Registration hidden_operations_registration([] {
#define X(N) RegisterOp("tl.hidden." #N, "tl.hidden." #N, CallEffect::kPure);
  TL_FOR_EACH_HIDDEN_PAIR(X)
  X(Cast)
  X(IfThenElse)
  X(Part)
#undef X
  // What has an effect TVM leaves where it is.
  RegisterOp(kHiddenValue, kHiddenValue, CallEffect::kOpaque);
});

}  // namespace

bool IsIntegral(const DLDataType& type) {
  return type.code == kDLInt || type.code == kDLUInt || type.code == kDLBool;
}

bool IsModulo(const DLDataType& type) {
  return type.code == kDLUInt || (type.code == kDLInt && type.bits < 32);
}

int WeightIn(const Expr& e) {
  const WeightFinder::Weights none;
  return WeightFinder(none).Of(e);
}

bool HoldsAll(const DLDataType& type, const DLDataType& of) {
  const bool sign = of.code != kDLInt || type.code == kDLInt;
  return sign && Digits(type) >= Digits(of);
}

bool MisleadsTvm(const Expr& e, const BoundOf& bound_of) {
  if (const auto* op = e.as<CastNode>()) return CastMisleads(op, bound_of);
  if ((e.as<AddNode>() || e.as<SubNode>()) && AreLarge(ConstantsOf(e).sum, e)) return true;
  if (const auto* op = e.as<MulNode>()) {
    if (AreLarge((ConstantsOf(op->a) + ConstantsOf(op->b)).sum, e)) return true;
  }
  if (const auto* op = e.as<SubNode>()) return IsUnsigned(op->a) || MayWrap(e, bound_of);
  if (e.as<AddNode>() || e.as<MulNode>() || e.as<LShiftNode>()) return MayWrap(e, bound_of);
#define X(N) \
  if (const auto* op = e.as<N##Node>()) return ComparisonMisleads(op->a, op->b, bound_of);
  X(LT)
  X(LE)
  X(GT)
  X(GE)
#undef X
#define X(N) \
  if (const auto* op = e.as<N##Node>()) return HasLargeConstants(op->a, op->b);
  X(EQ)
  X(NE)
#undef X
#define X(N) \
  if (const auto* op = e.as<N##Node>()) return DivisionMisleads(op->b, bound_of);
  X(Div)
  X(Mod)
  X(FloorDiv)
  X(FloorMod)
#undef X
  return false;
}

Stmt HideOperations(const Stmt& s, const Misleads& misleads) { return Hider(misleads).Hide(s); }
Expr HideOperations(const Expr& e, const Misleads& misleads) { return Hider(misleads).Mutate(e); }
Stmt ShowOperations(const Stmt& s) { return Shower().Mutate(s); }
Expr ShowOperations(const Expr& e) { return Shower().Mutate(e); }

}  // namespace tl
