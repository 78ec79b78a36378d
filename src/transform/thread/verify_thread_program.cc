/*!
 * VerifyThreadProgram: the form of programs behind LowerTileOp, as a check of the passes there.
 *
 * In:  a program after any of these passes. Out: the same program. Establishes: no tile operator,
 * no fragment, no parallel loop, no layout and no schedule of a pipeline is left; a loop over warp
 * groups (kInstances) is as it was made; each call of `tl.x` is a row of the table, with constants
 * as template arguments and `address_of` where it takes pointers; accesses have as many indices as
 * their buffers have dimensions. Refuses: anything else, as a bug of the pass in front.
 */
#include <string>

#include "../../op/intrinsics.h"
#include "../../tvm/attrs.h"
#include "../../tvm/registry.h"
#include "../program_verifier.h"

namespace tl {
namespace {

constexpr const char* kVerifyThreadProgram = "VerifyThreadProgram";

class Verifier : public ProgramVerifier {
 public:
  Verifier() : ProgramVerifier(kVerifyThreadProgram) {}

 protected:
  bool IsAllowed(const MemorySpaceRow& row) const final { return row.is_of_threads; }

  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    span_ = op->span;
    if (op->kind == ForKind::kParallel) Report("found a parallel loop");
    if (IsInstances(op) && !IsOverGroups(op)) {
      Report("found a loop with the annotation " + std::string(kInstances) +
             ", which is not serial from 0 on of constant extent");
    }
    for (const char* key : {kNumStages, kPlannedStage, "parallel_loop_layout"}) {
      if (op->annotations.count(key)) {
        Report("found a loop with the annotation " + std::string(key));
      }
    }
    Default(op);
  }
  void Visit_(const SBlockNode* op) final {
    for (const Var& buffer : op->alloc_buffers) CheckScope(buffer);
    if (op->annotations.count("layout_map")) Report("found a layout_map");
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    const OpNode* callee = OpOf(op);
    const std::string name = callee ? std::string(callee->name) : "";
    if (const Intrinsic* row = FindIntrinsic(op)) {
      CheckIntrinsic(*row, op);
    } else if (name.rfind("tl.", 0) == 0 && name != kSourceKernel) {
      Report("found " + name + ", which is no intrinsic");
    }
    Default(op);
  }

 private:
  void CheckIntrinsic(const Intrinsic& row, const CallNode* call) {
    const size_t templates = row.template_args;
    const bool few = call->args.size() < templates + row.access.size();
    if (few) {
      Report("found " + row.op + " with " + std::to_string(call->args.size()) + " arguments");
    }
    for (size_t i = 0; i < templates; ++i) {
      if (AsInt(call->args[i]) || call->args[i].as<StringImmNode>()) continue;
      Report("found " + row.op + " with a template argument that is no constant");
    }
    PointerAccesses(call);  // whose pointers are address_of
  }
};

PrimFunc VerifyThreadProgram(PrimFunc f) {
  Verifier()(f->body);
  return f;
}

Registration verify_thread_program_registration([] {
  RegisterPass(kVerifyThreadProgram, VerifyThreadProgram);
});

}  // namespace
}  // namespace tl
