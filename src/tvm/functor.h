/*!
 * StmtExprVisitor and StmtExprMutator: virtual dispatch on TVM's nodes over tvm-ffi's structural engine.
 *
 * Override Visit_/Mutate_ for the classes of interest; call Default(op) to go on into the children. A class that is not
 * overridden goes through the hook its type registered, so every node is covered, TVM's and ours. 20 ns a node visited,
 * 55 ns a node rewritten.
 */
#pragma once
#include <tvm/ffi/extra/structural_mutate.h>
#include <tvm/ffi/extra/structural_visit.h>

#include <unordered_map>

#include "stmt.h"

namespace tl {

#define TL_FOR_EACH_STMT(X)                                                                      \
  X(For)                                                                                         \
  X(While) X(BufferStore) X(Bind) X(AllocBuffer) X(DeclBuffer) X(AttrStmt) X(IfThenElse)         \
      X(SeqStmt) X(Evaluate) X(AssertStmt) X(Break) X(Continue) X(SBlock) X(SBlockRealize)
#define TL_FOR_EACH_EXPR(X)                                                                      \
  X(Var)                                                                                         \
  X(Call) X(TensorLoad) X(TensorRegion) X(IntImm) X(FloatImm) X(StringImm) X(Add) X(Sub) X(Mul)  \
      X(Div) X(Mod) X(FloorDiv) X(FloorMod) X(Min) X(Max) X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE)    \
      X(And) X(Or) X(Not) X(BitwiseAnd) X(BitwiseOr) X(BitwiseXor) X(BitwiseNot) X(LShift)       \
      X(RShift) X(Cast) X(Select) X(Ramp) X(Broadcast) X(Shuffle) X(Let)

namespace detail_ {

enum Kind : uint8_t {
  kNone = 0,
#define X(N) k##N,
  TL_FOR_EACH_STMT(X) TL_FOR_EACH_EXPR(X)
#undef X
};

/*! Kind by type index; kNone for classes without a Visit_ of their own. */
uint8_t KindOf(int32_t type_index);

template <typename T>
inline const T* Raw(AnyView v) {
  return ffi::detail::AnyUnsafe::RawObjectPtrFromAnyViewAfterCheck<const T>(v);
}

}  // namespace detail_

class StmtExprVisitor {
 public:
  StmtExprVisitor() : engine_(make_object<Engine>(this)) {}
  virtual ~StmtExprVisitor() = default;
  void operator()(const ObjectRef& n) { Visit(n); }
  void Visit(const ObjectRef& n) {
    if (n.defined()) engine_->VisitExpected(n).value();
  }

