/*!
 * JoinElections: what the same elected thread does in statements behind each other is one branch.
 *
 * In:  a flat thread program, in which fences and barriers are placed.
 * Out: the same; of neighbours `if shuffle_elect<n>(): a` and `if shuffle_elect<n>(): b` there is
 *      `if shuffle_elect<n>(): a, b`.
 * Establishes: tiles that are asked for together (queries, keys and gates of a chunk at one
 *      mbarrier) take one election. Each is a shuffle, `elect.sync` and a branch, some fifteen
 *      instructions, of which each waits for the one before.
 * Refuses nothing. Unchanged: elections of other numbers of threads, and those between which
 * anything stands.
 */
#include <tvm/ffi/extra/structural_equal.h>

#include "../../op/intrinsics.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! What the thread does that an election finds, if that is all of the statement. */
const IfThenElseNode* AsElection(const Stmt& stmt) {
  const auto* branch = stmt.as<IfThenElseNode>();
  return branch && !branch->else_case && IsCallTo(branch->condition, kShuffleElect) ? branch
                                                                                    : nullptr;
}

class ElectionJoiner : public StmtExprMutator {
 protected:
  Stmt Mutate_(const SeqStmtNode* op) final {
    std::vector<Stmt> joined;
    for (const Stmt& stmt : op->seq) {
      const Stmt next = Mutate(stmt);
      const IfThenElseNode* here = AsElection(next);
      const IfThenElseNode* before = joined.empty() ? nullptr : AsElection(joined.back());
      if (here && before && tvm::ffi::StructuralEqual()(here->condition, before->condition)) {
        auto both = make_object<IfThenElseNode>(*before);
        both->then_case = MakeSeq({before->then_case, here->then_case});
        joined.back() = IfThenElse(both);
      } else {
        joined.push_back(next);
      }
    }
    return MakeSeq(joined);
  }
};

PrimFunc JoinElections(PrimFunc f) { return WithBody(f, ElectionJoiner().Mutate(f->body)); }

TL_REGISTER_PASS(JoinElections);

}  // namespace
}  // namespace tl
