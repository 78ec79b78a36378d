#include "product_clears.h"

#include <cmath>

#include "../../analysis/effects.h"
#include "../../op/gemm.h"
#include "../../op/intrinsics.h"
#include "../../tvm/find.h"

namespace tl {
namespace {

bool IsZero(const Expr& e) {
  const auto* value = e.as<FloatImmNode>();
  return IsConst(e, 0) || (value && value->value == 0 && !std::signbit(value->value));
}

}  // namespace

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

Var ClearedBy(const Stmt& s) {
  const CallNode* call = AsTileOp(s, kFill);
  if (!call || !IsZero(call->args[1])) return Var();
  const TileRegion region = TileRegion::From(call->args[0]);
  return IsFragment(region.buffer) && region.IsWhole() ? region.buffer : Var();
}

bool Touches(const Stmt& s, const Var& accumulator, const Views& views) {
  return HasNode<VarNode>(
      s, [&](const VarNode* v) { return views.IsSameMemory(GetRef<Var>(v), accumulator); });
}

std::optional<size_t> ClearInFront(const std::vector<Stmt>& body, size_t n, const Var& accumulator,
                                   const Views& views) {
  while (n-- > 0) {
    if (ClearedBy(body[n]).same_as(accumulator)) return n;
    if (Touches(body[n], accumulator, views) || LeavesEarly(body[n])) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace tl
