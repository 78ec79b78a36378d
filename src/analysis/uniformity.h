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
 *
 * That is what may be relied on. What is refused has to differ visibly: there, global memory is
 * like shared memory, a call of a function that nothing is known of has one value for the same
 * arguments, and a function of the thread's number is evaluated for the threads that are asked
 * about.
 * Lanes of one warp can be asked about, too: then the number of the warp is uniform.
 */
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "../tvm/stmt.h"
#include "effects.h"
#include "thread_set.h"

namespace tl {

class Uniformity {
 public:
  enum class Asked : uint8_t { kSurely, kVisibly, kVisiblyInWarps };

  explicit Uniformity(const Stmt& body) : Uniformity(body, Asked::kSurely, 0) {}
  /*! Warps of `warp_threads` matter; for kSurely only whether the block is one, all of whose
   * threads get what a vote or a shuffle gives its lanes. */
  Uniformity(const Stmt& body, Asked asked, int64_t warp_threads);
  bool IsUniform(const Expr& e) const { return IsUniform(e, nullptr); }
  bool IsUniform(const ForNode* loop) const { return IsUniform(loop, nullptr); }
  bool IsUniform(const WhileNode* loop) const { return IsUniform(loop, nullptr); }
  /*! The same for some threads, nullptr for all; but for kSurely, where it is no matter which. */
  bool IsUniform(const Expr& e, const ThreadSet* among) const;
  bool IsUniform(const ForNode* loop, const ThreadSet* among) const;
  bool IsUniform(const WhileNode* loop, const ThreadSet* among) const;

 private:
  class Propagation;
  class Judge;
  /*! Memory of which it is known what was written to it. */
  bool IsFollowed(const Var& buffer) const;

  const Asked asked_;
  const int64_t warp_threads_;
  bool one_warp_ = false;
  ThreadSet all_;
  /*! Names of functions of the thread's number. */
  std::unordered_map<const Object*, Expr> names_;
  std::unordered_set<const Object*> varying_;  // variables and local buffers
  const BufferWrites written_;
  std::unordered_set<const Object*>
      left_early_;  // loops that some threads leave or continue before others
};

}  // namespace tl
