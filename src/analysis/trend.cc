#include "trend.h"

#include "../tvm/find.h"
#include "../tvm/hidden_operations.h"
#include "effects.h"

namespace tl {
namespace {

/*! That of a sum. */
Trend SumOf(Trend a, Trend b) {
  if (a == Trend::kConstant) return b;
  return b == Trend::kConstant || a == b ? a : Trend::kUnknown;
}

/*! That of the negative. */
Trend Reversed(Trend a) {
  if (a == Trend::kUp) return Trend::kDown;
  return a == Trend::kDown ? Trend::kUp : a;
}

}  // namespace

Trend Trends::Of(const Expr& e, const Var& v) const {
  if (const auto* name = e.as<VarNode>()) {
    if (v.same_as(e)) return Trend::kUp;
    const auto value = values_.find(name);
    return value == values_.end() ? Trend::kConstant : Of(value->second, v);
  }
  const BoundOf bound_of = [&](const Expr& part) { return analyzer_->ConstBound(part); };
  if (MisleadsTvm(e, bound_of)) return OfOther(e, v);
  if (const auto* op = e.as<AddNode>()) return SumOf(Of(op->a, v), Of(op->b, v));
  if (const auto* op = e.as<SubNode>()) return SumOf(Of(op->a, v), Reversed(Of(op->b, v)));
  if (const auto* op = e.as<MinNode>()) return SumOf(Of(op->a, v), Of(op->b, v));
  if (const auto* op = e.as<MaxNode>()) return SumOf(Of(op->a, v), Of(op->b, v));
  if (const auto* op = e.as<MulNode>()) return OfProduct(op->a, op->b, v);
  if (const auto* op = e.as<FloorDivNode>()) return OfQuotient(op->a, op->b, v);
  if (const auto* op = e.as<CastNode>()) return Of(op->value, v);
  const auto* call = e.as<CallNode>();
  if (call && IsIfThenElse(call)) {
    const Trend both = SumOf(Of(call->args[1], v), Of(call->args[2], v));
    return Of(call->args[0], v) == Trend::kConstant ? both : Trend::kUnknown;
  }
  return OfOther(e, v);
}

Trend Trends::OfOther(const Expr& e, const Var& v) const {
  const bool varies = HasNode<VarNode>(
      e, [&](const VarNode* u) { return Of(GetRef<Var>(u), v) != Trend::kConstant; });
  return varies ? Trend::kUnknown : Trend::kConstant;
}

Trend Trends::OfProduct(const Expr& a, const Expr& b, const Var& v) const {
  const Trend of_a = Of(a, v), of_b = Of(b, v);
  if (of_a == Trend::kConstant && of_b != Trend::kConstant) return OfProduct(b, a, v);
  if (of_a == Trend::kConstant) return Trend::kConstant;
  const Analyzer::Bound factor = analyzer_->ConstBound(b);
  if (of_b == Trend::kConstant && factor.max <= 0) return Reversed(of_a);
  if (of_b == Trend::kConstant && factor.min >= 0) return of_a;
  const bool positive = factor.min >= 0 && analyzer_->ConstBound(a).min >= 0;
  return positive ? SumOf(of_a, of_b) : Trend::kUnknown;
}

Trend Trends::OfQuotient(const Expr& a, const Expr& b, const Var& v) const {
  const Trend of_a = Of(a, v);
  if (Of(b, v) != Trend::kConstant) return Trend::kUnknown;
  return of_a == Trend::kConstant || analyzer_->ConstBound(b).min > 0 ? of_a : Trend::kUnknown;
}

}  // namespace tl
