#include "gemm.h"

#include "../layout/mma_fragment.h"
#include "../layout/swizzle.h"
#include "../tvm/error.h"

namespace tl {
namespace {

GemmOp ParseGemm(const CallNode* call, const Span& span) {
  GemmOp op;
  op.a = TileRegion::From(call->args[0]);
  op.b = TileRegion::From(call->args[1]);
  op.c = TileRegion::From(call->args[2]);
  op.trans_a = ToInt(call->args[3]) != 0;
  op.trans_b = ToInt(call->args[4]) != 0;
  op.policy = static_cast<GemmWarpPolicy>(ToInt(call->args[5]));
  op.clear_accum = call->args[6];
  op.span = span;
  return op;
}

DLDataType DTypeOf(const TileRegion& r) { return BufferOf(r.buffer)->dtype->dtype; }

void CheckOperand(const GemmOp& op, const char* name, const TileRegion& r, bool right_place,
                  const char* wanted) {
  if (right_place) return;
  ThrowAt(op.span, "ValueError",
          std::string("T.gemm: found ") + name + " = " + std::string(r.buffer->name) +
              " in scope " + ScopeOf(r.buffer) + ", wanted " + wanted);
}

/*! Refuses (ValueError) what no instruction can do. */
GemmPlan PlanGemm(const GemmOp& op, int64_t num_threads, int arch) {
  const char* shared = "shared memory; copy it there with T.alloc_shared and T.copy";
  CheckOperand(op, "A", op.a, IsShared(op.a.buffer), shared);
  CheckOperand(op, "B", op.b, IsShared(op.b.buffer), shared);
  CheckOperand(op, "C", op.c, IsFragment(op.c.buffer), "a fragment; make it with T.alloc_fragment");
  const std::vector<int64_t> c_shape = ConstShape(op.c.buffer);
  if (Product(c_shape) != op.M() * op.N()) {
    ThrowAt(op.span, "ValueError",
            "T.gemm: found C a slice of " + std::string(op.c.buffer->name) +
                ", wanted the whole fragment; allocate one of the slice's shape");
  }
  GemmPlan plan;
  std::string reasons;
  plan.instruction = SelectMma(
      {op.M(), op.N(), op.K(), DTypeOf(op.a), DTypeOf(op.b), DTypeOf(op.c), arch}, &reasons);
  if (!plan.instruction) {
    ThrowAt(op.span, "ValueError",
            "T.gemm: no instruction does " + std::to_string(op.M()) + "x" + std::to_string(op.N()) +
                "x" + std::to_string(op.K()) + " on sm_" + std::to_string(arch) +
                "; change tile sizes or dtypes so that one line below holds:" + reasons);
  }
  if (num_threads % 32) {
    ThrowAt(op.span, "ValueError",
            "T.gemm: found " + std::to_string(num_threads) +
                " threads, wanted whole warps; use a multiple of 32");
  }
  auto warps = PartitionWarps(op.M(), op.N(), num_threads / 32, plan.instruction->m,
                              plan.instruction->n, op.policy);
  if (!warps) {
    ThrowAt(
        op.span, "ValueError",
        "T.gemm: found M=" + std::to_string(op.M()) + ", N=" + std::to_string(op.N()) + " for " +
            std::to_string(num_threads / 32) +
            " warps, wanted a split into warps of multiples of 16 rows and 8 columns; use fewer "
            "threads or a larger tile");
  }
  plan.warps = *warps;
  return plan;
}

class GemmOperator : public TileOperator {
 public:
  explicit GemmOperator(GemmOp op) : TileOperator(op.span), op_(std::move(op)) {}

  BufferUse Use() const final {
    return {{op_.a.buffer, op_.b.buffer, op_.c.buffer}, {op_.c.buffer}};
  }

  bool Infer(LayoutScope* scope, InferLevel level) final {
    if (level != InferLevel::kStrict) return false;
    const GemmPlan plan = PlanGemm(op_, scope->num_threads, scope->arch);
    scope->Place(op_.c.buffer,
                 MakeGemmFragmentC(op_.M(), op_.N(), plan.warps.m_warps, plan.warps.n_warps), span);
    for (const TileRegion* operand : {&op_.a, &op_.b}) {
      scope->Place(operand->buffer,
                   MakeSwizzledLayout(ConstShape(operand->buffer), DTypeOf(*operand).bits), span);
    }
    return true;
  }

  Stmt Lower(LoweringScope* scope) const final {
    return LowerGemmToMmaSync(op_, PlanGemm(op_, scope->num_threads, scope->arch), scope);
  }

 private:
  GemmOp op_;
};

std::unique_ptr<TileOperator> MakeGemm(const CallNode* call, const Span& span) {
  return std::make_unique<GemmOperator>(ParseGemm(call, span));
}

OperatorRegistration registration("tl.tileop.gemm", "tl.gemm", MakeGemm);

}  // namespace
}  // namespace tl
