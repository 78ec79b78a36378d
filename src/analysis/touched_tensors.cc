#include "touched_tensors.h"

#include <utility>

#include "../tvm/attrs.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "effects.h"

namespace tl {
namespace {

class TouchCollector : public StmtExprVisitor {
 public:
  std::unordered_set<const Object*> touched;

 protected:
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const auto extent = AsInt(op->value);
      if (!extent || *extent < 1) return;
      numbers_.insert(NumberOf(op));
    }
    Visit(op->body);
  }
  void Visit_(const ForNode* op) final {
    Visit(op->min);
    Visit(op->extent);
    const auto extent = AsInt(op->extent);
    if (!extent || *extent < 1) return;
    if (IsNumber(op->min)) numbers_.insert(op->loop_var.get());
    Visit(op->body);
  }
  void Visit_(const WhileNode* op) final { Visit(op->condition); }
  void Visit_(const IfThenElseNode* op) final {
    Visit(op->condition);
    if (IsNumber(op->condition)) Visit(op->then_case);
  }
  void Visit_(const BindNode* op) final {
    if (IsNumber(op->value)) numbers_.insert(op->var.get());
    Visit(op->value);
  }
  // The second operand may not be computed.
  void Visit_(const AndNode* op) final { Visit(op->a); }
  void Visit_(const OrNode* op) final { Visit(op->a); }
  void Visit_(const CallNode* op) final {
    if (IsIfThenElse(op)) {
      Visit(op->args[0]);
    } else if (IsElementwise(op)) {
      for (const Expr& arg : op->args) Visit(arg);
    }
  }
  void Visit_(const TensorLoadNode* op) final {
    touched.insert(op->source.get());
    for (const Expr& i : op->indices) Visit(i);
  }
  void Visit_(const BufferStoreNode* op) final {
    touched.insert(op->buffer.get());
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }

 private:
  static const Object* NumberOf(const AttrStmtNode* op) {
    return op->node.cast<IterVar>()->var.get();
  }

  /*! Made of constants and of numbers of threads, blocks and iterations. */
  bool IsNumber(const Expr& e) const {
    return IsArithmetic(e) &&
           !HasNode<VarNode>(e, [this](const VarNode* v) { return !numbers_.count(v); });
  }

  std::unordered_set<const Object*> numbers_;
};

}  // namespace

std::unordered_set<const Object*> AlwaysTouched(const Stmt& kernel) {
  TouchCollector collector;
  if (!LeavesEarly(kernel)) collector(kernel);
  return std::move(collector.touched);
}

}  // namespace tl
