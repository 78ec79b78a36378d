/*!
 * CountAsyncOperations: waits for groups become waits for operations, where hardware counts these.
 *
 * In:  a thread program with commits and waits of the queue of thread copies, whose waits name the
 *      number of youngest groups that may be in flight.
 * Out: the same where the target's queue counts groups (AsyncQueueRow::counts_operations). Else no
 *      commits, and `tl.wait_vmcnt<n>` for each wait: n is the number of groups times the fewest
 *      operations that a group certainly has, at most what the wait can count.
 * Establishes: the operations that a wait for groups completes are complete. Operations end in the
 *      order of their issue, and at least n are younger than the youngest that has to be complete;
 *      other accesses of memory that the hardware counts only make the wait longer.
 * Refuses nothing. A group whose operations stand in a branch, or in a loop whose extent is not a
 *      number, has none for certain: then waits are for all operations.
 */
#include <algorithm>

#include "../../op/intrinsics.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

bool IsStatementOf(const Stmt& s, const char* intrinsic) {
  const auto* op = s.as<EvaluateNode>();
  return op && IsCallTo(op->value, intrinsic);
}

/*! Operations that a statement issues for certain, whoever runs it. */
int64_t CertainOperations(const Stmt& s) {
  if (const auto* op = s.as<EvaluateNode>()) {
    const auto* call = op->value.as<CallNode>();
    const IntrinsicEffects* e = call ? EffectsOf(call) : nullptr;
    return e && e->queue == AsyncQueue::kCpAsync && e->step == QueueStep::kIssue;
  }
  if (const auto* op = s.as<SeqStmtNode>()) {
    int64_t count = 0;
    for (const Stmt& part : op->seq) {
      count = IsStatementOf(part, kCpAsyncCommit) ? 0 : count + CertainOperations(part);
    }
    return count;
  }
  if (const auto* op = s.as<AttrStmtNode>()) return CertainOperations(op->body);
  if (const auto* op = s.as<ForNode>()) {
    return AsInt(op->extent).value_or(0) * CertainOperations(op->body);
  }
  return 0;
}

/*! The fewest operations of a group. */
class GroupFinder : public StmtExprVisitor {
 public:
  std::optional<int64_t> fewest;

 protected:
  void Visit_(const SeqStmtNode* op) final {
    int64_t count = 0;
    for (const Stmt& s : op->seq) {
      if (IsStatementOf(s, kCpAsyncCommit)) {
        Note(count);
        count = 0;
      } else {
        count += CertainOperations(s);
        Visit(s);
      }
    }
  }
  /*! A commit that nothing stands in front of. */
  void Visit_(const EvaluateNode* op) final {
    if (IsStatementOf(GetRef<Stmt>(op), kCpAsyncCommit)) Note(0);
  }

 private:
  void Note(int64_t count) { fewest = std::min(fewest.value_or(count), count); }
};

class WaitLowerer : public StmtExprMutator {
 public:
  WaitLowerer(const AsyncQueueRow& queue, int64_t fewest) : queue_(queue), fewest_(fewest) {}

 protected:
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    if (IsStatementOf(s, kCpAsyncCommit)) return MakeSeq({});
    if (!IsStatementOf(s, kCpAsyncWait)) return s;
    const int64_t groups = ToInt(op->value.as<CallNode>()->args[0]);
    const int64_t most = std::min(groups * fewest_, queue_.max_pending);
    return MakeEvaluate(CallOp(kWaitVmcnt, {MakeInt(most)}), op->span);
  }

 private:
  const AsyncQueueRow& queue_;
  const int64_t fewest_;
};

PrimFunc CountAsyncOperations(PrimFunc f) {
  const AsyncQueueRow* queue = TargetOf(f).RowOf(AsyncQueue::kCpAsync);
  if (!queue || !queue->counts_operations) return f;
  return ForEachKernel(f, [&](const AttrStmtNode* op) {
    GroupFinder groups;
    groups(GetRef<Stmt>(op));
    return WaitLowerer(*queue, groups.fewest.value_or(0)).Mutate(GetRef<Stmt>(op));
  });
}

TL_REGISTER_PASS(CountAsyncOperations);

}  // namespace
}  // namespace tl
