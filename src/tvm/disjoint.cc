#include "disjoint.h"

namespace tl {

bool AreDisjoint(const Expr& a, int64_t a_extent, const Expr& b, int64_t b_extent,
                 Analyzer* analyzer) {
  const Analyzer::Bound gap = analyzer->ConstBound(analyzer->Simplify(a - b));
  if (gap.min >= b_extent || gap.max <= -a_extent) return true;
  if (a_extent != 1 || b_extent != 1) return false;
  const auto* ma = a.as<FloorModNode>();
  const auto* mb = b.as<FloorModNode>();
  const std::optional<int64_t> modulus = AsInt(ma ? ma->b : mb ? mb->b : Expr(MakeInt(0)));
  if (!modulus || *modulus <= 0 || (ma && mb && modulus != AsInt(mb->b))) return false;
  // What is in [0, modulus) anyway lost its floormod to the simplifier.
  auto below_modulus = [&](const Expr& e) {
    const Analyzer::Bound bound = analyzer->ConstBound(e);
    return bound.min >= 0 && bound.max < *modulus;
  };
  if ((!ma && !below_modulus(a)) || (!mb && !below_modulus(b))) return false;
  const Expr difference = (ma ? ma->a : a) - (mb ? mb->a : b);
  const Analyzer::Modular d = analyzer->ModularSet(analyzer->Simplify(difference));
  return d.coeff % *modulus == 0 && d.base % *modulus != 0;
}

}  // namespace tl
