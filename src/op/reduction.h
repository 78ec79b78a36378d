/*! What reductions, scans and reducers combine with: an associative function with its identity. */
#pragma once
#include <string>

#include "../tvm/build.h"

namespace tl {

class Reduction {
 public:
  /*! "sum", "max", "min", "bitand", "bitor", "bitxor", or of absolute values "abssum", "absmax".
   *  With `nan_propagate`, a NaN operand of max or min wins; else it loses. */
  static Reduction Named(const std::string& name, bool nan_propagate);

  /*! It is a sum, of floats if `t` is such a type. */
  bool AddsFloats(DLDataType t) const { return kind_ == Kind::kSum && t.code == kDLFloat; }
  Expr Identity(DLDataType t) const;
  Expr Combine(const Expr& a, const Expr& b) const;
  /*! What an element contributes: cast to the type of the result, its absolute value if so asked.
   */
  Expr Contribution(const Expr& element, DLDataType t) const;
  /*! The function in generated source, a class with `run(a, b)`: "tl::SumOp". */
  std::string DeviceName() const;

 private:
  enum class Kind { kSum, kMax, kMin, kAnd, kOr, kXor };
  Kind kind_ = Kind::kSum;
  bool absolute_ = false;
  bool nan_propagate_ = false;
};

}  // namespace tl
