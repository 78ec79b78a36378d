#include "index_box.h"

#include <algorithm>
#include <array>

#include "../tvm/functor.h"
#include "../tvm/hidden_operations.h"
#include "box_points.h"

namespace tl {
namespace {

/*! Looks for what IntProgram cannot evaluate. */
class Judge : public StmtExprVisitor {
 public:
  explicit Judge(const std::vector<Axis>& axes) : axes_(axes) {}
  bool good = true;

 protected:
  void Visit_(const VarNode* op) override {
    good &= AnyOf(axes_, [op](const Axis& a) { return a.var.get() == op; });
  }
  void Visit_(const IntImmNode* op) override { good &= AsInt(GetRef<Expr>(op)).has_value(); }
  void Visit_(const CastNode* op) override {
    // Half of the numbers of uint64 are none of int64.
    const DLDataType from = op->value->dtype(), to = op->ty.as<PrimTypeNode>()->dtype;
    good &= IsIntegral(from) && IsIntegral(to) && (HoldsAll(to, from) || !IsUint64(to));
    Visit(op->value);
  }
  void Visit_(const SubNode* op) override { VisitSum(op); }
  void Visit_(const MulNode* op) override { VisitSum(op); }
  void Visit_(const AddNode* op) override { VisitSum(op); }
  void Visit_(const LShiftNode* op) override { VisitSum(op); }
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
  static bool IsUint64(const DLDataType& t) { return t.code == kDLUInt && t.bits == 64; }

  template <typename Node>
  void VisitSum(const Node* op) {
    good &= !IsUint64(op->a->dtype());
    Visit(op->a);
    Visit(op->b);
  }
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

bool IndexBox::ForEach(const std::function<bool(const std::vector<int64_t>& point)>& visit) const {
  std::vector<int64_t> point(axes_.size());
  return ForEachBatch({}, [&](const Batch& batch) {
    for (int64_t k = 0; k < batch.count; ++k) {
      if (!batch.inside[k]) continue;
      for (size_t i = 0; i < point.size(); ++i) point[i] = batch.Slot(i, k);
      if (!visit(point)) return false;
    }
    return true;
  });
}

bool IndexBox::ForEachBatch(const std::vector<IntProgram>& programs,
                            const std::function<bool(const Batch&)>& visit) const {
  constexpr int64_t kMost = IntProgram::kMostPoints;
  std::vector<int64_t> slots(axes_.size() * kMost), values(programs.size() * kMost),
      condition(kMost);
  std::vector<int64_t> begin, end;
  for (const Axis& a : axes_) {
    begin.push_back(a.min);
    end.push_back(a.min + a.extent);
  }
  std::vector<int64_t> point = begin;
  for (int64_t left = Points(); left > 0; left -= kMost) {
    const int64_t count = std::min(left, kMost);
    FillSlots(begin, end, count, &point, slots.data());
    std::array<bool, kMost> inside;
    inside.fill(true);
    for (const auto& [program, wanted] : required_) {
      program.Evaluate(slots.data(), count, condition.data());
      for (int64_t k = 0; k < count; ++k) inside[k] &= (condition[k] != 0) == wanted;
    }
    for (size_t p = 0; p < programs.size(); ++p) {
      programs[p].Evaluate(slots.data(), count, values.data() + p * kMost);
    }
    if (!visit({count, slots.data(), values.data(), inside.data()})) return false;
  }
  return true;
}

void IndexBox::AppendKey(std::vector<int64_t>* key) const {
  key->push_back(static_cast<int64_t>(axes_.size()));
  for (const Axis& a : axes_) key->insert(key->end(), {a.min, a.extent});
  key->push_back(static_cast<int64_t>(required_.size()));
  for (const auto& [program, wanted] : required_) {
    program.AppendKey(key);
    key->push_back(wanted);
  }
}

}  // namespace tl
