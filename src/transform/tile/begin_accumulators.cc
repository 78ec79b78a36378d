/*!
 * BeginAccumulators: the first product of a loop begins the accumulators of the loop.
 *
 * In:  a tile program whose gemms have their instructions; accumulators that a statement clears in
 *      front of a loop in which products by wgmma add to them.
 * Out: the same without these statements:
 *        clear(C); for k in [first, last): gemm(A, B, C)
 *        for k in [first, last): gemm(A, B, C, clear_accum=k == first)
 *      Where the number of iterations is not known, a loop of none leaves what the clear made:
 *        if last <= first: clear(C)
 * Establishes: no instructions clear registers while the tensor cores wait. A wgmma has a predicate
 *      that says whether it adds (scale-d; PTX ISA, wgmma.mma_async), which costs nothing. A clear
 *      costs a thread an instruction for each register: of a tile of 128 x 128 by 256 threads, 64.
 * Left alone: other instructions, which would clear in a branch of each iteration; accumulators
 *      that something touches in front of the product; loops that end early, or whose number of
 *      iterations stands in memory; statements that the program orders, or gives to roles.
 * Refuses nothing.
 */
#include "../../analysis/effects.h"
#include "../../op/gemm_instruction.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "product_clears.h"

namespace tl {
namespace {

class AccumulatorBeginner : public StmtExprMutator {
 public:
  explicit AccumulatorBeginner(const Views& views) : views_(views) {}

 protected:
  Stmt Mutate_(const SeqStmtNode* op) final {
    std::vector<Stmt> body;
    bool changed = false;
    for (const Stmt& s : FlatSeq(GetRef<Stmt>(op))) {
      body.push_back(Mutate(s));
      changed |= !body.back().same_as(s);
    }
    // The statements of an ordered loop are counted.
    for (size_t n = 0; !is_ordered_ && n < body.size(); ++n) {
      while (BeginIn(&body, &n)) changed = true;
    }
    return changed ? MakeSeq(body) : GetRef<Stmt>(op);
  }
  Stmt Mutate_(const SBlockNode* op) final {
    return op->annotations.count(kWsSchedule) ? GetRef<Stmt>(op) : Default<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    const bool outside = is_ordered_;
    is_ordered_ = op->annotations.count(kUserOrder) != 0;
    const Stmt loop = Default<Stmt>(op);
    is_ordered_ = outside;
    return loop;
  }

 private:
  /*! Has a product of the n-th statement, a loop, begin an accumulator that is cleared in front. */
  bool BeginIn(std::vector<Stmt>* body, size_t* n) const {
    const auto* loop = (*body)[*n].as<ForNode>();
    if (!loop || loop->kind == ForKind::kParallel || LeavesEarly(loop->body) ||
        !IsPureInteger(loop->extent)) {
      return false;
    }
    std::vector<Stmt> inner = FlatSeq(loop->body);
    for (Stmt& s : inner) {
      const Var c = AddedToBy(s);
      if (!c.defined() || !PlanOf(AsTileOp(s), s->span).UsesWgmma()) continue;
      const auto first = FindIf(inner, [&](const Stmt& t) { return Touches(t, c, views_); });
      if (&*first != &s) continue;
      const std::optional<size_t> clear = ClearInFront(*body, *n, c, views_);
      if (!clear) continue;
      s = WithClear(s, EqualOf(loop->loop_var, loop->min));
      auto begins = make_object<ForNode>(*loop);
      begins->body = MakeSeq(inner);
      (*body)[*n] = For(begins);
      LeaveClear(body, *clear, loop->extent, n);
      return true;
    }
    return false;
  }

  /*! Removes a clear, or has it done where the loop, the n-th statement, has no iterations: right
   * in front of it, where the names of its bounds are known. */
  void LeaveClear(std::vector<Stmt>* body, size_t clear, const Expr& extent, size_t* n) const {
    const Stmt fill = (*body)[clear];
    body->erase(body->begin() + clear);
    --*n;
    if (const auto iterations = AsInt(extent); iterations && *iterations > 0) return;
    const Expr is_empty = extent < MakeInt(extent->dtype(), 1);
    body->insert(body->begin() + *n, MakeIf(is_empty, fill, fill->span));
    ++*n;
  }

  const Views& views_;
  bool is_ordered_ = false;
};

PrimFunc BeginAccumulators(PrimFunc f) {
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const Views views(kernel);
    return AccumulatorBeginner(views).Mutate(kernel);
  });
}

TL_REGISTER_PASS(BeginAccumulators);

}  // namespace
}  // namespace tl
