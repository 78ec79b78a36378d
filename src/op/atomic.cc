/*!
 * T.atomic_add, T.atomic_max, T.atomic_min and T.atomic_or on tiles: an atomic operation for each
 * element, iterated like a copy. Additions of adjacent elements are vectors where the architecture
 * has them.
 */
#include "../target/atomic.h"

#include "../tvm/attrs.h"
#include "intrinsics.h"
#include "region_nest.h"
#include "thread_nest.h"
#include "tma_reduce.h"

namespace tl {
namespace {

/*! A nest whose vectors are limited by an instruction of the target, which the first pass to ask
 * tells. */
class AtomicOperator : public TileOperator {
 public:
  AtomicOperator(ParallelNest nest, std::vector<Var> operands, bool adds)
      : TileOperator(nest.span),
        nest_(std::move(nest)),
        operands_(std::move(operands)),
        adds_(adds) {}

  BufferUse Use() const final { return CollectBufferUse(nest_.body); }
  bool IsOfThread() const final { return MakeNestOperator(nest_, operands_)->IsOfThread(); }
  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (!inferring_) inferring_ = Loop(*scope->target);
    return inferring_->Infer(scope, level);
  }
  void Verify(const LayoutScope& scope) const final {
    (inferring_ ? inferring_ : Loop(*scope.target))->Verify(scope);
  }
  std::vector<FragmentAccess> Unreached(const LayoutScope& scope) const final {
    return (inferring_ ? inferring_ : Loop(*scope.target))->Unreached(scope);
  }
  Stmt Lower(LoweringScope* scope) const final { return Loop(*scope->target)->Lower(scope); }

 private:
  std::shared_ptr<TileOperator> Loop(const Target& target) const {
    ParallelNest nest = nest_;
    const Var& dst = operands_[0];
    nest.max_width = adds_ ? AtomicAddLanes(target, DTypeOf(dst), IsGlobal(dst)) : 1;
    return MakeNestOperator(nest, operands_);
  }

  ParallelNest nest_;
  /*! The target, and what is combined with it if that is a tile. */
  std::vector<Var> operands_;
  bool adds_;
  std::shared_ptr<TileOperator> inferring_;
};

/*! atomic(dst region, value region or scalar, operation, order) */
std::unique_ptr<TileOperator> MakeAtomic(const CallNode* call, const Span& span) {
  if (TileOpIntAttr(call, "use_tma", 0)) return MakeTmaReduce(call, span);
  const TileRegion dst = TileRegion::From(call->args[0]);
  ParallelNest nest;
  Expr value = call->args[1];
  std::vector<Var> operands = {dst.buffer};
  if (value.as<TensorRegionNode>()) {
    const TileRegion src = TileRegion::From(value);
    nest = NestOverBoth("T.atomic", src, dst,
                        IsGlobal(src.buffer) && !IsGlobal(dst.buffer) ? dst : src, span);
    value = LoadOf(src.buffer, ElementOf(src, nest));
    operands.push_back(src.buffer);
  } else {
    nest = NestOverRegion(dst, span);
  }
  nest.has_placed_tensor = TileOpAttr(call, kPlacedTensor) != nullptr;
  nest.body = AtomicOnElement(call, dst.buffer, ElementOf(dst, nest), value, span);
  return std::make_unique<AtomicOperator>(std::move(nest), std::move(operands),
                                          ToString(call->args[2]) == "add");
}

OperatorRegistration atomic_registration(kAtomic, "tl.atomic", MakeAtomic);

}  // namespace

Stmt AtomicOnElement(const CallNode* call, const Var& buffer, const Array<Expr>& indices,
                     const Expr& value, const Span& span) {
  const Expr operand = CastTo(DTypeOf(buffer), value);
  return MakeEvaluate(
      CallOp("tl.atomic_" + ToString(call->args[2]),
             {StringOf("tl::" + ToString(call->args[3])), AddressOf(buffer, indices), operand}),
      span);
}

}  // namespace tl
