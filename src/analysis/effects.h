/*! What expressions depend on and what statements change. */
#pragma once
#include <optional>
#include <unordered_set>
#include <utility>

#include "../tvm/build.h"

namespace tl {

/*! The buffers that a statement may write: stores, results of tile operators, pointer arguments
 * that write, and pointers whose use is not known. */
std::unordered_set<const Object*> WrittenBuffers(const Stmt& s);

/*! The same, collected when first asked about: few passes ever ask. */
class BufferWrites {
 public:
  explicit BufferWrites(Stmt s) : statement_(std::move(s)) {}
  bool Has(const Object* buffer) const {
    if (!buffers_) buffers_ = WrittenBuffers(statement_);
    return buffers_->count(buffer) != 0;
  }

 private:
  Stmt statement_;
  mutable std::optional<std::unordered_set<const Object*>> buffers_;
};

/*! Made of variables and arithmetic alone: its value is the same wherever its variables are in
 * scope, and nobody sees that it is computed. */
bool IsArithmetic(const Expr& e);

/*! An integer that is `IsArithmetic`. */
bool IsPureInteger(const Expr& e);

/*! Does a call do more than to give a value, by the kind of its op in TVM's table? An intrinsic
 * does unless it is elementwise. */
bool HasEffect(const CallNode* call);
/*! Does a call in it? */
bool HasEffect(const Expr& e);

/*! A call in it writes through a pointer, or is one to a function of which nothing is known: who
 * computes the value once more does that once more. */
bool WritesMemory(const Expr& e);

/*! What is left of a sequence without statements. */
bool IsNothing(const Stmt& s);

/*! Jumps, as TVM's nodes and as the calls that its parser makes. */
bool IsBreak(const Stmt& s);
bool IsContinue(const Stmt& s);
/*! One of these, or the end of a thread, is in the statement. */
bool LeavesEarly(const Stmt& s);

/*! `if_then_else(condition, a, b)`, which evaluates one of a and b. */
bool IsIfThenElse(const CallNode* call);

/*! A function of its arguments' values that applies to each lane by itself. */
bool IsElementwise(const CallNode* call);

}  // namespace tl
