/*!
 * RenewThreadNumber: lets a role with few registers compute its addresses anew in each iteration.
 *
 * In:  a flat thread program.
 * Out: the same, with changes in roles that give registers back (`tl.warpgroup_reg_dealloc`), and
 *      in all roles where ptxas has spilled what was made without (tilelang/jit/second_choice.py).
 *      Their outermost loops with MMAs of warp groups begin with a new name of the thread's number,
 *      which compilers cannot tell to be the old one: `t = tl.thread_again(tx)`.
 * Establishes: NVVM moves nothing that depends on the thread out of such an outermost loop.
 * Addresses of swizzled tiles are many, and each is one or two instructions of the thread's number.
 * In front of the loop they would live through all of it, and ptxas spills them where a role has
 * not the registers: 1004 bytes of KDA's roles, now 84. Most other roles have registers for them.
 * Refuses nothing.
 */
#include "../../op/intrinsics.h"
#include "../../op/wgmma_calls.h"
#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"

namespace tl {
namespace {

bool GivesBack(const Stmt& s) {
  const auto* evaluate = s.as<EvaluateNode>();
  return evaluate && IsCallTo(evaluate->value, kRegDealloc);
}

/*! Renews the number of the thread in the loops of a kernel's roles. */
class Renewer : public StmtExprMutator {
 public:
  Renewer(const Var& thread, int64_t threads, bool all)
      : thread_(thread), threads_(threads), in_role_(all) {}

 protected:
  Stmt Mutate_(const SeqStmtNode* op) final {
    const bool around = in_role_;
    std::vector<Stmt> stmts;
    for (const Stmt& s : op->seq) {
      in_role_ |= GivesBack(s);
      stmts.push_back(Mutate(s));
    }
    in_role_ = around;
    return MakeSeq(stmts);
  }

  Stmt Mutate_(const ForNode* op) final {
    if (!in_role_ || op->kind != ForKind::kSerial || !HasWgmmas(op->body)) {
      return StmtExprMutator::Mutate_(op);
    }
    const Var again = MakeVar("tx_again", thread_->dtype());
    const Expr number = CallOp(kThreadAgain, {thread_, MakeInt(threads_)}, thread_->ty);
    auto loop = make_object<ForNode>(*op);
    loop->body = MakeSeq({MakeBind(again, number, op->span), Substitute(op->body, thread_, again)});
    return Stmt(loop);
  }

 private:
  const Var thread_;
  const int64_t threads_;
  bool in_role_;
};

PrimFunc RenewThreadNumber(PrimFunc f) {
  // Set by tilelang/jit/second_choice.py.
  const bool all = PassConfigFlag("tl.second_choice.addresses_anew", false);
  return ForEachKernel(f, [all](const AttrStmtNode* op) {
    Stmt kernel = GetRef<Stmt>(op);
    for (const AttrStmtNode* axis = op; axis && axis->attr_key == kThreadExtent;
         axis = axis->body.as<AttrStmtNode>()) {
      const IterVar of = axis->node.cast<IterVar>();
      if (std::string(of->thread_tag) == "threadIdx.x") {
        kernel = Renewer(of->var, ToInt(axis->value), all).Mutate(kernel);
      }
    }
    return kernel;
  });
}

TL_REGISTER_PASS(RenewThreadNumber);

}  // namespace
}  // namespace tl
