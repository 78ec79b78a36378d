/*!
 * Bounds of integers as the program means them: computed in int64, where nothing wraps, with
 * dimensions up to what their type holds. TVM's own bounds of an int32 expression end at its
 * limits.
 */
#pragma once
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

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

  /*! What variables were known to be, to be put back. */
  using Before = std::vector<std::pair<const Object*, std::optional<Var>>>;
  /*! The comparison `fact`, or each of several, holds from now on. */
  void Assume(const Expr& fact, Before* before);
  void PutBack(const Before& before);

  Bound Of(const Expr& e) { return analyzer_.ConstBound(Wide(e)); }
  bool FitInt32(const Expr& e);
  /*! The same if values of which only the type is known are small: sums of those are the user's. */
  bool FitInt32IfOthersAreSmall(const Expr& e);

 private:
  void Set(const Var& v, int64_t min, int64_t max);
  void Bind(const Var& twin, int64_t min, int64_t max);
  /*! `smaller` is at most `larger` - `by`. */
  void AssumeOrder(const Expr& smaller, const Expr& larger, int64_t by, Before* before);
  void Narrow(const Expr& e, int64_t min, int64_t max, Before* before);
  Expr Wide(const Expr& e);

  bool others_are_small_ = false;
  Analyzer analyzer_;
  std::unordered_map<const Object*, Var> twins_;
};

}  // namespace tl
