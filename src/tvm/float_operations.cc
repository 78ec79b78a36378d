#include "float_operations.h"

#include "functor.h"
#include "registry.h"

namespace tl {
namespace {

#define TL_FOR_EACH_FLOAT_OPERATION(X) \
  X(Add)                               \
  X(Sub)                               \
  X(Mul) X(Div) X(Mod) X(FloorDiv) X(FloorMod) X(Min) X(Max) X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE)

bool IsFloat(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && type->dtype.code != kDLInt && type->dtype.code != kDLUInt &&
         type->dtype.code != kDLBool && type->dtype.code != kDLOpaqueHandle;
}

class FloatHider : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
#define X(N)                                                 \
  Expr Mutate_(const N##Node* op) override {                 \
    const Expr e = Default<Expr>(op);                        \
    if (!IsFloat(op->a)) return e;                           \
    const auto* n = e.as<N##Node>();                         \
    Call call = CallOp("tl.float." #N, {n->a, n->b}, n->ty); \
    call.CopyOnWrite()->span = n->span;                      \
    return call;                                             \
  }
  TL_FOR_EACH_FLOAT_OPERATION(X)
#undef X
};

class FloatShower : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
  Expr Mutate_(const CallNode* op) override {
    const Expr e = Default<Expr>(op);
    const auto* call = e.as<CallNode>();
    const OpNode* callee = OpOf(call);
    if (!callee) return e;
    const std::string name = callee->name;
#define X(N)                         \
  if (name == "tl.float." #N) {      \
    auto n = make_object<N##Node>(); \
    n->a = call->args[0];            \
    n->b = call->args[1];            \
    n->ty = call->ty;                \
    n->span = call->span;            \
    return Expr(n);                  \
  }
    TL_FOR_EACH_FLOAT_OPERATION(X)
#undef X
    return e;
  }
};

PrimFunc HideFloatsPass(PrimFunc f) { return WithBody(f, HideFloats(f->body)); }
PrimFunc ShowFloatsPass(PrimFunc f) { return WithBody(f, ShowFloats(f->body)); }

Registration registration([] {
#define X(N) RegisterOp("tl.float." #N, "tl.float." #N, CallEffect::kPure);
  TL_FOR_EACH_FLOAT_OPERATION(X)
#undef X
  RegisterPass("HideFloats", HideFloatsPass);
  RegisterPass("ShowFloats", ShowFloatsPass);
});

}  // namespace

Stmt HideFloats(const Stmt& s) { return FloatHider().Mutate(s); }
Expr HideFloats(const Expr& e) { return FloatHider().Mutate(e); }
Stmt ShowFloats(const Stmt& s) { return FloatShower().Mutate(s); }
Expr ShowFloats(const Expr& e) { return FloatShower().Mutate(e); }

}  // namespace tl
