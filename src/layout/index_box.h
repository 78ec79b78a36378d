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
  /*! Points that are evaluated together, and the value of each program at them. */
  struct Batch {
    int64_t count;
    const int64_t* slots;
    const int64_t* values;
    /*! Whether the conditions hold. */
    const bool* inside;
    int64_t Slot(size_t axis, int64_t k) const { return slots[axis * IntProgram::kMostPoints + k]; }
    int64_t Value(size_t program, int64_t k) const {
      return values[program * IntProgram::kMostPoints + k];
    }
  };
  /*! The same by batches, which also have points where a condition does not hold. */
  bool ForEachBatch(const std::vector<IntProgram>& programs,
                    const std::function<bool(const Batch&)>& visit) const;
  /*! Equal for boxes that have the same points; appended to `key`. */
  void AppendKey(std::vector<int64_t>* key) const;

 private:
  std::vector<Axis> axes_;
  std::vector<Var> vars_;
  std::vector<std::pair<IntProgram, bool>> required_;
};

}  // namespace tl
