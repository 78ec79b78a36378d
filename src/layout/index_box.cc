#include "index_box.h"

#include <algorithm>

#include "../tvm/functor.h"

namespace tl {
namespace {

/*! Looks for what IntProgram cannot evaluate. */
class Judge : public StmtExprVisitor {
 public:
  explicit Judge(const std::vector<Axis>& axes) : axes_(axes) {}
  bool good = true;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const VarNode* op) override {
    good &=
        std::any_of(axes_.begin(), axes_.end(), [op](const Axis& a) { return a.var.get() == op; });
  }
  void Visit_(const FloorDivNode* op) override { VisitDivision(op->a, op->b); }
  void Visit_(const FloorModNode* op) override { VisitDivision(op->a, op->b); }
#define TL_REFUSE_(Node) \
  void Visit_(const Node*) override { good = false; }
  TL_REFUSE_(CallNode)
  TL_REFUSE_(TensorLoadNode)
  TL_REFUSE_(FloatImmNode)
  TL_REFUSE_(StringImmNode)
  TL_REFUSE_(DivNode)
  TL_REFUSE_(ModNode)
  TL_REFUSE_(NotNode)
  TL_REFUSE_(BitwiseNotNode)
  TL_REFUSE_(RampNode)
  TL_REFUSE_(BroadcastNode)
  TL_REFUSE_(ShuffleNode)
  TL_REFUSE_(LetNode)
#undef TL_REFUSE_

 private:
  void VisitDivision(const Expr& a, const Expr& b) {
    good &= AsInt(b).value_or(0) > 0;
    Visit(a);
  }
  const std::vector<Axis>& axes_;
};

}  // namespace

std::optional<Axis> AxisOf(const ForNode* loop) {
  const std::optional<int64_t> min = AsInt(loop->min), extent = AsInt(loop->extent);
  if (!min || !extent || *extent <= 0) return std::nullopt;
  if (loop->step && !IsConst(*loop->step, 1)) return std::nullopt;
  return Axis{loop->loop_var, *min, *extent};
}

IndexBox::IndexBox(std::vector<Axis> axes) : axes_(std::move(axes)) {
  for (const Axis& a : axes_) vars_.push_back(a.var);
}

int64_t IndexBox::Points() const {
  int64_t points = 1;
  for (const Axis& a : axes_) {
    if (__builtin_mul_overflow(points, a.extent, &points)) return INT64_MAX;
  }
  return points;
}

bool IndexBox::CanEvaluate(const Expr& e) const {
  Judge judge(axes_);
  judge(e);
  return judge.good;
}

bool IndexBox::Require(const Expr& condition, bool value) {
  if (const auto* op = condition.as<NotNode>()) return Require(op->a, !value);
  if (const auto* op = condition.as<AndNode>(); op && value) {
    const bool first = Require(op->a, true);
    return Require(op->b, true) && first;
  }
  if (const auto* op = condition.as<OrNode>(); op && !value) {
    const bool first = Require(op->a, false);
    return Require(op->b, false) && first;
  }
  if (!CanEvaluate(condition)) return false;
  required_.emplace_back(Compile(condition), value);
  return true;
}

bool IndexBox::ForEach(const std::function<bool(const std::vector<int64_t>&)>& visit) const {
  std::vector<int64_t> point;
  for (const Axis& a : axes_) point.push_back(a.min);
  for (int64_t left = Points(); left > 0; --left) {
    const bool inside = std::all_of(required_.begin(), required_.end(), [&](const auto& condition) {
      return (condition.first(point.data()) != 0) == condition.second;
    });
    if (inside && !visit(point)) return false;
    for (size_t i = axes_.size(); i-- > 0;) {
      if (++point[i] < axes_[i].min + axes_[i].extent) break;
      point[i] = axes_[i].min;
    }
  }
  return true;
}

}  // namespace tl
