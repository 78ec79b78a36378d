#include "predicated_load.h"

#include <cmath>

#include "effects.h"

namespace tl {

bool IsZeros(const Expr& e) {
  if (const auto* broadcast = e.as<BroadcastNode>()) return IsZeros(broadcast->value);
  if (const auto* f = e.as<FloatImmNode>()) return f->value == 0.0 && !std::signbit(f->value);
  return IsConst(e, 0);
}

std::optional<PredicatedLoad> AsPredicatedLoad(Expr value) {
  Expr condition;
  const CallNode* call;
  while ((call = value.as<CallNode>()) && IsIfThenElse(call)) {
    if (call->args[0]->dtype().lanes != 1 || !IsZeros(call->args[2])) return std::nullopt;
    condition = condition.defined() ? condition && call->args[0] : call->args[0];
    value = call->args[1];
  }
  const auto* load = value.as<TensorLoadNode>();
  if (!load || !IsGlobal(load->source.as_or_throw<Var>())) return std::nullopt;
  return PredicatedLoad{load, condition};
}

}  // namespace tl
