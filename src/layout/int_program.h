/*! Evaluates integer index expressions at many points: an expression compiled to postfix once, run
 * at about 2 ns a step. */
#pragma once
#include <cstdint>
#include <vector>

#include "../tvm/build.h"

namespace tl {

class IntProgram {
 public:
  /*! `vars[i]` reads slot i of the point. Refuses expressions with other variables, loads or calls
   * (internal error). */
  IntProgram(const Expr& e, const std::vector<Var>& vars);
  int64_t operator()(const int64_t* point) const;

 private:
  enum class Code : uint8_t {
    kConst,
    kSlot,
    kAdd,
    kSub,
    kMul,
    kFloorDiv,
    kFloorMod,
    kMin,
    kMax,
    kXor,
    kAnd,
    kOr,
    kShl,
    kShr,
    kLT,
    kLE,
    kGT,
    kGE,
    kEQ,
    kNE,
    kSelect
  };
  struct Step {
    Code code;
    int64_t value;
  };
  void Compile(const Expr& e, const std::vector<Var>& vars);
  template <typename Node>
  bool TryBinary(const Expr& e, Code code, const std::vector<Var>& vars);
  void Emit(Code code, int64_t value, int stack_change);

  std::vector<Step> steps_;
  int depth_ = 0;
};

/*!
 * Every expression at every point of the box [0, extents), last variable fastest: points x
 * expressions.
 */
std::vector<int64_t> EvaluateOverBox(const Array<Expr>& exprs, const Array<Var>& vars,
                                     const std::vector<int64_t>& extents);

}  // namespace tl
