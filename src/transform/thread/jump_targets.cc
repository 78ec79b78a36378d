/*!
 * MarkJumpTargets: loops that a `break` or `continue` leaves or goes on with.
 *
 * In:  any program.
 * Out: the same, where each `for` that owns such a jump has TVM's `irregular_loop_mark`.
 * Establishes: TVM's LowerOpaqueBlock keeps these loops. It replaces others of one iteration by
 * their bodies, whose jumps would then be those of the loop around. Refuses nothing.
 */
#include "../../analysis/effects.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! TVM's name (tirx/stmt.h). */
constexpr const char* kIrregularLoopMark = "irregular_loop_mark";

class Marker : public StmtExprMutator {
 protected:
  Stmt Mutate_(const ForNode* op) final {
    const bool around = std::exchange(jumps_, false);
    For loop = Default<Stmt>(op).as_or_throw<For>();
    if (jumps_) loop.CopyOnWrite()->annotations.Set(kIrregularLoopMark, int64_t(1));
    jumps_ = around;
    return loop;
  }
  Stmt Mutate_(const WhileNode* op) final {
    const bool around = std::exchange(jumps_, false);
    const Stmt loop = Default<Stmt>(op);
    jumps_ = around;
    return loop;
  }
  Stmt Mutate_(const BreakNode* op) final { return Jump(GetRef<Stmt>(op)); }
  Stmt Mutate_(const ContinueNode* op) final { return Jump(GetRef<Stmt>(op)); }
  Stmt Mutate_(const EvaluateNode* op) final {
    const Stmt s = GetRef<Stmt>(op);
    return IsBreak(s) || IsContinue(s) ? Jump(s) : Default<Stmt>(op);
  }

 private:
  Stmt Jump(const Stmt& s) {
    jumps_ = true;
    return s;
  }

  /*! A jump of the innermost loop around has been met. */
  bool jumps_ = false;
};

PrimFunc MarkJumpTargets(PrimFunc f) { return WithBody(f, Marker().Mutate(f->body)); }

TL_REGISTER_PASS(MarkJumpTargets);

}  // namespace
}  // namespace tl
