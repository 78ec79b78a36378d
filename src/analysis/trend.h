/*! Trends: whether an integer grows or shrinks with a variable. */
#pragma once
#include <cstdint>
#include <unordered_map>

#include "../tvm/analyzer.h"

namespace tl {

/*! With a variable that grows an integer stays the same, does not shrink, does not grow, or nothing
 * is known. */
enum class Trend : uint8_t { kConstant, kUp, kDown, kUnknown };

class Trends {
 public:
  explicit Trends(Analyzer* analyzer) : analyzer_(analyzer) {}

  /*! Says what a name stands for. */
  void Name(const BindNode* bind) { values_[bind->var.get()] = bind->value; }
  /*! That of `e` as `v` grows and all other variables stay. It is unknown where the value may leave
   * its type and wrap, which int32 and int64 do not (hidden_operations.h). */
  Trend Of(const Expr& e, const Var& v) const;

 private:
  /*! Constant or unknown. */
  Trend OfOther(const Expr& e, const Var& v) const;
  Trend OfProduct(const Expr& a, const Expr& b, const Var& v) const;
  Trend OfQuotient(const Expr& a, const Expr& b, const Var& v) const;

  Analyzer* analyzer_;
  std::unordered_map<const Object*, Expr> values_;
};

}  // namespace tl
