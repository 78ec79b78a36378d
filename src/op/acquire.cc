/*!
 * acquire(barrier element, parity, buffer regions..) waits for the phase of an mbarrier after which
 * the thread may read or overwrite the buffers; release(barrier element, buffer regions..) arrives
 * at it, once for each warp, when its lanes are done with them, which is to read or to fill them,
 * with the attribute `blocks` at those of so many blocks of the cluster; release(barrier element,
 * condition, buffer regions..) does so where the condition holds, which is the same for all lanes.
 * The buffers tell planners what the barrier is about; no data moves.
 */
#include "../tvm/attrs.h"
#include "intrinsics.h"
#include "operator.h"

namespace tl {
namespace {

class BarrierOperator : public TileOperator {
 public:
  BarrierOperator(const char* intrinsic, const CallNode* call, const Array<Expr>& scalars,
                  const Expr& condition, const Span& s)
      : TileOperator(s),
        intrinsic_(intrinsic),
        barrier_(TileRegion::From(call->args[0])),
        scalars_(scalars),
        condition_(condition) {}

  // The buffers are neither read nor written here.
  BufferUse Use() const final { return {}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    Array<Expr> args = {AddressOf(barrier_.buffer, barrier_.Mins())};
    for (const Expr& e : scalars_) args.push_back(e);
    const Stmt call = MakeEvaluate(CallOp(intrinsic_, args), span);
    return scope->PlaceAccesses(MakeIf(condition_, call, span));
  }

 private:
  const char* intrinsic_;
  TileRegion barrier_;
  Array<Expr> scalars_;
  Expr condition_;
};

std::unique_ptr<TileOperator> MakeAcquire(const CallNode* call, const Span& span) {
  return std::make_unique<BarrierOperator>(kMbarrierWait, call, Array<Expr>{call->args[1]},
                                           MakeInt(kBool, 1), span);
}

std::unique_ptr<TileOperator> MakeRelease(const CallNode* call, const Span& span) {
  const bool conditional = call->args.size() > 1 && !call->args[1].as<TensorRegionNode>();
  const Expr condition = conditional ? call->args[1] : Expr(MakeInt(kBool, 1));
  const int64_t blocks = TileOpIntAttr(call, kClusterBlocks, 1);
  if (blocks == 1) {
    return std::make_unique<BarrierOperator>(kMbarrierArriveWarp, call, Array<Expr>{}, condition,
                                             span);
  }
  return std::make_unique<BarrierOperator>(kMbarrierArriveWarpCluster, call,
                                           Array<Expr>{MakeInt(blocks)}, condition, span);
}

OperatorRegistration acquire(kAcquire, "tl.acquire", MakeAcquire);
OperatorRegistration release(kRelease, "tl.release", MakeRelease);

}  // namespace
}  // namespace tl
