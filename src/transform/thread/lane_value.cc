#include "lane_value.h"

#include <numeric>

#include "../../tvm/functor.h"
#include "../../tvm/hidden_operations.h"

namespace tl {
namespace {

/*! The largest power of two that divides n; all divide 0. */
int64_t PowerOfTwoIn(int64_t n) { return n == 0 ? INT64_MAX : n & -n; }

class LaneEvaluator {
 public:
  LaneEvaluator(const Var& lane, int lanes, Analyzer* analyzer)
      : lane_(lane), lanes_(lanes), analyzer_(analyzer) {}

  std::optional<LaneValue> Of(const Expr& e) {
    if (e.same_as(lane_)) return LaneValue{1, 0};
    if (const auto v = AsInt(e)) return LaneValue{0, std::abs(*v)};
    if (IsModulo(e->dtype()) && !e.as<CastNode>()) return Unknown(e);
    if (const auto* op = e.as<AddNode>()) return Sum(op->a, op->b, 1);
    if (const auto* op = e.as<SubNode>()) return Sum(op->a, op->b, -1);
    if (const auto* op = e.as<MulNode>()) return Product(op->a, op->b);
    if (const auto* op = e.as<FloorDivNode>()) return Quotient(e, op->a, op->b);
    if (const auto* op = e.as<FloorModNode>()) return Remainder(e, op->a, op->b);
    if (const auto* op = e.as<BitwiseXorNode>()) return Xor(op->a, op->b);
    if (const auto* op = e.as<CastNode>(); op && IsInteger(op->value)) {
      return HoldsAll(e->dtype(), op->value->dtype()) ? Of(op->value) : Unknown(e);
    }
    return Unknown(e);
  }

 private:
  static bool IsInteger(const Expr& e) {
    return (e->dtype().code == kDLInt || e->dtype().code == kDLUInt) && e->dtype().lanes == 1;
  }

  /*! Anything that does not depend on the lane; TVM may know what divides it. */
  std::optional<LaneValue> Unknown(const Expr& e) {
    if (Uses(e, lane_)) return std::nullopt;
    const Analyzer::Modular m = analyzer_->ModularSet(e);
    return LaneValue{0, std::gcd(m.coeff, m.base)};
  }

  std::optional<LaneValue> Sum(const Expr& a, const Expr& b, int64_t sign) {
    const auto x = Of(a), y = Of(b);
    if (!x || !y) return std::nullopt;
    return LaneValue{x->step + sign * y->step, std::gcd(x->divisor, y->divisor)};
  }

  std::optional<LaneValue> Product(const Expr& a, const Expr& b) {
    const auto x = Of(a), y = Of(b);
    if (!x || !y) return std::nullopt;
    const auto factor = AsInt(b) ? AsInt(b) : AsInt(a);
    if (!factor && (x->step || y->step)) return std::nullopt;
    const LaneValue& scaled = AsInt(b) ? *x : *y;
    LaneValue v{0, 0};
    if (factor && __builtin_mul_overflow(scaled.step, *factor, &v.step)) return std::nullopt;
    if (__builtin_mul_overflow(x->divisor, y->divisor, &v.divisor)) return std::nullopt;
    return v;
  }

  /*! Lane 0 has a multiple of `unit`, and no other lane the next one or more. */
  bool StaysBelow(const LaneValue& v, int64_t unit) const {
    return v.step >= 0 && v.step * (lanes_ - 1) < unit;
  }

  std::optional<LaneValue> Quotient(const Expr& e, const Expr& a, const Expr& b) {
    const auto x = Of(a);
    const auto by = AsInt(b);
    if (!x || !by || *by <= 0) return Unknown(e);
    const bool whole = x->divisor % *by == 0;
    if (x->step % *by == 0) return LaneValue{x->step / *by, whole ? x->divisor / *by : 1};
    if (!StaysBelow(*x, std::gcd(x->divisor, *by))) return std::nullopt;
    return LaneValue{0, whole ? x->divisor / *by : 1};
  }

  std::optional<LaneValue> Remainder(const Expr& e, const Expr& a, const Expr& b) {
    const auto x = Of(a);
    const auto by = AsInt(b);
    if (!x || !by || *by <= 0) return Unknown(e);
    const int64_t unit = x->divisor % *by == 0 ? 0 : std::gcd(x->divisor, *by);
    if (x->step % *by == 0) return LaneValue{0, unit};
    if (!StaysBelow(*x, std::gcd(x->divisor, *by))) return std::nullopt;
    return LaneValue{x->step, unit};
  }

  std::optional<LaneValue> Xor(const Expr& a, const Expr& b) {
    auto x = Of(a), y = Of(b);
    if (!x || !y || (x->step && y->step)) return std::nullopt;
    if (y->step) std::swap(x, y);
    const int64_t unit = PowerOfTwoIn(x->divisor | y->divisor);
    if (!StaysBelow(*x, unit)) return std::nullopt;
    return LaneValue{x->step, x->divisor | y->divisor ? unit : 0};
  }

  Var lane_;
  int lanes_;
  Analyzer* analyzer_;
};

}  // namespace

std::optional<LaneValue> LaneValueOf(const Expr& e, const Var& lane, int lanes,
                                     Analyzer* analyzer) {
  return LaneEvaluator(lane, lanes, analyzer).Of(e);
}

}  // namespace tl
