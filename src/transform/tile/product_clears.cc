#include "product_clears.h"

#include "../../op/gemm.h"

namespace tl {

Var AddedToBy(const Stmt& s) {
  const CallNode* call = AsTileOp(s);
  if (!call || !IsCallTo(GetRef<Expr>(call), kGemm)) return Var();
  const GemmOp op = ParseGemm(call, s->span);
  const Var& c = op.c.buffer;
  const bool is_operand = op.a.buffer.same_as(c) || op.b.buffer.same_as(c);
  return IsConst(op.clear_accum, 0) && IsWhole(op.c) && !is_operand ? c : Var();
}

Stmt WithClear(const Stmt& s, const Expr& when) {
  constexpr size_t kClearArgument = 6;
  auto gemm = make_object<CallNode>(*AsTileOp(s));
  gemm->args.Set(kClearArgument, when);
  return MakeEvaluate(Call(gemm), s->span);
}

}  // namespace tl