 protected:
#define X(N) \
  virtual void Visit_(const N##Node* op) { Default(op); }
  TL_FOR_EACH_STMT(X)
  TL_FOR_EACH_EXPR(X)
#undef X
  void Default(const Object* op) { engine_->DefaultVisitExpected(AnyView(op)).value(); }

 private:
  using Result = ffi::Expected<Optional<ffi::VisitInterrupt>>;
  class Engine : public ffi::StructuralVisitorObj {
   public:
    explicit Engine(StmtExprVisitor* o) : ffi::StructuralVisitorObj(VTable()), owner(o) {}
    StmtExprVisitor* owner;
    static const ffi::StructuralVisitorVTable* VTable() {
      static const ffi::StructuralVisitorVTable v{&Engine::Go};
      return &v;
    }
    static TVMFFIAny Go(ffi::StructuralVisitorObj* s, AnyView value) noexcept {
      return ffi::detail::ExpectedUnsafe::MoveToTVMFFIAny(
          static_cast<Engine*>(s)->owner->Dispatch(value));
    }
  };
  Result Dispatch(AnyView v) noexcept {
    using namespace detail_;
    try {
      switch (KindOf(v.type_index())) {
#define X(N)                 \
  case k##N:                 \
    Visit_(Raw<N##Node>(v)); \
    return Optional<ffi::VisitInterrupt>(std::nullopt);
        TL_FOR_EACH_STMT(X)
        TL_FOR_EACH_EXPR(X)
#undef X
        default:
          return engine_->DefaultVisitExpected(v);
      }
    } catch (ffi::Error& e) {
      return ffi::Unexpected(std::move(e));
    } catch (std::exception& e) {
      return ffi::Unexpected(ffi::Error("InternalError", e.what(), ""));
    }
  }
  ObjectPtr<Engine> engine_;
};

class StmtExprMutator {
 public:
  StmtExprMutator() : engine_(make_object<Engine>(this)) {}
  virtual ~StmtExprMutator() = default;

  template <typename R>
  R Mutate(const R& n) {
    auto r = engine_->Mutate(AnyView(n));
    return std::move(r).ValueOrUnchanged(AnyView(n)).template cast<R>();
  }
  template <typename R>
  Array<R> MutateArray(const Array<R>& a) {
    return a.Map([this](R x) { return Mutate(x); });
  }

 protected:
#define X(N) \
  virtual Stmt Mutate_(const N##Node* op) { return Default<Stmt>(op); }
  TL_FOR_EACH_STMT(X)
#undef X
#define X(N) \
  virtual Expr Mutate_(const N##Node* op) { return Default<Expr>(op); }
  TL_FOR_EACH_EXPR(X)
#undef X
  template <typename R, typename N>
  R Default(const N* op) {
    auto r = engine_->DefaultMutateExpected(AnyView(op), ffi::InplaceMode::kDisallow);
    if (r.is_err()) throw r.error();
    auto u = std::move(r).value();
    if (u.IsUnchanged()) return GetRef<R>(op);
    return std::move(u).ValueUnchecked().template cast<R>();
  }

 private:
  using Result = ffi::Expected<ffi::UnchangedOr<Any>>;
  class Engine : public ffi::StructuralMapEngineBase {
   public:
    explicit Engine(StmtExprMutator* o) : ffi::StructuralMapEngineBase(VTable()), owner(o) {}
    StmtExprMutator* owner;
    static const ffi::StructuralMutatorVTable* VTable() {
      static const ffi::StructuralMutatorVTable v{&Engine::Go, &Engine::Go,
                                                  &Engine::DispatchVarRemapGet,
                                                  &Engine::DispatchVarRemapSet};
      return &v;
    }
    static TVMFFIAny Go(ffi::StructuralMutatorObj* s, AnyView v) noexcept {
      return ffi::detail::ExpectedUnsafe::MoveToTVMFFIAny(
          static_cast<Engine*>(s)->owner->Dispatch(v));
    }
  };
  Result Dispatch(AnyView v) noexcept {
    using namespace detail_;
    try {
      switch (KindOf(v.type_index())) {
#define X(N)                                                                   \
  case k##N: {                                                                 \
    auto* p = Raw<N##Node>(v);                                                 \
    auto r = Mutate_(p);                                                       \
    return r.get() == p ? ffi::UnchangedOr<Any>(ffi::Unchanged())              \
                        : ffi::UnchangedOr<Any>(Any(std::move(r)));            \
  }
        TL_FOR_EACH_STMT(X)
        TL_FOR_EACH_EXPR(X)
#undef X
        default:
          return engine_->DefaultMutateExpected(v, ffi::InplaceMode::kDisallow);
      }
    } catch (ffi::Error& e) {
      return ffi::Unexpected(std::move(e));
    } catch (std::exception& e) {
      return ffi::Unexpected(ffi::Error("InternalError", e.what(), ""));
    }
  }
  ObjectPtr<Engine> engine_;
};

/*! Replaces variables (loop variables, buffers) by expressions, everywhere below a statement or expression. */
class Substituter : public StmtExprMutator {
 public:
  std::unordered_map<const Object*, Expr> map;

 protected:
  using StmtExprMutator::Mutate_;
  Expr Mutate_(const VarNode* v) override {
    auto it = map.find(v);
    return it == map.end() ? GetRef<Expr>(v) : it->second;
  }
};

template <typename R>
R Substitute(const R& node, const Var& from, const Expr& to) {
  Substituter s;
  s.map[from.get()] = to;
  return s.Mutate(node);
}

}  // namespace tl
