/*!
 * T.copy and T.async_copy: an elementwise copy, casting where dtypes differ. The side that is
 * closer to the arithmetic (fragment, then shared, then global memory) gives the iteration space.
 *
 * Between a fragment that is held as ldmatrix wants it and shared memory the copy is ldmatrix or
 * stmatrix (matrix_copy.h), else a parallel nest. cp.async is chosen by the pipeline around a copy,
 * or demanded: `prefer_instruction="cp_async"` commits and waits here unless the pipeline does, and
 * T.async_copy commits only. LowerAsyncCopy refuses a demand that it cannot meet.
 */
#include "../layout/annotation.h"
#include "../tvm/error.h"
#include "../tvm/registry.h"
#include "intrinsics.h"
#include "matrix_copy.h"
#include "parallel_operator.h"
#include "region_nest.h"

namespace tl {
namespace {

int Closeness(const Var& buffer) {
  if (IsGlobal(buffer)) return 0;
  return IsShared(buffer) ? 1 : 2;
}

enum class CpAsync : uint8_t { kIfPipelined, kNow, kUntilUserWaits };

CpAsync CpAsyncOf(const CallNode* call, const Span& span) {
  if (TileOpIntAttr(call, "is_async_copy", 0)) return CpAsync::kUntilUserWaits;
  const Any prefer = TileOpAttr(call, "prefer_instruction");
  if (prefer == nullptr) return CpAsync::kIfPipelined;
  const std::string name = prefer.cast<String>();
  if (name == "tma") {
    ThrowAt(span, "ValueError",
            "T.copy: found prefer_instruction=\"tma\", wanted \"cp_async\" or \"sync\": this "
            "compiler makes no TMA copies; leave the keyword out");
  }
  return name == "cp_async" ? CpAsync::kNow : CpAsync::kIfPipelined;
}

class CopyOperator : public TileOperator {
 public:
  CopyOperator(TileRegion src, TileRegion dst, CpAsync cp_async, ParallelNest nest, Span s)
      : TileOperator(std::move(s)),
        src_(std::move(src)),
        dst_(std::move(dst)),
        cp_async_(cp_async),
        nest_(MakeParallelOperator(std::move(nest), Fragment())) {}

  BufferUse Use() const final { return nest_->Use(); }
  bool Infer(LayoutScope* scope, InferLevel level) final { return nest_->Infer(scope, level); }
  void Verify(const LayoutScope& scope) const final { nest_->Verify(scope); }

  Stmt Lower(LoweringScope* scope) const final {
    if (cp_async_ != CpAsync::kIfPipelined) return LowerToCpAsync(scope);
    if (auto matrices = LowerToMatrixCopy(src_, dst_, scope, span)) return *matrices;
    return nest_->Lower(scope);
  }

 private:
  Stmt LowerToCpAsync(LoweringScope* scope) const {
    if (!PassConfigFlag("tl.enable_async_copy", true)) {
      ThrowAt(span, "ValueError",
              "T.copy: found a demand for cp.async and tl.enable_async_copy=False, wanted one of "
              "them; remove the pass config or the demand");
    }
    const Stmt copies =
        MakeAttr(String(kDemanded), kAsyncCopy, MakeInt(kBool, 1), nest_->Lower(scope));
    if (scope->has_async_owner) {
      if (cp_async_ == CpAsync::kNow) return copies;
      ThrowAt(span, "ValueError",
              "found T.async_copy in a T.Pipelined loop that places commits and waits itself, "
              "wanted T.copy; or use T.serial and wait with T.ptx_wait_group");
    }
    std::vector<Stmt> out = {copies, MakeEvaluate(CallOp(kCpAsyncCommit, {}), span)};
    if (cp_async_ == CpAsync::kNow) {
      out.push_back(MakeEvaluate(CallOp(kCpAsyncWait, {MakeInt(0)}), span));
    }
    return MakeSeq(out);
  }

  TileRegion src_, dst_;
  CpAsync cp_async_;
  std::unique_ptr<TileOperator> nest_;
};

std::unique_ptr<TileOperator> MakeCopy(const CallNode* call, const Span& span) {
  const TileRegion src = TileRegion::From(call->args[0]), dst = TileRegion::From(call->args[1]);
  const bool by_dst = Closeness(dst.buffer) > Closeness(src.buffer);
  ParallelNest nest = NestOverBoth("T.copy", src, dst, by_dst ? dst : src, span);
  nest.coalesced_width = TileOpIntAttr(call, "coalesced_width", 0);
  nest.loop_layout = GetLoopLayout(TileOpAttrs(call));
  Expr value = LoadOf(src.buffer, ElementOf(src, nest));
  nest.body = MakeStore(dst.buffer, CastTo(BufferOf(dst.buffer)->dtype->dtype, value),
                        ElementOf(dst, nest), span);
  return std::make_unique<CopyOperator>(src, dst, CpAsyncOf(call, span), std::move(nest), span);
}

OperatorRegistration registration("tl.tileop.copy", "tl.copy", MakeCopy);

}  // namespace
}  // namespace tl
