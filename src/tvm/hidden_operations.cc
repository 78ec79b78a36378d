#include "hidden_operations.h"

#include <cmath>

#include "functor.h"
#include "registry.h"

namespace tl {
namespace {

#define TL_FOR_EACH_HIDDEN_PAIR(X) \
  X(Add)                           \
  X(Sub)                           \
  X(Mul) X(Div) X(Mod) X(FloorDiv) X(FloorMod) X(Min) X(Max) X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE)

bool IsIntegral(const DLDataType& t) {
  return t.code == kDLInt || t.code == kDLUInt || t.code == kDLBool;
}

bool IsFloat(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && !IsIntegral(type->dtype) && type->dtype.code != kDLOpaqueHandle;
}

bool IsUnsigned(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && type->dtype.code == kDLUInt && type->dtype.lanes == 1;
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

bool HoldsAll(const DLDataType& type, const DLDataType& of) {
  const bool sign = of.code != kDLInt || type.code == kDLInt;
  return sign && Digits(type) >= Digits(of);
}

bool CastMisleads(Analyzer* analyzer, const CastNode* op) {
  if (!op->value->ty.as<PrimTypeNode>() || !op->ty.as<PrimTypeNode>()) return false;
  const DLDataType from = op->value->dtype(), to = op->ty.as<PrimTypeNode>()->dtype;
  if (from.code == kDLOpaqueHandle || to.code == kDLOpaqueHandle || to.lanes != 1) return false;
  const bool to_float = !IsIntegral(to);
  if (IsFloat(op->value)) return !to_float || to.bits < from.bits;
  if (to_float) {
    // Of the types of 16 bits float16 has the least range, 65504.
    return to.bits < 16 ||
           (to.bits == 16 && !Holds(DLDataType{kDLInt, 16, 1}, analyzer->ConstBound(op->value)));
  }
  return !HoldsAll(to, from) && !Holds(to, analyzer->ConstBound(op->value));
}

bool IsComparedSafely(Analyzer* analyzer, const Expr& a, const Expr& b) {
  const auto varies = [&](const Expr& e) {
    const Analyzer::Bound bound = analyzer->ConstBound(e);
    return bound.min < bound.max;
  };
  return (a.as<IntImmNode>() && varies(b)) || (b.as<IntImmNode>() && varies(a));
}

bool DivisionMisleads(Analyzer* analyzer, const Expr& divisor) {
  const auto* type = divisor->ty.as<PrimTypeNode>();
  if (!type || !IsIntegral(type->dtype) || type->dtype.lanes != 1) return false;
  if (divisor.as<IntImmNode>()) return AsInt(divisor) == 0;
  const Analyzer::Bound bound = analyzer->ConstBound(divisor);
  return bound.min > bound.max || (bound.min == 0 && bound.max == 0);
}

class Hider : public StmtExprMutator {
 public:
  explicit Hider(const Misleads& misleads) : misleads_(misleads) {}

 protected:
  using StmtExprMutator::Mutate_;
#define X(N)                                                      \
  Expr Mutate_(const N##Node* op) override {                      \
    const bool hide = IsFloat(op->a) || Hides(op);                \
    const Expr e = Default<Expr>(op);                             \
    if (!hide) return e;                                          \
    const auto* n = e.as<N##Node>();                              \
    return Hidden("tl.hidden." #N, {n->a, n->b}, n->ty, n->span); \
  }
  TL_FOR_EACH_HIDDEN_PAIR(X)
#undef X

  Expr Mutate_(const CastNode* op) override {
    const bool hide = misleads_(GetRef<Expr>(op));
    const Expr e = Default<Expr>(op);
    if (!hide) return e;
    const auto* n = e.as<CastNode>();
    return Hidden("tl.hidden.Cast", {n->value}, n->ty, n->span);
  }

 private:
  static Call Hidden(const char* op, const Array<Expr>& args, const Type& type, const Span& span) {
    Call call = CallOp(op, args, type);
    call.CopyOnWrite()->span = span;
    return call;
  }

  bool Hides(const SubNode* op) const { return IsUnsigned(op->a); }
  template <typename Node>
  bool Hides(const Node* op) const {
    return misleads_(GetRef<Expr>(op));
  }

  const Misleads& misleads_;
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
  using StmtExprMutator::Mutate_;
  Expr Mutate_(const CallNode* op) override {
    const Expr e = Default<Expr>(op);
    const auto* call = e.as<CallNode>();
    const OpNode* callee = OpOf(call);
    if (!callee) return e;
    const std::string name = callee->name;
    if (name == "tl.hidden.Cast") return Cast_(call);
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
    if (e.as<SubNode>()) return Wrapped(x->value - y->value, type);
    if (e.as<LTNode>()) return MakeInt(type, x->value < y->value);
    if (e.as<LENode>()) return MakeInt(type, x->value <= y->value);
    if (e.as<GTNode>()) return MakeInt(type, x->value > y->value);
    if (e.as<GENode>()) return MakeInt(type, x->value >= y->value);
    return e;
  }
};

Registration registration([] {
#define X(N) RegisterOp("tl.hidden." #N, "tl.hidden." #N, CallEffect::kPure);
  TL_FOR_EACH_HIDDEN_PAIR(X)
  X(Cast)
#undef X
});

}  // namespace

bool MisleadsTvm(Analyzer* analyzer, const Expr& e) {
  if (const auto* op = e.as<CastNode>()) return CastMisleads(analyzer, op);
#define X(N)                                                               \
  if (const auto* op = e.as<N##Node>()) {                                  \
    return IsUnsigned(op->a) && !IsComparedSafely(analyzer, op->a, op->b); \
  }
  X(LT)
  X(LE)
  X(GT) X(GE)
#undef X
#define X(N) \
  if (const auto* op = e.as<N##Node>()) return DivisionMisleads(analyzer, op->b);
      X(Div) X(Mod) X(FloorDiv) X(FloorMod)
#undef X
          return false;
}

Stmt HideOperations(const Stmt& s, const Misleads& misleads) { return Hider(misleads).Mutate(s); }
Expr HideOperations(const Expr& e, const Misleads& misleads) { return Hider(misleads).Mutate(e); }
Stmt ShowOperations(const Stmt& s) { return Shower().Mutate(s); }
Expr ShowOperations(const Expr& e) { return Shower().Mutate(e); }

}  // namespace tl
