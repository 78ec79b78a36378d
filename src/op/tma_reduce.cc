#include "tma_reduce.h"

#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "intrinsics.h"
#include "tma_copy.h"
#include "tma_select.h"

namespace tl {
namespace {

class TmaReduceOperator : public TileOperator {
 public:
  TmaReduceOperator(const CallNode* call, Span s)
      : TileOperator(std::move(s)),
        call_(GetRef<Call>(call)),
        global_(TileRegion::From(call->args[0])),
        shared_(TileRegion::From(call->args[1])) {}

  BufferUse Use() const final { return {{shared_.buffer, global_.buffer}, {global_.buffer}}; }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    const Var tile = shared_.buffer;
    if (level != InferLevel::kPrefer || !IsShared(tile) || scope->Find(tile).defined())
      return false;
    return ProposeTma(call_, tile, scope, span);
  }

  Call SelectInstruction(const LayoutScope& scope) const final {
    const TmaDecision tma = SelectTma(call_.get(), TmaMoment::kFinal, scope.Find(shared_.buffer),
                                      *scope.target, scope.analyzer);
    if (tma.IsMade()) return WithTmaPlan(call_.get(), tma.plan);
    ThrowAt(
        span, "ValueError",
        "T.atomic_add: found " + tma.why + ", wanted a tile that TMA can add; leave out use_tma");
  }

  Stmt Lower(LoweringScope* scope) const final {
    TmaIssue issue;
    issue.adds = true;
    const Stmt store =
        MakeIf(ElectThread(*scope, 0),
               IssueTmaStore(shared_, global_, TmaPlanOf(call_.get()), issue, scope, span), span);
    return WaitedStore(store, shared_, global_, kOrderAdditions, scope);
  }

 private:
  Call call_;
  TileRegion global_, shared_;
};

}  // namespace

std::unique_ptr<TileOperator> MakeTmaReduce(const CallNode* call, const Span& span) {
  return std::make_unique<TmaReduceOperator>(call, span);
}

}  // namespace tl
