/*!
 * Uniformity: which expressions have one value in all threads of a block, and which statements all
 * threads run together. In a range of threads (`tl.thread_range`), all threads are those of the
 * range.
 *
 * A value varies if it comes from a thread index, from a register or variable that was written with
 * a varying value or in a region that only some threads run, from one that a range writes and
 * others read too, from global memory that the kernel writes, or from a call that is not a function
 * of its arguments. Shared memory is uniform at a uniform index: ThreadSync orders its accesses, so
 * all threads that read an element between two barriers read the same value.
 */
#pragma once
#include <unordered_set>

#include "../../tvm/stmt.h"

namespace tl {

class Uniformity {
 public:
  explicit Uniformity(const Stmt& body);
  bool IsUniform(const Expr& e) const;
  bool IsUniform(const ForNode* loop) const;
  bool IsUniform(const WhileNode* loop) const;

 private:
  class Propagation;
  std::unordered_set<const Object*> varying_;  // variables and local buffers
  std::unordered_set<const Object*> written_;  // buffers
  std::unordered_set<const Object*>
      left_early_;  // loops that some threads leave or continue before others
};

}  // namespace tl
