/*!
 * tl.tileop.wgmma_wait(n, C regions...): at most n groups of MMAs are in flight afterwards; the
 * regions are the accumulators that may be used from here on.
 */
#include "wgmma_wait.h"

#include "intrinsics.h"
#include "operator.h"

namespace tl {
namespace {

class WgmmaWait : public TileOperator {
 public:
  WgmmaWait(const CallNode* call, const Span& s) : TileOperator(s), groups_(ToInt(call->args[0])) {
    for (size_t i = 1; i < call->args.size(); ++i) {
      accumulators_.push_back(TileRegion::From(call->args[i]).buffer);
    }
  }

  BufferUse Use() const final { return {accumulators_, accumulators_}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    std::vector<Stmt> body = {WaitForMmas(groups_, span)};
    for (const Var& c : accumulators_) {
      body.push_back(FenceAccumulator(scope->RegistersOf(c), span));
    }
    return MakeSeq(body);
  }

 private:
  int64_t groups_;
  std::vector<Var> accumulators_;
};

OperatorRegistration wgmma_wait_registration(kWgmmaWait, "tl.wgmma_wait", MakeOperator<WgmmaWait>);

}  // namespace

Stmt WaitForMmas(int64_t groups, const Span& span) {
  return MakeEvaluate(CallOp(kWarpgroupWait, {MakeInt(groups)}), span);
}

Stmt FenceAccumulator(const Var& registers, const Span& span) {
  const Expr count = BufferOf(registers)->shape[0];
  return MakeEvaluate(CallOp(kWarpgroupFence, {count, AddressOf(registers, {MakeInt(0)})}), span);
}

}  // namespace tl
