/*!
 * FoldClears: products begin their accumulators themselves.
 *
 * In:  a tile program; products whose accumulator was cleared by a statement of its own.
 * Out: the same, where a product that finds its accumulator cleared has `clear_accum` instead:
 *        clear(C); gemm(A, B, C)                           gemm(A, B, C, clear_accum)
 *      and, of a loop that clears for its next iteration,
 *        clear(C); for k: { gemm(A, B, C); use(C); clear(C) }
 *        for k: { gemm(A, B, C, clear_accum); use(C) }; clear(C)
 *      The last clear is left out where nothing else names the accumulator.
 * Establishes: an MMA overwrites its accumulator, which costs nothing; a clear costs a thread an
 * instruction for each register in each iteration, which stands between two products.
 * Left alone: accumulators that a statement between touches or may jump over; clears of a part;
 * loops whose statements the program has ordered. Refuses nothing.
 */
#include <algorithm>

#include "../../analysis/effects.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "../each_kernel.h"
#include "pipeline_barriers.h"
#include "product_clears.h"

namespace tl {
namespace {

class ClearFolder : public StmtExprMutator {
 public:
  ClearFolder(const Stmt& kernel, const Views& views) : kernel_(kernel), views_(views) {}

 protected:
  Stmt Mutate_(const SeqStmtNode* op) final {
    std::vector<Stmt> body = FlatSeq(GetRef<Stmt>(op));
    bool changed = false;
    for (Stmt& s : body) {
      const Stmt own = Mutate(s);
      changed |= !own.same_as(s);
      s = own;
    }
    // The statements of an ordered loop are counted.
    if (!is_ordered_) {
      for (size_t n = 0; n < body.size(); ++n) {
        // The clear in front of the loop is behind it then, that of a product is gone.
        while (FoldLoop(&body, n)) {
          changed = true;
          --n;
        }
        if (!FoldProduct(&body, n)) continue;
        changed = true;
        --n;
      }
    }
    return changed ? MakeSeq(body) : GetRef<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    const bool outside = is_ordered_;
    is_ordered_ = op->annotations.count(kUserOrder) != 0;
    const Stmt loop = Default<Stmt>(op);
    is_ordered_ = outside;
    return loop;
  }

 private:
  bool FoldProduct(std::vector<Stmt>* body, size_t n) const {
    const Var c = AddedToBy((*body)[n]);
    if (!c.defined()) return false;
    const std::optional<size_t> clear = ClearInFront(*body, n, c, views_);
    if (!clear) return false;
    (*body)[n] = WithClear((*body)[n], MakeInt(kBool, 1));
    body->erase(body->begin() + *clear);
    return true;
  }

  /*! Whether nothing but the loop, and a clear in front of it, names the accumulator. */
  bool IsNamedBy(const ForNode* loop, const Var& c) const {
    return NoneOf(views_.all, [&](const Var& view) { return views_.IsSameMemory(view, c); }) &&
           CountMentions(kernel_, c) == CountMentions(GetRef<Stmt>(loop), c) + 1;
  }

  bool FoldLoop(std::vector<Stmt>* body, size_t n) const {
    const auto* loop = (*body)[n].as<ForNode>();
    if (!loop || loop->kind == ForKind::kParallel || loop->annotations.count(kUserOrder) ||
        LeavesEarly(loop->body)) {
      return false;
    }
    std::vector<Stmt> inner = FlatSeq(loop->body);
    for (size_t last = inner.size(); last-- > 0;) {
      const Var c = ClearedBy(inner[last]);
      if (!c.defined()) continue;
      const auto touches = [&](const Stmt& s) { return Touches(s, c, views_); };
      const auto product = FindIf(inner, touches);
      if (std::any_of(inner.begin() + last + 1, inner.end(), touches) ||
          !AddedToBy(*product).same_as(c)) {
        continue;
      }
      const std::optional<size_t> clear = ClearInFront(*body, n, c, views_);
      if (!clear) continue;
      const bool is_dead = IsNamedBy(loop, c);
      *product = WithClear(*product, MakeInt(kBool, 1));
      inner.erase(inner.begin() + last);
      auto cleared = make_object<ForNode>(*loop);
      cleared->body = MakeSeq(inner);
      (*body)[n] = For(cleared);
      // It is clear behind the loop, too, for those who use it there.
      if (is_dead) {
        body->erase(body->begin() + *clear);
      } else {
        std::rotate(body->begin() + *clear, body->begin() + *clear + 1, body->begin() + n + 1);
      }
      return true;
    }
    return false;
  }

  const Stmt kernel_;
  const Views& views_;
  bool is_ordered_ = false;
};

PrimFunc FoldClears(PrimFunc f) {
  return ForEachKernel(f, [](const AttrStmtNode* op) {
    const Stmt kernel = GetRef<Stmt>(op);
    const Views views(kernel);
    return ClearFolder(kernel, views).Mutate(kernel);
  });
}

TL_REGISTER_PASS(FoldClears);

}  // namespace
}  // namespace tl
