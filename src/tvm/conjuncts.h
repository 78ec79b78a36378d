#pragma once
#include "find.h"

namespace tl {

/*! The conditions of which `condition` is the conjunction. */
inline std::vector<Expr> ConjunctsOf(const Expr& condition) {
  const auto* both = condition.as<AndNode>();
  if (!both) return {condition};
  std::vector<Expr> all = ConjunctsOf(both->a);
  const std::vector<Expr> others = ConjunctsOf(both->b);
  AppendRange(&all, others);
  return all;
}

}  // namespace tl
