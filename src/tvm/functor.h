/*!
 * StmtExprVisitor and StmtExprMutator: virtual dispatch on TVM's nodes over tvm-ffi's structural
 * engine.
 *
 * Override Visit_/Mutate_ for the classes of interest; call Default(op) to go on into the children.
 * A class that is not overridden goes through the hook its type registered, so every node is
 * covered, TVM's and ours. 20 ns a node visited, 55 ns a node rewritten.
 */
#pragma once
#include <tvm/ffi/extra/structural_mutate.h>
#include <tvm/ffi/extra/structural_visit.h>

#include <unordered_map>
#include <vector>

#include "stmt.h"

namespace tl {

// The classes that Visit_ and Mutate_ know by name. clang-format would indent by juxtaposition.
// clang-format off
#define TL_FOR_EACH_STMT(X)                                              \
  X(For) X(While) X(BufferStore) X(Bind) X(AllocBuffer) X(DeclBuffer)    \
  X(AttrStmt) X(IfThenElse) X(SeqStmt) X(Evaluate) X(AssertStmt)         \
  X(Break) X(Continue) X(SBlock) X(SBlockRealize)
#define TL_FOR_EACH_EXPR(X)                                              \
  X(Var) X(Call) X(TensorLoad) X(TensorRegion)                           \
  X(IntImm) X(FloatImm) X(StringImm)                                     \
  X(Add) X(Sub) X(Mul) X(Div) X(Mod) X(FloorDiv) X(FloorMod)             \
  X(Min) X(Max) X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE) X(And) X(Or) X(Not)  \
  X(BitwiseAnd) X(BitwiseOr) X(BitwiseXor) X(BitwiseNot)                 \
  X(LShift) X(RShift)                                                    \
  X(Cast) X(Select) X(Ramp) X(Broadcast) X(Shuffle) X(Let)
// clang-format on

class StmtExprVisitor {
 public:
  StmtExprVisitor();
  virtual ~StmtExprVisitor();
  void operator()(const ObjectRef& n) { Visit(n); }
  void Visit(const ObjectRef& n);

 protected:
#define X(N) virtual void Visit_(const N##Node* op);
  TL_FOR_EACH_STMT(X)
  TL_FOR_EACH_EXPR(X)
#undef X
  void Default(const Object* op);

 private:
  class Engine;
  ObjectPtr<Engine> engine_;
};

class StmtExprMutator {
 public:
  StmtExprMutator();
  virtual ~StmtExprMutator();

  template <typename R>
  R Mutate(const R& n) {
    return MutateAny(AnyView(n)).template cast<R>();
  }
  template <typename R>
  Array<R> MutateArray(const Array<R>& a) {
    return a.Map([this](R x) { return Mutate(x); });
  }

 protected:
#define X(N) virtual Stmt Mutate_(const N##Node* op);
  TL_FOR_EACH_STMT(X)
#undef X
#define X(N) virtual Expr Mutate_(const N##Node* op);
  TL_FOR_EACH_EXPR(X)
#undef X
  template <typename R>
  R Default(const Object* op) {
    return DefaultAny(op).template cast<R>();
  }

 private:
  class Engine;
  Any MutateAny(AnyView n);
  Any DefaultAny(const Object* op);
  ObjectPtr<Engine> engine_;
};

/*! Whether a variable (or buffer) is mentioned below a statement or expression. */
bool Uses(const ObjectRef& node, const Var& v);
/*! The variables mentioned below a statement or expression, each as often as that. */
std::vector<Var> VarsOf(const ObjectRef& node);
/*! Whether one of the ops is called below a statement or expression. */
bool HasCall(const ObjectRef& node, const std::vector<const char*>& ops);

/*! Replaces variables (loop variables, buffers) by expressions, everywhere below a statement or
 * expression. */
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
