/*!
 * UnrollCopies: loops that fill a tile in pieces are written out.
 *
 * In:  a tile program with pipelined loops whose schedule is the compiler's.
 * Out: the same, where a loop of such a loop's body that copies pieces of tiles from global to
 * shared memory, and does nothing else, is these copies: `for g < 4: copy(K[page[g]], S[16 * g])`
 * is four of them. Names for scalars in the loop go to their users.
 * Establishes: nothing else; the passes behind it see which piece each copy fills. Refuses nothing:
 * a loop of more than kMostPieces iterations, or of a number that is not known, stays, and so does
 * one that has a name for a value that has to be computed once.
 */

#include "../../layout/index_box.h"
#include "../../tvm/attrs.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "pipeline.h"
#include "pipeline_bindings.h"
#include "warp_roles.h"

namespace tl {
namespace {

constexpr int64_t kMostPieces = 16;

class Unroller : public StmtExprMutator {
 public:
  explicit Unroller(const Views& views) : views_(views) {}

 protected:
  Stmt Mutate_(const ForNode* op) final {
    For loop = Default<Stmt>(op).as_or_throw<For>();
    const bool pipelined = IntAnnotation(op->annotations, kNumStages).value_or(0) >= 1;
    if (!pipelined || op->annotations.count(kUserOrder)) return loop;
    const Stmt body = WrittenOut(loop->body);
    if (!body.same_as(loop->body)) loop.CopyOnWrite()->body = body;
    return loop;
  }

 private:
  Stmt WrittenOut(const Stmt& s) const {
    if (s.as<SeqStmtNode>()) {
      std::vector<Stmt> out;
      bool changed = false;
      for (const Stmt& t : FlatSeq(s)) {
        out.push_back(WrittenOut(t));
        changed |= !out.back().same_as(t);
      }
      return changed ? MakeSeq(out) : s;
    }
    if (const auto* branch = s.as<IfThenElseNode>(); branch && !branch->else_case) {
      const Stmt body = WrittenOut(branch->then_case);
      return body.same_as(branch->then_case) ? s : MakeIf(branch->condition, body, s->span);
    }
    const auto* loop = s.as<ForNode>();
    const auto copies = loop ? CopiesOf(loop) : std::nullopt;
    return copies ? MakeSeq(*copies) : s;
  }

  /*! The copies of all iterations of a loop that makes nothing else. */
  std::optional<std::vector<Stmt>> CopiesOf(const ForNode* loop) const {
    const bool serial = loop->kind == ForKind::kSerial || loop->kind == ForKind::kUnrolled;
    const std::optional<Axis> axis = AxisOf(loop);
    if (!serial || !axis || axis->extent > kMostPieces) return std::nullopt;
    const InlinedBody inlined = InlineBindings(FlatSeq(loop->body), views_);
    if (inlined.fixed.defined()) return std::nullopt;
    std::vector<Stmt> once;
    for (const Stmt& s : inlined.body) {
      const auto* inner = s.as<ForNode>();
      const auto copies = inner ? CopiesOf(inner) : std::vector<Stmt>{s};
      if (!copies) return std::nullopt;
      AppendRange(&once, *copies);
    }
    if (once.empty() || int64_t(once.size()) * axis->extent > kMostPieces) return std::nullopt;
    std::vector<Stmt> out;
    for (int64_t k = 0; k < axis->extent; ++k) {
      for (const Stmt& s : once) {
        // The same copy again is no piece. The variable of one iteration is a constant by now.
        if (!IsTileLoad(s) || (axis->extent > 1 && !Uses(s, loop->loop_var))) return std::nullopt;
        const Expr at = MakeInt(loop->loop_var->dtype(), axis->min + k);
        out.push_back(Substitute(s, loop->loop_var, at));
      }
    }
    return out;
  }

  const Views& views_;
};

PrimFunc UnrollCopies(PrimFunc f) {
  const Views views(f->body);
  Stmt body = Unroller(views).Mutate(f->body);
  return WithBody(std::move(f), body);
}

TL_REGISTER_PASS(UnrollCopies);

}  // namespace
}  // namespace tl
