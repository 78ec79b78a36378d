/*!
 * VerifyTileProgram: the form of programs in front of LowerTileOp, as a check of the passes there.
 *
 * In:  a program after any of these passes. Out: the same program. Establishes: a tile operator is
 * a statement of its own, known, with operands that it can be made from; buffers have scopes of
 * tile programs and as many indices as dimensions; parallel loops hold no tile operator and no
 * loop of another kind that does; a loop over warp groups (kInstances) is alone in the range of the
 * first one, in the branch that this takes; annotations of layouts name buffers; behind
 * SelectInstructions every gemm and every copy has its instructions. Refuses: anything else, as a
 * bug of the pass in front.
 */
#include <string>

#include "../../layout/annotation.h"
#include "../../op/copy_instruction.h"
#include "../../op/gemm_instruction.h"
#include "../../op/operator.h"
#include "../../tvm/attrs.h"
#include "../../tvm/registry.h"
#include "../program_verifier.h"

namespace tl {
namespace {

constexpr const char* kVerifyTileProgram = "VerifyTileProgram";

class TileProgramVerifier : public ProgramVerifier {
 public:
  explicit TileProgramVerifier(bool selected)
      : ProgramVerifier(kVerifyTileProgram), selected_(selected) {}

 protected:
  bool IsAllowed(const MemorySpaceRow&) const final { return true; }

  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    const Stmt s = GetRef<Stmt>(op);
    const CallNode* call = AsTileOp(s);
    if (!call) return Default(op);
    const std::string name = OpOf(call)->name;
    if (parallel_) Report("found " + name + " in a parallel loop");
    if (!OperatorOf(s)) Report("found " + name + ", which is no tile operator");
    if (selected_ && IsGemm(call)) (void)PlanOf(call, op->span);
    if (selected_ && IsCopy(call) && ChoiceOf(call).candidates.empty()) {
      Report("found " + name + " without an instruction");
    }
    for (const Expr& arg : call->args) Visit(arg);
  }
  void Visit_(const CallNode* op) final {
    if (IsTileOp(op)) {
      Report("found " + std::string(OpOf(op)->name) +
             " inside of an expression, wanted a statement");
    }
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    span_ = op->span;
    CheckInstances(op);
    const bool outside = parallel_;
    parallel_ |= op->kind == ForKind::kParallel;
    Default(op);
    parallel_ = outside;
  }
  void Visit_(const TensorRegionNode* op) final {
    CheckAccess(op->source.as_or_throw<Var>(), op->region.size());
    Default(op);
  }
  void Visit_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) CheckScope(buffer);
    for (const auto& [buffer, layout] : GetLayoutMap(op->annotations)) CheckScope(buffer);
    Default(op);
  }

 private:
  /*! SelectInstructions has run. */
  bool selected_;
  bool parallel_ = false;
};

PrimFunc VerifyTileProgram(PrimFunc f) {
  TileProgramVerifier(GetAttr(f, kSelected) != nullptr)(f->body);
  return f;
}

Registration verify_tile_program_registration([] {
  RegisterPass(kVerifyTileProgram, VerifyTileProgram);
});

}  // namespace
}  // namespace tl
