/*!
 * Reducers: values that the threads of a block accumulate each for itself, then combine.
 *
 * Memory of scope `local.reducer` is an array of each thread with all the reducer's elements.
 * `reducer_init` sets the array to the identity (the initial value in one thread only), stores in
 * parallel loops accumulate, `reducer_finalize` combines over all threads, after which each has the
 * result. That the three come in this order is checked by VerifyReducer.
 */
#include "block_reduce.h"

namespace tl {
namespace {

struct ReducerOp {
  Var buffer;
  Reduction reduction;
  Span span;

  static ReducerOp From(const CallNode* call, const Span& span) {
    return {TileRegion::From(call->args[0]).buffer,
            Reduction::Named(ToString(call->args[1]), false), span};
  }
  int64_t Size() const { return Product(ConstShape(buffer)); }
  DLDataType dtype() const { return DTypeOf(buffer); }
};

class ReducerInit : public TileOperator {
 public:
  ReducerInit(ReducerOp op, Optional<Expr> value)
      : TileOperator(op.span), op_(std::move(op)), value_(std::move(value)) {}

  BufferUse Use() const final { return {{}, {op_.buffer}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    Expr value = op_.reduction.Identity(op_.dtype());
    if (value_) value = IfThenElseOf(EqualOf(scope->thread, MakeInt(0)), *value_, value);
    Var k = MakeVar("k");
    scope->analyzer->BindConst(k, op_.Size());
    const Array<Expr> at = CoordinatesOf(op_.buffer, k);
    return scope->PlaceAccesses(
        UnrolledFor(k, op_.Size(), MakeStore(op_.buffer, value, at, span), span));
  }

 private:
  ReducerOp op_;
  Optional<Expr> value_;
};

class ReducerFinalize : public TileOperator {
 public:
  explicit ReducerFinalize(ReducerOp op) : TileOperator(op.span), op_(std::move(op)) {}

  BufferUse Use() const final { return {{op_.buffer}, {op_.buffer}}; }
  bool Infer(LayoutScope*, InferLevel) final { return false; }

  Stmt Lower(LoweringScope* scope) const final {
    const Array<Expr> origin(ConstShape(op_.buffer).size(), MakeInt(0));
    const Var values = scope->ToPhysical(op_.buffer, origin).first;
    return CombineOverGroups(
        ThreadGroups::WholeBlock(scope->thread, scope->num_threads, scope->target->warp_threads),
        op_.reduction, values, values, std::string(op_.buffer->name) + "_parts", scope, span);
  }

 private:
  ReducerOp op_;
};

std::unique_ptr<TileOperator> MakeInit(const CallNode* call, const Span& span) {
  Optional<Expr> value;
  if (call->args.size() > 2) value = call->args[2];
  return std::make_unique<ReducerInit>(ReducerOp::From(call, span), value);
}

std::unique_ptr<TileOperator> MakeFinalize(const CallNode* call, const Span& span) {
  return std::make_unique<ReducerFinalize>(ReducerOp::From(call, span));
}

OperatorRegistration init(kReducerInit, "tl.reducer_init", MakeInit);
OperatorRegistration finalize(kReducerFinalize, "tl.reducer_finalize", MakeFinalize);

}  // namespace
}  // namespace tl
