#include "tma_reduce.h"

#include "../target/target.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "intrinsics.h"
#include "tma_copy.h"

namespace tl {
namespace {

/*! PTX ISA, cp.reduce.async.bulk.tensor: .add. */
bool HasAddition(DLDataType t) {
  if (t.code == kDLInt) return t.bits == 32;
  if (t.code == kDLUInt) return t.bits == 32 || t.bits == 64;
  return (t.code == kDLFloat && (t.bits == 16 || t.bits == 32)) || t.code == kDLBfloat;
}

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
    scope->SetLayout(tile, ProposeTmaLayout(shared_), span);
    return true;
  }

  Call SelectInstruction(const LayoutScope& scope) const final {
    const DLDataType type = BufferOf(global_.buffer)->dtype->dtype;
    TmaPlan plan;
    std::string why;
    if (!scope.target->Has(Feature::kTma)) {
      why = "a target without TMA (" + scope.target->arch + ")";
    } else if (!IsShared(shared_.buffer)) {
      why = std::string(shared_.buffer->name) + ", which is not in shared memory";
    } else if (!HasAddition(type)) {
      why = "elements of " + DTypeName(type);
    } else {
      why = PlanTmaCopy(call_.get(), scope.Find(shared_.buffer), TmaProof::kAtLaunch,
                        scope.analyzer, &plan);
    }
    if (!why.empty()) {
      ThrowAt(span, "ValueError",
              "T.atomic_add: found " + why + ", wanted a tile that TMA can add; leave out use_tma");
    }
    return WithTmaPlan(call_.get(), plan);
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
