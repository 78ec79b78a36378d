/*! Where reads of global memory may move over waits in a kernel with T.pdl_sync. */
#pragma once
#include <vector>

#include "../../op/intrinsics.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"

namespace tl {

/*!
 * T.pdl_sync waits for the kernel before this one, which may write what this one reads. Threads
 * that come to it know that it has ended, and so do those that wait at an mbarrier for them: one
 * role may wait for the kernel, and the others for that role. A read of theirs must not move over
 * the wait at the mbarrier.
 */
class LaunchWaits {
 public:
  explicit LaunchWaits(const Stmt& kernel) : any_(HasCall(kernel, {kPdlSync})) {}

  /*! No wait at an mbarrier stands for T.pdl_sync: the kernel has none, or the threads have come to
   * it themselves. */
  bool MayMoveReads() const { return !any_ || is_behind_; }

  /*! The statements of a sequence as `mutate` makes them, one after the other. */
  template <typename Mutate>
  Stmt InOrder(const SeqStmtNode* op, Mutate mutate) {
    const bool outside = is_behind_;
    std::vector<Stmt> out;
    for (const Stmt& s : FlatSeq(GetRef<Stmt>(op))) {
      out.push_back(mutate(s));
      const auto* call = s.as<EvaluateNode>();
      is_behind_ |= call && IsCallTo(call->value, kPdlSync);
    }
    is_behind_ = outside;
    return MakeSeq(out);
  }

 private:
  const bool any_;
  bool is_behind_ = false;
};

}  // namespace tl
