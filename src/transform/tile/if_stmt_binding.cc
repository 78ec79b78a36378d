/*!
 * IfStmtBinding: takes copies out of branches, so that a pipeline can run them ahead.
 *
 * In:  a tile program with pipelined loops whose schedule is the compiler's.
 * Out: the same, where a statement `if c: {copy; a; b}` of such a loop's body, with no else, is
 *      `if c: copy` and `if c: {a; b}`: what only fills shared memory from global memory stands
 *      alone. Names for scalars in the branch go to their users.
 * Establishes: nothing else. Refuses nothing: a branch stays whole where what it writes may change
 * its condition, and where it has a name for a value that has to be computed once.
 * With `tl.if_stmt_binding_inline_replayable_binds` off, branches with names stay whole.
 */

#include "../../analysis/effects.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "pipeline.h"
#include "pipeline_bindings.h"

namespace tl {
namespace {

class Splitter : public StmtExprMutator {
 public:
  explicit Splitter(const Views& views) : views_(views) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    const bool pipelined = IntAnnotation(op->annotations, kNumStages).value_or(0) >= 1;
    if (!pipelined || op->annotations.count(kUserOrder)) return loop;
    std::vector<Stmt> body;
    for (const Stmt& s : FlatSeq(loop->body)) {
      for (const Stmt& piece : Pieces(s)) body.push_back(piece);
    }
    loop.CopyOnWrite()->body = MakeSeq(body);
    return loop;
  }

 private:
  std::vector<Stmt> Pieces(const Stmt& s) const {
    const auto* branch = s.as<IfThenElseNode>();
    if (!branch || branch->else_case) return {s};
    const std::vector<Stmt> source = FlatSeq(branch->then_case);
    const bool has_names = AnyOf(source, [](const Stmt& t) { return t.as<BindNode>(); });
    if (has_names && !PassConfigFlag("tl.if_stmt_binding_inline_replayable_binds", true)) {
      return {s};
    }
    const InlinedBody inlined = InlineBindings(source, views_);
    if (inlined.fixed.defined() || !MayRunAlone(branch->condition, inlined.body)) return {s};
    std::vector<Stmt> pieces, others;
    const auto flush = [&] {
      if (!others.empty()) pieces.push_back(MakeIf(branch->condition, MakeSeq(others), s->span));
      others.clear();
    };
    for (const Stmt& t : inlined.body) {
      for (const Stmt& inner : Pieces(t)) {
        if (!FillsShared(inner, views_)) {
          others.push_back(inner);
          continue;
        }
        flush();
        const Guarded fill = SplitGuard(inner);
        const bool nested = fill.condition.defined();
        pieces.push_back(MakeIf(nested ? branch->condition && fill.condition : branch->condition,
                                fill.body, inner->span));
      }
    }
    if (pieces.empty()) return {s};
    flush();
    return pieces;
  }

  /*! The condition has the same value in front of each statement, and no effect. */
  bool MayRunAlone(const Expr& condition, const std::vector<Stmt>& body) const {
    const Stmt asked = MakeEvaluate(condition, Span());
    if (WritesMemory(condition)) return false;
    const BufferUse use = views_.UseOf(asked);
    return NoneOf(body, [&](const Stmt& s) {
      const std::vector<Var> writes = views_.UseOf(s).writes;
      return AnyOf(writes, [&](const Var& v) { return Contains(use.reads, v); });
    });
  }

  const Views& views_;
};

PrimFunc IfStmtBinding(PrimFunc f) {
  const Views views(f->body);
  Stmt body = Splitter(views).Mutate(f->body);
  return WithBody(std::move(f), body);
}

TL_REGISTER_PASS(IfStmtBinding);

}  // namespace
}  // namespace tl
