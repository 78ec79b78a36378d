/*!
 * A box of integer variables, and visiting every point of it: how questions about indices with
 * constant ranges are decided, by looking.
 */
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "int_program.h"

namespace tl {

/*! A variable and the constant range of its values. */
struct Axis {
  Var var;
  int64_t min;
  int64_t extent;
};

/*! The axis of a loop; nullopt where its range is not constant and not empty, or its step is not 1.
 */
std::optional<Axis> AxisOf(const ForNode* loop);

class IndexBox {
 public:
  explicit IndexBox(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  /*! Number of points; INT64_MAX where that is too many to count. */
  int64_t Points() const;
  /*! Whether `e` can be evaluated at a point: no other variables, no memory, no division that may
   * be by zero. */
  bool CanEvaluate(const Expr& e) const;
  IntProgram Compile(const Expr& e) const { return IntProgram(e, vars_); }
  /*! Leaves out the points where `condition` does not have `value`. False if a part of the
   * condition cannot be evaluated; the points are then more than those that have it. */
  bool Require(const Expr& condition, bool value);
  /*! Visits the points, the last axis fastest, until `visit` returns false; false if it did. */
  bool ForEach(const std::function<bool(const std::vector<int64_t>& point)>& visit) const;
  /*! The same with the value of each program at the point; many points are evaluated at a time. */
  bool ForEach(const std::vector<IntProgram>& programs,
               const std::function<bool(const std::vector<int64_t>& point,
                                        const std::vector<int64_t>& values)>& visit) const;

 private:
  std::vector<Axis> axes_;
  std::vector<Var> vars_;
  std::vector<std::pair<IntProgram, bool>> required_;
};

}  // namespace tl
