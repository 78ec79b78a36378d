#include "product_clears.h"

#include "../../op/gemm.h"

namespace tl {

Var AddedToBy(const Stmt& s) {
  const CallNode* call = AsTileOp(s, kGemm);
  if (!call) return Var();
  const GemmOp op = ParseGemm(call, s->span);
  const Var& c = op.c.buffer;
  const bool is_operand = op.a.buffer.same_as(c) || op.b.buffer.same_as(c);
  return IsConst(op.clear_accum, 0) && op.c.IsWhole() && !is_operand ? c : Var();
}

Stmt WithClear(const Stmt& s, const Expr& when) {
  return MakeEvaluate(WithClearAccum(AsTileOp(s), when), s->span);
}

}  // namespace tl
