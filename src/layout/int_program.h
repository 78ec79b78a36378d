/*! Evaluates integer index expressions at many points: an expression compiled to postfix once, each
 * step of which is run for many points at a time. */
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "../tvm/build.h"

namespace tl {

class IntProgram {
 public:
  /*! `vars[i]` reads slot i of the point. Refuses expressions with other variables, loads or calls
   * (internal error). */
  IntProgram(const Expr& e, const std::vector<Var>& vars);
  int64_t operator()(const int64_t* point) const;
  /*! Equal for programs that compute the same in the same way; appended to `key`. */
  void AppendKey(std::vector<int64_t>* key) const;
  /*! At `n` points, at most kMostPoints: slot i of point k is slots[i * kMostPoints + k]. */
  void Evaluate(const int64_t* slots, int64_t n, int64_t* values) const;
  static constexpr int64_t kMostPoints = 128;

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
    kSelect,
    /*! To the `value & 255` bits of an integer, signed if `value & 256`. */
    kWrap
  };
  /*! The second one of two operands may be the constant `value`. */
  struct Step {
    Code code;
    bool has_constant;
    int64_t value;
  };
  void Compile(const Expr& e, const std::vector<Var>& vars);
  void EmitBinary(Code code, const Expr& second, const std::vector<Var>& vars);
  template <typename Node>
  bool TryBinary(const Expr& e, Code code, const std::vector<Var>& vars);
  void EmitWrap(const DLDataType& type);
  void Emit(Step step, int stack_change);

  template <int64_t kStride>
  void Run(const int64_t* slots, int64_t n, int64_t* stack) const;

  std::vector<Step> steps_;
  int depth_ = 0, most_depth_ = 0;
};

/*! A table that is not changed any more, and shared. */
using SharedTable = std::shared_ptr<const std::vector<int64_t>>;
/*! Equal numbers; at once where both are one table. */
inline bool IsSame(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return &a == &b || a == b;
}

/*!
 * Every expression at every point of the box [0, extents), last variable fastest: points x
 * expressions. Who asks again within the same thread, if not too much later, gets the same table:
 * operators of a program infer the same few layouts.
 */
SharedTable EvaluateOverBox(const Array<Expr>& exprs, const Array<Var>& vars,
                            const std::vector<int64_t>& extents);

}  // namespace tl
