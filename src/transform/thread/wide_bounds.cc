#include "wide_bounds.h"

#include <algorithm>

#include "../../tvm/functor.h"

namespace tl {
namespace {

/*! Far above every memory, and small enough that sums and products by strides do not wrap. */
constexpr int64_t kMost = int64_t(1) << 48;

int64_t Saturated(double x) { return x > double(kMost) ? kMost : static_cast<int64_t>(x); }

bool IsInt(const Expr& e) {
  const auto* type = e->ty.as<PrimTypeNode>();
  return type && type->dtype.code == kDLInt && type->dtype.lanes == 1;
}

}  // namespace

void WideBounds::Range(const Var& v, const Expr& min, const Expr& extent) {
  const Bound first = Of(min), count = Of(extent);
  Set(v, first.min, std::max(first.min, Saturated(double(first.max) + double(count.max) - 1)));
}

void WideBounds::Value(const BindNode* bind) {
  const auto* type = bind->value->ty.as<PrimTypeNode>();
  if (!type || type->dtype.code != kDLInt || type->dtype.lanes != 1) return;
  const Bound bound = Of(bind->value);
  const bool narrow = type->dtype.bits <= 32;
  Set(bind->var, narrow ? std::max<int64_t>(bound.min, INT32_MIN) : bound.min,
      narrow ? std::min<int64_t>(bound.max, INT32_MAX) : bound.max);
}

void WideBounds::Shapes(const PrimFunc& f) {
  struct Dimensions : StmtExprVisitor {
    WideBounds* bounds;
    using StmtExprVisitor::Visit_;
    void Visit_(const VarNode* v) override {
      bounds->Set(GetRef<Var>(v), 0, v->dtype().bits == 64 ? kMost : INT32_MAX);
    }
  } dimensions;
  dimensions.bounds = this;
  for (const Var& p : f->params) {
    if (!AsBuffer(p)) continue;
    for (const Expr& extent : BufferOf(p)->shape) dimensions(extent);
    for (const Expr& stride : BufferOf(p)->strides) dimensions(stride);
  }
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
  if (!IsInt(smaller) || !IsInt(larger)) return;
  const Bound low = Of(smaller), high = Of(larger);
  Narrow(smaller, low.min, high.max - by, before);
  Narrow(larger, low.min + by, high.max, before);
}

void WideBounds::Narrow(const Expr& e, int64_t min, int64_t max, Before* before) {
  const auto* v = e.as<VarNode>();
  if (!v) return;
  const Bound known = Of(e);
  min = std::max(min, known.min);
  max = std::min(max, known.max);
  // What cannot be is never run.
  if (min > max) return;
  const auto it = twins_.find(v);
  before->emplace_back(v, it == twins_.end() ? std::nullopt : std::optional<Var>(it->second));
  Set(GetRef<Var>(v), min, max);
}

void WideBounds::PutBack(const Before& before) {
  for (auto it = before.rbegin(); it != before.rend(); ++it) {
    if (it->second) {
      twins_[it->first] = *it->second;
    } else {
      twins_.erase(it->first);
    }
  }
}

bool WideBounds::FitInt32(const Expr& e) {
  const Bound bound = Of(e);
  return bound.min >= INT32_MIN && bound.max <= INT32_MAX;
}

bool WideBounds::FitInt32IfOthersAreSmall(const Expr& e) {
  others_are_small_ = true;
  const bool fit = FitInt32(e);
  others_are_small_ = false;
  return fit;
}

void WideBounds::Set(const Var& v, int64_t min, int64_t max) {
  const Var twin = MakeVar(v->name, kInt64);
  Bind(twin, min, max);
  twins_[v.get()] = twin;
}

void WideBounds::Bind(const Var& twin, int64_t min, int64_t max) {
  const int64_t first = std::max(min, -kMost), last = std::min(max, kMost);
  analyzer_.Bind(twin, MakeInt(kInt64, first), MakeInt(kInt64, last - first + 1));
}

Expr WideBounds::Wide(const Expr& e) {
  if (auto value = AsInt(e)) return MakeInt(kInt64, *value);
  if (auto it = twins_.find(e.get()); it != twins_.end()) return it->second;
  if (const auto* op = e.as<AddNode>()) return Wide(op->a) + Wide(op->b);
  if (const auto* op = e.as<SubNode>()) return Wide(op->a) - Wide(op->b);
  if (const auto* op = e.as<MulNode>()) return Wide(op->a) * Wide(op->b);
  if (const auto* op = e.as<FloorDivNode>()) return FloorDivOf(Wide(op->a), Wide(op->b));
  if (const auto* op = e.as<FloorModNode>()) return FloorModOf(Wide(op->a), Wide(op->b));
  if (const auto* op = e.as<MinNode>()) return MinOf(Wide(op->a), Wide(op->b));
  if (const auto* op = e.as<MaxNode>()) return MaxOf(Wide(op->a), Wide(op->b));
  if (const auto* op = e.as<CastNode>(); op && IsInt(op->value)) return Wide(op->value);
  const Var any = MakeVar("any", kInt64);
  const bool wide = !IsInt(e) || e->dtype().bits == 64;
  Bind(any, wide ? -kMost : INT32_MIN, wide ? kMost : INT32_MAX);
  return others_are_small_ ? Expr(MakeInt(kInt64, 0)) : Expr(any);
}

}  // namespace tl
