#include "disjoint.h"

#include <tvm/ffi/extra/structural_equal.h>

namespace tl {
namespace {

/*! An index without the conversion around it, which keeps what is below an int32 extent. */
Expr WithoutCast(const Expr& e) {
  const auto* cast = e.as<CastNode>();
  return cast ? WithoutCast(cast->value) : e;
}

/*! x of x + constant, and the constant. */
std::pair<Expr, int64_t> SplitConstant(const Expr& e) {
  const auto* sum = e.as<AddNode>();
  const auto constant = sum ? AsInt(sum->b) : std::nullopt;
  return constant ? std::pair(sum->a, *constant) : std::pair(e, int64_t(0));
}

/*! `(count + 2) % 3` and `count % 3` for unsigned numbers, of which differences are no numbers. */
bool AreOtherSlots(const Expr& a, const Expr& b) {
  const auto *ma = a.as<FloorModNode>(), *mb = b.as<FloorModNode>();
  if (!ma || !mb || ma->a->dtype().code != kDLUInt) return false;
  const auto modulus = AsInt(ma->b);
  if (!modulus || *modulus <= 0 || modulus != AsInt(mb->b)) return false;
  const auto [x, from_x] = SplitConstant(ma->a);
  const auto [y, from_y] = SplitConstant(mb->a);
  return (from_x - from_y) % *modulus != 0 && ffi::StructuralEqual()(x, y);
}

}  // namespace

bool AreDisjoint(const Expr& a, int64_t a_extent, const Expr& b, int64_t b_extent,
                 Analyzer* analyzer) {
  const bool points = a_extent == 1 && b_extent == 1;
  if (points && AreOtherSlots(WithoutCast(a), WithoutCast(b))) return true;
  const Analyzer::Bound gap = analyzer->ConstBound(analyzer->Simplify(a - b));
  if (gap.min >= b_extent || gap.max <= -a_extent) return true;
  if (!points) return false;
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
