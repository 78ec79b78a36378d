#include "wide_bounds.h"

#include <algorithm>

#include "../../analysis/effects.h"
#include "../../op/intrinsics.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/hidden_operations.h"

namespace tl {
namespace {

using Bound = WideBounds::Bound;
using Wide = __int128;

bool IsInteger(DLDataType t) {
  return t.lanes == 1 && (t.code == kDLInt || t.code == kDLUInt || t.code == kDLBool);
}

bool IsInteger(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && IsInteger(type->dtype);
}

bool IsSigned(const Expr& e) { return IsInteger(e) && e->dtype().code == kDLInt; }

Bound RangeOf(DLDataType t) {
  if (t.code == kDLBool) return {0, 1};
  if (t.code == kDLUInt) return {0, t.bits >= 63 ? INT64_MAX : (int64_t(1) << t.bits) - 1};
  if (t.bits >= 64) return {INT64_MIN, INT64_MAX};
  return {-(int64_t(1) << (t.bits - 1)), (int64_t(1) << (t.bits - 1)) - 1};
}

/*! Far above every memory. */
constexpr int64_t kMostMagnitude = int64_t(1) << 48;

int64_t Saturated(Wide x) {
  return x < INT64_MIN ? INT64_MIN : x > INT64_MAX ? INT64_MAX : static_cast<int64_t>(x);
}

/*! The smallest interval with some values. */
struct Hull {
  Wide min = 0, max = 0;
  bool empty = true;
  void Add(Wide x) {
    min = empty ? x : std::min(min, x);
    max = empty ? x : std::max(max, x);
    empty = false;
  }
  Bound Get() const { return {Saturated(min), Saturated(max)}; }
};

Wide FloorOf(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

template <typename F>
Bound AtCorners(const Bound& a, const Bound& b, F f) {
  Hull hull;
  for (int64_t x : {a.min, a.max}) {
    for (int64_t y : {b.min, b.max}) hull.Add(f(Wide(x), Wide(y)));
  }
  return hull.Get();
}

/*! Quotients by divisors of one sign are at the corners. What a division by zero yields has no
 * bounds that a correct program would need. */
template <typename F>
Bound Quotient(const Bound& a, const Bound& b, F divide) {
  Hull hull;
  for (const Bound& part :
       {Bound{b.min, std::min<int64_t>(b.max, -1)}, Bound{std::max<int64_t>(b.min, 1), b.max}}) {
    if (part.min > part.max) continue;
    const Bound q = AtCorners(a, part, divide);
    hull.Add(q.min);
    hull.Add(q.max);
  }
  if (hull.empty) hull.Add(0);
  return hull.Get();
}

Bound FloorRemainder(const Bound& a, const Bound& b) {
  if (b.min == b.max && b.min > 0 && FloorOf(a.min, b.min) == FloorOf(a.max, b.min)) {
    const Wide before = FloorOf(a.min, b.min) * b.min;
    return {Saturated(a.min - before), Saturated(a.max - before)};
  }
  Bound r{b.min < 0 ? Saturated(Wide(b.min) + 1) : 0, b.max > 0 ? b.max - 1 : 0};
  // Nothing happens to a number between zero and the divisor.
  if (a.min >= 0 && b.min >= 0) r.max = std::min(r.max, a.max);
  if (a.max <= 0 && b.max <= 0) r.min = std::max(r.min, a.min);
  return r;
}

Bound Remainder(const Bound& a, const Bound& b) {
  const Wide most = std::max<Wide>(std::max<Wide>(b.max, -Wide(b.min)) - 1, 0);
  return {a.min < 0 ? Saturated(std::max<Wide>(a.min, -most)) : 0,
          a.max > 0 ? Saturated(std::min<Wide>(a.max, most)) : 0};
}

/*! A shift by a number of bits that int32 does not have is nothing that a program may do. */
Bound Bits(const Bound& b) {
  return {std::clamp<int64_t>(b.min, 0, 63),
          std::clamp<int64_t>(b.max, 0, b.min == b.max ? 63 : 31)};
}

Bound BitwiseAnd(const Bound& a, const Bound& b) {
  if (a.min >= 0 && b.min >= 0) return {0, std::min(a.max, b.max)};
  if (a.min >= 0) return {0, a.max};
  if (b.min >= 0) return {0, b.max};
  return {INT64_MIN, std::max(a.max, b.max)};
}

/*! Bounds of `or` and `xor`: as many bits as the longer operand has. */
Bound BitwiseOr(const Bound& a, const Bound& b) {
  int64_t ones = 0;
  for (int64_t x : {a.min, a.max, b.min, b.max}) {
    const uint64_t bits = static_cast<uint64_t>(x < 0 ? ~x : x);
    while (static_cast<uint64_t>(ones) < bits) ones = 2 * ones + 1;
  }
  return {a.min >= 0 && b.min >= 0 ? 0 : ~ones, ones};
}

bool Fits(const Bound& b, DLDataType t) {
  if (t.code != kDLInt) return true;
  // A sum at the limits of int64 may lie beyond.
  if (t.bits >= 64) return b.min > INT64_MIN && b.max < INT64_MAX;
  const Bound any = RangeOf(t);
  return b.min >= any.min && b.max <= any.max;
}

/*! A cast to a type that does not hold all values of the other one. */
bool Narrows(const Expr& e) {
  const auto* op = e.as<CastNode>();
  return op && (!IsInteger(op->value) || !HoldsAll(e->dtype(), op->value->dtype()));
}

/*! The bound stands for all numbers of uint64 that are behind those of int64. */
bool IsUnbounded(const Expr& e, const Bound& bound) {
  return IsInteger(e) && e->dtype().code == kDLUInt && e->dtype().bits == 64 &&
         bound.max == INT64_MAX;
}

/*! Bounds of an expression from those of its parts. */
class Evaluator {
 public:
  Evaluator(const std::unordered_map<const Object*, Bound>& known,
            const std::unordered_map<const Object*, bool>& modular)
      : known_(known), modular_(modular) {}

  bool exact = true;

  Bound Of(const Expr& e) {
    if (const auto value = AsInt(e)) return {*value, *value};
    if (auto it = known_.find(e.get()); it != known_.end()) {
      const auto inexact = modular_.find(e.get());
      exact &= inexact == modular_.end() || (inexact->second && Fits(it->second, e->dtype()));
      return it->second;
    }
    if (!IsInteger(e)) return {INT64_MIN, INT64_MAX};
    if (IsModulo(e->dtype()) || Narrows(e)) return ValueOf(e);
    const std::optional<Bound> found = Arithmetic(e);
    if (!found) return RangeOf(e->dtype());
    exact &= Fits(*found, e->dtype());
    return *found;
  }

 private:
  /*! What wraps: an unsigned or a narrow integer, and a cast to a type that holds less. */
  Bound ValueOf(const Expr& e) const {
    Evaluator of_parts(known_, modular_);
    const Bound any = RangeOf(e->dtype());
    for (const Expr& part : UnboundedParts(e)) {
      if (IsUnbounded(part, of_parts.Of(part))) return any;
    }
    const Bound found = of_parts.Arithmetic(e).value_or(any);
    const bool wraps = found.min < any.min || found.max > any.max || IsUnbounded(e, found);
    return wraps ? any : found;
  }

  /*! Operands whose bound decides that of the result, if they have none. */
  static std::vector<Expr> UnboundedParts(const Expr& e) {
    if (const auto* op = e.as<CastNode>()) return {op->value};
    if (const auto* op = e.as<FloorDivNode>()) return {op->a};
    if (const auto* op = e.as<DivNode>()) return {op->a};
    if (const auto* op = e.as<RShiftNode>()) return {op->a};
    return {};
  }

  template <typename N, typename F>
  std::optional<Bound> Two(const Expr& e, F f) {
    const auto* op = e.as<N>();
    if (!op) return std::nullopt;
    const Bound a = Of(op->a), b = Of(op->b);
    return f(a, b);
  }

  std::optional<Bound> Arithmetic(const Expr& e) {
    std::optional<Bound> r;
    const auto corners = [](auto f) {
      return [f](const Bound& a, const Bound& b) { return AtCorners(a, b, f); };
    };
    if ((r = Two<AddNode>(e, corners([](Wide a, Wide b) { return a + b; })))) return r;
    if ((r = Two<SubNode>(e, corners([](Wide a, Wide b) { return a - b; })))) return r;
    if ((r = Two<MulNode>(e, corners([](Wide a, Wide b) { return a * b; })))) return r;
    if ((r = Two<MinNode>(e, corners([](Wide a, Wide b) { return std::min(a, b); })))) return r;
    if ((r = Two<MaxNode>(e, corners([](Wide a, Wide b) { return std::max(a, b); })))) return r;
    if ((r = Division(e))) return r;
    if ((r = OfBits(e))) return r;
    return Choice(e);
  }

  std::optional<Bound> Division(const Expr& e) {
    std::optional<Bound> r;
    if ((r = Two<FloorDivNode>(
             e, [](const Bound& a, const Bound& b) { return Quotient(a, b, FloorOf); }))) {
      return r;
    }
    if ((r = Two<DivNode>(e, [](const Bound& a, const Bound& b) {
           return Quotient(a, b, [](Wide x, Wide y) { return x / y; });
         }))) {
      return r;
    }
    if ((r = Two<FloorModNode>(e, FloorRemainder))) return r;
    return Two<ModNode>(e, Remainder);
  }

  std::optional<Bound> OfBits(const Expr& e) {
    std::optional<Bound> r;
    if ((r = Two<BitwiseAndNode>(e, BitwiseAnd))) return r;
    if ((r = Two<BitwiseOrNode>(e, BitwiseOr))) return r;
    if ((r = Two<BitwiseXorNode>(e, BitwiseOr))) return r;
    if (const auto* op = e.as<BitwiseNotNode>()) {
      const Bound a = Of(op->a);
      return Bound{~a.max, ~a.min};
    }
    if ((r = Two<LShiftNode>(e, [](const Bound& a, const Bound& b) {
           return AtCorners(a, Bits(b), [](Wide x, Wide y) { return x * (Wide(1) << y); });
         }))) {
      return r;
    }
    return Two<RShiftNode>(e, [](const Bound& a, const Bound& b) {
      return AtCorners(a, Bits(b), [](Wide x, Wide y) { return x >> y; });
    });
  }

  std::optional<Bound> Choice(const Expr& e) {
    if (const auto* op = e.as<SelectNode>()) return Either(op->true_value, op->false_value);
    if (const auto* op = e.as<CallNode>(); op && IsIfThenElse(op)) {
      return Either(op->args[1], op->args[2]);
    }
    if (const auto* op = e.as<CastNode>(); op && IsInteger(op->value)) return Of(op->value);
    return std::nullopt;
  }

  Bound Either(const Expr& a, const Expr& b) {
    const Bound x = Of(a), y = Of(b);
    return {std::min(x.min, y.min), std::max(x.max, y.max)};
  }

  const std::unordered_map<const Object*, Bound>& known_;
  const std::unordered_map<const Object*, bool>& modular_;
};

Wide CeilOf(Wide a, Wide b) { return -FloorOf(-a, b); }

/*! The constant that an expression is the product of another one with. */
std::optional<std::pair<Expr, int64_t>> Scaled(const Expr& e) {
  if (const auto* op = e.as<MulNode>()) {
    if (const auto c = AsInt(op->b)) return std::make_pair(op->a, *c);
    if (const auto c = AsInt(op->a)) return std::make_pair(op->b, *c);
  }
  if (const auto* op = e.as<LShiftNode>()) {
    const auto c = AsInt(op->b);
    if (c && *c >= 0 && *c < 63) return std::make_pair(op->a, int64_t(1) << *c);
  }
  return std::nullopt;
}

Expr TruncDivOf(const Expr& a, const Expr& b) {
  return TL_GLOBAL("prim._OpTruncDiv")(a, b, nullptr).cast<Expr>();
}

Expr TruncModOf(const Expr& a, const Expr& b) {
  return TL_GLOBAL("prim._OpTruncMod")(a, b, nullptr).cast<Expr>();
}

/*! May be evaluated twice. */
bool IsRepeatable(const Expr& e) {
  return !HasNode<CallNode>(
      e, [&](const CallNode* op) { return !IsIfThenElse(op) && !IsElementwise(op); });
}

}  // namespace

void WideBounds::Range(const Var& v, const Expr& min, const Expr& extent) {
  const Bound first = Of(min), count = Of(extent);
  const Bound any = RangeOf(v->dtype());
  const int64_t last = std::min(any.max, Saturated(Wide(first.max) + Wide(count.max) - 1));
  known_[v.get()] = {std::max(any.min, first.min), std::max(first.min, last)};
}

Stmt WideBounds::Value(const BindNode* bind) {
  if (!IsInteger(bind->value)) return Stmt();
  const Bound bound = Of(bind->value), any = RangeOf(bind->value->dtype());
  const Var& v = bind->var;
  known_[v.get()] = {std::max(bound.min, any.min), std::min(bound.max, any.max)};
  const DLDataType type = bind->value->dtype();
  if ((type != kInt32 && type != kInt64) || IsExact(bind->value) || !IsRepeatable(bind->value)) {
    return Stmt();
  }
  const Var wide = MakeVar(v->name, kInt64);
  known_[v.get()] = known_[wide.get()] = bound;
  names_.emplace(v.get(), Name{bind->value, wide});
  modular_.emplace(v.get(), IsModular(bind->value));
  return MakeBind(wide, Widened(bind->value), bind->span);
}

void WideBounds::Shapes(const PrimFunc& f) {
  for (const Var& p : f->params) {
    if (!AsBuffer(p)) continue;
    for (const Var& v : SizeSymbolsOf(p)) {
      known_[v.get()] = {0, std::min(kMostMagnitude, RangeOf(v->dtype()).max)};
    }
    // A tensor at any address counts from the multiple of 16 bytes in front of it.
    if (BufferOf(p)->elem_offset.as<VarNode>()) known_[BufferOf(p)->elem_offset.get()] = {0, 15};
  }
  const Any guards = GetAttr(f, kGuards);
  if (guards == nullptr) return;
  Before for_good;
  for (const Expr& guard : guards.cast<Array<Expr>>()) {
    Assume(guard, &for_good);
    const auto* op = guard.as<LENode>();
    const auto product = op ? SizeProductOf(op->a) : std::nullopt;
    if (product && AsInt(op->b)) products_.emplace_back(*product, ToInt(op->b));
  }
}

double WideBounds::MostElements(const Array<Expr>& shape) const {
  double most = 1;
  for (const Expr& extent : shape) most *= static_cast<double>(Of(extent).max);
  const auto size = SizeProductOf(std::vector<Expr>(shape.begin(), shape.end()));
  if (!size) return most;
  for (const auto& [product, limit] : products_) {
    if (!product.SameFactors(*size)) continue;
    most = std::min(most, static_cast<double>(limit) / static_cast<double>(product.constant) *
                              static_cast<double>(size->constant));
  }
  return most;
}

void WideBounds::Assume(const Expr& fact, Before* before) {
  if (const auto* op = fact.as<AndNode>()) {
    Assume(op->a, before);
    Assume(op->b, before);
  }
  if (const auto* op = fact.as<LENode>()) AssumeOrder(op->a, op->b, 0, before);
  if (const auto* op = fact.as<LTNode>()) AssumeOrder(op->a, op->b, 1, before);
  if (const auto* op = fact.as<GENode>()) AssumeOrder(op->b, op->a, 0, before);
  if (const auto* op = fact.as<GTNode>()) AssumeOrder(op->b, op->a, 1, before);
}

void WideBounds::AssumeOrder(const Expr& smaller, const Expr& larger, int64_t by, Before* before) {
  if (!IsSigned(smaller) || !IsSigned(larger)) return;
  const Bound low = Of(smaller), high = Of(larger);
  Narrow(smaller, low.min, Saturated(Wide(high.max) - by), before);
  Narrow(larger, Saturated(Wide(low.min) + by), high.max, before);
  const auto product = SizeProductOf(smaller);
  if (product && product->factors.size() > 1) NarrowFactors(*product, high.max - by, before);
}

/*! With other factors of at least 1, none is larger than the product. */
void WideBounds::NarrowFactors(const SizeProduct& product, int64_t max, Before* before) {
  for (const Var& v : product.factors) {
    const bool others =
        AllOf(product.factors, [&](const Var& u) { return u.same_as(v) || Of(u).min >= 1; });
    if (others) Narrow(v, INT64_MIN, max / product.constant, before);
  }
}

void WideBounds::Narrow(const Expr& e, int64_t min, int64_t max, Before* before) {
  const auto* v = e.as<VarNode>();
  if (!v) return;
  const Bound known = Of(e);
  min = std::max(min, known.min);
  max = std::min(max, known.max);
  // What cannot be is never run.
  if (min > max) return;
  const auto it = known_.find(v);
  before->emplace_back(v, it == known_.end() ? std::nullopt : std::optional<Bound>(it->second));
  known_[v] = {min, max};
}

void WideBounds::PutBack(const Before& before) {
  for (auto it = before.rbegin(); it != before.rend(); ++it) {
    if (it->second) {
      known_[it->first] = *it->second;
    } else {
      known_.erase(it->first);
    }
  }
}

Bound WideBounds::Of(const Expr& e) const { return Evaluator(known_, modular_).Of(e); }

bool WideBounds::IsExact(const Expr& e) const {
  Evaluator evaluator(known_, modular_);
  evaluator.Of(e);
  return evaluator.exact;
}

bool WideBounds::IsModular(const Expr& e) const {
  if (const auto* op = e.as<AddNode>()) return IsModular(op->a) && IsModular(op->b);
  if (const auto* op = e.as<SubNode>()) return IsModular(op->a) && IsModular(op->b);
  if (const auto* op = e.as<MulNode>()) return IsModular(op->a) && IsModular(op->b);
  if (const auto scaled = Scaled(e)) return IsModular(scaled->first);
  if (const auto it = modular_.find(e.get()); it != modular_.end()) return it->second;
  return IsExact(e);
}

bool WideBounds::IsExactWithin(const Expr& e, int64_t min, int64_t max) const {
  if (IsExact(e)) return true;
  const Bound found = Of(e);
  const Bound bound{std::max(found.min, min), std::min(found.max, max)};
  if (bound.min > bound.max) return true;  // is never run
  if (!IsSigned(e) || !Fits(bound, e->dtype())) return false;
  const auto within = [&](const Expr& part, Wide first, Wide last) {
    return IsExactWithin(part, Saturated(first), Saturated(last));
  };
  const auto sum = [&](const Expr& a, const Expr& b, bool plus) {
    const Bound x = Of(a), y = Of(b);
    const Wide least = plus ? y.min : -Wide(y.max), most = plus ? y.max : -Wide(y.min);
    const Wide first = bound.min - Wide(x.max), last = bound.max - Wide(x.min);
    return within(a, bound.min - most, bound.max - least) &&
           (plus ? within(b, first, last) : within(b, -last, -first));
  };
  if (const auto* op = e.as<AddNode>()) return sum(op->a, op->b, true);
  if (const auto* op = e.as<SubNode>()) return sum(op->a, op->b, false);
  if (const auto scaled = Scaled(e)) {
    const auto& [part, c] = *scaled;
    if (c > 0) return within(part, CeilOf(bound.min, c), FloorOf(bound.max, c));
    return c < 0 && within(part, CeilOf(bound.max, c), FloorOf(bound.min, c));
  }
  if (const auto* op = e.as<MulNode>()) return IsExact(op->a) && IsExact(op->b);
  const auto name = names_.find(e.get());
  return name != names_.end() && IsExactWithin(name->second.value, bound.min, bound.max);
}

/*! factor * part + a rest in [min, max]. */
struct WideBounds::Sum {
  Expr part;
  int64_t factor = 0;
  Wide min = 0, max = 0;
  bool fits = true;
};

void WideBounds::Split(const Expr& e, int64_t sign, Sum* sum) const {
  if (const auto* op = e.as<AddNode>()) {
    Split(op->a, sign, sum);
    return Split(op->b, sign, sum);
  }
  if (const auto* op = e.as<SubNode>()) {
    Split(op->a, sign, sum);
    return Split(op->b, -sign, sum);
  }
  if (!IsExact(e)) {
    const auto scaled = Scaled(e);
    sum->fits &= scaled && !sum->part.defined() && IsExact(scaled->first) &&
                 scaled->first->dtype() == kInt32;
    if (!sum->fits) return;
    sum->part = scaled->first;
    sum->factor = sign * scaled->second;
    return;
  }
  const Bound bound = Of(e);
  sum->min += sign > 0 ? Wide(bound.min) : -Wide(bound.max);
  sum->max += sign > 0 ? Wide(bound.max) : -Wide(bound.min);
}

Expr WideBounds::AtLeast(const Expr& e, int64_t least) const {
  Sum sum;
  Split(e, 1, &sum);
  if (!sum.fits || sum.factor <= 0) return Expr();
  const Wide first = CeilOf(least - sum.max, sum.factor);
  if (first != CeilOf(least - sum.min, sum.factor) || first < INT32_MIN || first > INT32_MAX) {
    return Expr();
  }
  return sum.part >= MakeInt(static_cast<int64_t>(first));
}

Expr WideBounds::Widened(const Expr& e) {
  if (!IsSigned(e) || IsExact(e)) return CastTo(kInt64, e);
  const Expr wide = WidenedParts(e);
  return wide.defined() ? wide : CastTo(kInt64, e);
}

Expr WideBounds::WidenedParts(const Expr& e) {
  // In int64 a sum that leaves it stays at its end, which is outside of every memory.
  const bool fits = Fits(Of(e), kInt64);
  const auto saturating = [](const char* op, const Expr& a, const Expr& b) {
    return CallOp(op, {a, b}, PrimTy(kInt64));
  };
#define TL_WIDE_(Node, Plain, Saturating)                           \
  if (const auto* op = e.as<Node>()) {                              \
    const Expr a = Widened(op->a), b = Widened(op->b);              \
    return fits ? Expr(Plain) : Expr(saturating(Saturating, a, b)); \
  }
  TL_WIDE_(AddNode, a + b, kAddSaturating)
  TL_WIDE_(SubNode, a - b, kSubSaturating)
  TL_WIDE_(MulNode, a * b, kMulSaturating)
#undef TL_WIDE_
  if (const auto scaled = Scaled(e); scaled && !fits) {
    return saturating(kMulSaturating, Widened(scaled->first), MakeInt(kInt64, scaled->second));
  }
#define TL_WIDE_(Node, Of) \
  if (const auto* op = e.as<Node>()) return Of(Widened(op->a), Widened(op->b));
  TL_WIDE_(FloorDivNode, FloorDivOf)
  TL_WIDE_(FloorModNode, FloorModOf)
  TL_WIDE_(MinNode, MinOf)
  TL_WIDE_(MaxNode, MaxOf)
  TL_WIDE_(BitwiseAndNode, BitAndOf)
  TL_WIDE_(BitwiseOrNode, BitOrOf)
  TL_WIDE_(BitwiseXorNode, XorOf)
  TL_WIDE_(LShiftNode, ShiftLeftOf)
  TL_WIDE_(RShiftNode, ShiftRightOf)
  TL_WIDE_(DivNode, TruncDivOf)
  TL_WIDE_(ModNode, TruncModOf)
#undef TL_WIDE_
  if (const auto* op = e.as<BitwiseNotNode>()) return MakeInt(kInt64, -1) - Widened(op->a);
  if (const auto* op = e.as<SelectNode>()) {
    auto n = make_object<SelectNode>(*op);
    n->true_value = Widened(op->true_value);
    n->false_value = Widened(op->false_value);
    n->ty = PrimTy(kInt64);
    return Select(n);
  }
  if (const auto* op = e.as<CallNode>(); op && IsIfThenElse(op)) {
    return IfThenElseOf(op->args[0], Widened(op->args[1]), Widened(op->args[2]));
  }
  if (const auto* op = e.as<CastNode>(); op && !Narrows(e)) return Widened(op->value);
  const auto name = names_.find(e.get());
  if (name == names_.end()) return Expr();
  used_.insert(name->second.wide.get());
  return name->second.wide;
}

}  // namespace tl
