/*! Variables in the places of expressions. */
#pragma once
#include <tvm/ffi/extra/structural_equal.h>

#include <utility>
#include <vector>

#include "../tvm/functor.h"

namespace tl {

/*! Puts variables in the places of sums, quotients, remainders and other variables. */
class ExpressionNamer : public StmtExprMutator {
 public:
  std::vector<std::pair<Expr, Var>> names;

 protected:
  Expr Mutate_(const AddNode* op) final { return Named(op); }
  Expr Mutate_(const FloorDivNode* op) final { return Named(op); }
  Expr Mutate_(const FloorModNode* op) final { return Named(op); }
  Expr Mutate_(const VarNode* op) final { return Named(op); }

 private:
  template <typename Node>
  Expr Named(const Node* op) {
    for (const auto& [e, name] : names) {
      if (e.template as<Node>() && tvm::ffi::StructuralEqual()(e, GetRef<Expr>(op))) return name;
    }
    return Default<Expr>(op);
  }
};

}  // namespace tl
