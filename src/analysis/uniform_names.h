/*!
 * Names whose values all threads of a block have in common for a reason that a compiler of the
 * device sees, too: scalar parameters and sizes of tensors, numbers of blocks, variables of loops
 * that all threads run from the same number on, and names of what is made of these. `Uniformity`
 * finds more, as what is read from memory.
 */
#pragma once
#include <unordered_set>

#include "../tvm/attrs.h"
#include "../tvm/find.h"
#include "../tvm/functor.h"
#include "effects.h"

namespace tl {

class UniformNames : public StmtExprVisitor {
 public:
  explicit UniformNames(const PrimFunc& f) {
    for (const Var& p : f->params) {
      if (!AsBuffer(p)) {
        found_.insert(p.get());
        continue;
      }
      for (const Var& size : SizeSymbolsOf(p)) found_.insert(size.get());
    }
    (*this)(f->body);
  }

  /*! An integer made of such names. */
  bool Has(const Expr& e) const {
    return IsPureInteger(e) &&
           !HasNode<VarNode>(e, [&](const VarNode* v) { return !found_.count(v); });
  }

  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      const auto axis = op->node.cast<IterVar>();
      if (IsBlockAxis(axis)) found_.insert(axis->var.get());
    }
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    const bool is_loop = op->kind == ForKind::kSerial || op->kind == ForKind::kUnrolled;
    if (is_loop && Has(op->min)) found_.insert(op->loop_var.get());
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    if (Has(op->value)) found_.insert(op->var.get());
    Default(op);
  }

 private:
  std::unordered_set<const Object*> found_;
};

}  // namespace tl
