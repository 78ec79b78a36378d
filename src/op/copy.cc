/*!
 * T.copy and T.async_copy: an elementwise copy, casting where dtypes differ. The side that is
 * closer to the arithmetic (fragment, then shared, then global memory) gives the iteration space.
 *
 * From shared to global memory the copy is a store by TMA where the chip has it and nothing else
 * happens to the tensor in this kernel; the threads go on when shared memory has been read.
 * Between a fragment that is held as ldmatrix wants it and shared memory the copy is ldmatrix or
 * stmatrix (matrix_copy.h), else a parallel nest. cp.async is chosen by the pipeline around a copy,
 * or demanded: `prefer_instruction="cp_async"` commits and waits here unless the pipeline does, and
 * T.async_copy commits only. LowerAsyncCopy refuses a demand that it cannot meet.
 */
#include "../layout/annotation.h"
#include "../target/chip.h"
#include "../tvm/error.h"
#include "../tvm/registry.h"
#include "intrinsics.h"
#include "matrix_copy.h"
#include "parallel_operator.h"
#include "region_nest.h"
#include "tma_copy.h"

namespace tl {
namespace {

int Closeness(const Var& buffer) {
  if (IsGlobal(buffer)) return 0;
  return IsShared(buffer) ? 1 : 2;
}

/*! A store by TMA: what nobody asks for must be legal for every shape. */
struct TmaStore {
  bool allowed;
  bool demanded;
  std::string why_not;  // the keyword against it
  TmaIssue issue;

  explicit TmaStore(const CallNode* call, const TileRegion& src, const TileRegion& dst)
      : allowed(IsShared(src.buffer) && IsGlobal(dst.buffer)),
        demanded(IsPreferred(call, "tma")),
        why_not(WhyNotTmaAsked(call)),
        issue(TmaIssueOf(call)) {}

  static bool IsPreferred(const CallNode* call, const char* instruction) {
    const Any prefer = TileOpAttr(call, "prefer_instruction");
    return prefer != nullptr && prefer.cast<String>() == instruction;
  }
};

enum class CpAsync : uint8_t { kIfPipelined, kNow, kUntilUserWaits };

CpAsync CpAsyncOf(const CallNode* call) {
  if (TileOpIntAttr(call, "is_async_copy", 0)) return CpAsync::kUntilUserWaits;
  return TmaStore::IsPreferred(call, "cp_async") ? CpAsync::kNow : CpAsync::kIfPipelined;
}

class CopyOperator : public TileOperator {
 public:
  CopyOperator(TileRegion src, TileRegion dst, CpAsync cp_async, TmaStore tma, ParallelNest nest,
               Span s)
      : TileOperator(std::move(s)),
        src_(std::move(src)),
        dst_(std::move(dst)),
        cp_async_(cp_async),
        tma_(std::move(tma)),
        nest_(MakeParallelOperator(std::move(nest), Fragment())) {}

  BufferUse Use() const final { return nest_->Use(); }
  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level == InferLevel::kPrefer && ProposeLayout(scope)) return true;
    return nest_->Infer(scope, level);
  }
  void Verify(const LayoutScope& scope) const final { nest_->Verify(scope); }

  Stmt Lower(LoweringScope* scope) const final {
    if (cp_async_ != CpAsync::kIfPipelined) return LowerToCpAsync(scope);
    if (auto store = LowerToTmaStore(scope)) return *store;
    if (auto matrices = LowerToMatrixCopy(src_, dst_, scope, span)) return *matrices;
    return nest_->Lower(scope);
  }

 private:
  bool ProposeLayout(LayoutScope* scope) const {
    if (!tma_.allowed || !tma_.why_not.empty()) return false;
    if (!tma_.demanded && !scope->StoresTo(dst_.buffer).by_copies_only) return false;
    if (!ChipOf(scope->arch, span).has_bulk_copy) return false;
    if (scope->Find(src_.buffer).defined() || scope->IsPointedTo(src_.buffer)) return false;
    const Layout layout = ProposeTmaLayout(src_);
    TmaPlan plan;
    if (!PlanTma(dst_, src_, layout, Proof(), scope->analyzer, &plan).empty()) return false;
    scope->Place(src_.buffer, layout, span);
    return true;
  }

  TmaProof Proof() const { return tma_.demanded ? TmaProof::kAtLaunch : TmaProof::kFully; }

  std::optional<Stmt> LowerToTmaStore(LoweringScope* scope) const {
    TmaPlan plan;
    const std::string why = PlanTmaStore(scope, &plan);
    if (!why.empty() && tma_.demanded) RefuseTma("T.copy", why, span);
    if (!why.empty()) return std::nullopt;
    const Stmt store = MakeIf(ElectThread(*scope, 0),
                              IssueTmaStore(src_, dst_, plan, tma_.issue, scope, span), span);
    const bool only_read = !scope->StoresTo(dst_.buffer).repeated;
    const Var tile = scope->Place(src_.buffer, src_.Mins()).first;
    return MakeSeq({store, MakeAttr(Array<Var>{tile, dst_.buffer}, kStoreWait,
                                    MakeInt(kBool, only_read), MakeEvaluate(MakeInt(0), span))});
  }

  std::string PlanTmaStore(LoweringScope* scope, TmaPlan* plan) const {
    if (!tma_.allowed) return "a copy that is not from shared to global memory";
    if (!tma_.why_not.empty()) return tma_.why_not;
    if (!ChipOf(scope->arch, span).has_bulk_copy) {
      return "a target without the tensor memory access unit (sm_" + std::to_string(scope->arch) +
             ")";
    }
    if (!scope->StoresTo(dst_.buffer).by_copies_only) {
      return std::string(dst_.buffer->name) + ", which the kernel also touches in another way";
    }
    Layout layout = scope->LayoutOf(src_.buffer);
    if (!layout.defined()) layout = MakeLinearLayout(ConstShape(src_.buffer));
    return PlanTma(dst_, src_, layout, Proof(), scope->analyzer, plan);
  }

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
  TmaStore tma_;
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
  return std::make_unique<CopyOperator>(src, dst, CpAsyncOf(call), TmaStore(call, src, dst),
                                        std::move(nest), span);
}

OperatorRegistration registration("tl.tileop.copy", "tl.copy", MakeCopy);

}  // namespace
}  // namespace tl
