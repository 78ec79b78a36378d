/*! Which threads of a block reach a statement of a tile program. */
#pragma once
#include <optional>
#include <vector>

#include "../../analysis/uniformity.h"
#include "../../tvm/functor.h"

namespace tl {

/*!
 * What stands around a statement, as a walk goes down to it. Control that all threads take together
 * counts for nothing; a condition on the thread's number is evaluated for every thread; other
 * control that threads take apart leaves the set unknown. With `kVisiblyInWarps`, "together" is
 * said of the lanes of each warp.
 */
class ReachingThreads {
 public:
  ReachingThreads(const Stmt& kernel, Uniformity::Asked asked, int64_t warp_threads);

  /*! Threads that run a statement here, nullopt where data decide. */
  const std::optional<ThreadSet>& Here() const { return stack_.back().threads; }
  /*! The innermost statement that leaves some threads out; undefined where there is none. */
  const Stmt& Control() const { return stack_.back().control; }
  /*! Whether all threads that are here have one value. */
  bool IsUniform(const Expr& e) const;

  /*! The condition leaves a known set, but is not about the thread's number alone. */
  bool IsMixed(const Expr& condition) const;

  void EnterBranch(const IfThenElseNode* branch, bool value);
  void EnterLoop(const ForNode* loop);
  void EnterLoop(const WhileNode* loop);
  void EnterRange(const AttrStmtNode* range);
  void Leave() { stack_.pop_back(); }
  void Note(const BindNode* name);

  const ThreadSet& Block() const { return stack_.front().threads.value(); }

 private:
  struct Place {
    std::optional<ThreadSet> threads;
    Stmt control;
  };
  void Enter(std::optional<ThreadSet> threads, const StmtNode* control);
  std::optional<ThreadSet> Restrict(const ThreadSet& from, const Expr& condition, bool value) const;
  template <typename Loop>
  void EnterAnyLoop(const Loop* loop);

  const Uniformity uniformity_;
  mutable Substituter names_;
  std::vector<Place> stack_;
};

}  // namespace tl
