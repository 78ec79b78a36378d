/*!
 * Bounds of integers as the program means them: computed in int64, where nothing wraps, with
 * dimensions up to what their type holds. TVM's own bounds of an int32 expression end at its
 * limits.
 */
#pragma once
#include <unordered_map>

#include "../../tvm/analyzer.h"

namespace tl {

class WideBounds {
 public:
  using Bound = Analyzer::Bound;

  /*! `v` is in [min, min + extent). */
  void Range(const Var& v, const Expr& min, const Expr& extent);
  void Value(const BindNode* bind);
  /*! Variables in the parameters' shapes and strides. */
  void Shapes(const PrimFunc& f);

  Bound Of(const Expr& e) { return analyzer_.ConstBound(Wide(e)); }
  bool FitInt32(const Expr& e);
  /*! The same if values of which only the type is known are small: sums of those are the user's. */
  bool FitInt32IfOthersAreSmall(const Expr& e);

 private:
  void Set(const Var& v, int64_t min, int64_t max);
  void Bind(const Var& twin, int64_t min, int64_t max);
  Expr Wide(const Expr& e);

  bool others_are_small_ = false;
  Analyzer analyzer_;
  std::unordered_map<const Object*, Var> twins_;
};

}  // namespace tl
