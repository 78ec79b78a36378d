/*!
 * VerifyParallelLoop: two iterations of a T.Parallel that touch one element.
 *
 * In:  a tile program under thread_extent attributes.   Out: the same program.
 * Establishes: nothing; what is not decided here passes: indices that read memory or symbols, and
 * accesses under conditions that do. Refuses (ValueError with both iterations): an element of a
 * shared buffer, a fragment or a tensor that one iteration writes and another one reads or writes.
 * Loops around and blocks are at their first value.
 */
#include <algorithm>
#include <unordered_map>

#include "../../layout/index_box.h"
#include "../../op/parallel.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "../thread/effects.h"

namespace tl {
namespace {

/*! More points than this are not looked at. */
constexpr int64_t kMaxPoints = 1 << 20;

struct Touch {
  Var buffer;
  Array<Expr> indices;
  bool is_write;
  Span span;
  std::vector<std::pair<Expr, bool>> guards;
  std::vector<const ForNode*> inner;
};

/*! What the body of a parallel nest touches. */
class TouchCollector : public StmtExprVisitor {
 public:
  std::vector<Touch> touches;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const ForNode* op) final {
    inner_.push_back(op);
    Default(op);
    inner_.pop_back();
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    Add(op->buffer, op->indices, true);
    for (const Expr& i : op->indices) Visit(i);
    Visit(op->value);
  }
  void Visit_(const TensorLoadNode* op) final {
    Add(op->source.as_or_throw<Var>(), op->indices, false);
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    Visit(op->value);
    if (IsPureInteger(op->value)) names_.map[op->var.get()] = names_.Mutate(op->value);
  }
  void Visit_(const IfThenElseNode* op) final {
    VisitChoice(op->condition, op->then_case,
                op->else_case ? ObjectRef(*op->else_case) : ObjectRef());
  }
  void Visit_(const CallNode* op) final {
    if (IsIfThenElse(op)) return VisitChoice(op->args[0], op->args[1], op->args[2]);
    // Functions that get an address, atomics among them, answer for it.
    if (!AsAddressOf(GetRef<Expr>(op))) Default(op);
  }

 private:
  void VisitChoice(const Expr& condition, const ObjectRef& yes, const ObjectRef& no) {
    Visit(condition);
    guards_.emplace_back(names_.Mutate(condition), true);
    Visit(yes);
    guards_.back().second = false;
    if (no.defined()) Visit(no);
    guards_.pop_back();
  }
  void Add(const Var& buffer, const Array<Expr>& indices, bool is_write) {
    if (IsLocal(buffer) || IsReducer(buffer)) return;
    touches.push_back({buffer, names_.MutateArray(indices), is_write, span_, guards_, inner_});
  }

  Substituter names_;
  std::vector<std::pair<Expr, bool>> guards_;
  std::vector<const ForNode*> inner_;
  Span span_;
};

struct Hash {
  size_t operator()(const std::vector<int64_t>& v) const {
    size_t h = v.size();
    for (int64_t x : v) h = h * 1000003 + static_cast<size_t>(x);
    return h;
  }
};

/*! Looks for a race in one nest. */
class NestVerifier {
 public:
  NestVerifier(const ParallelNest& nest, Substituter* around) : around_(around) {
    TouchCollector collector;
    collector(nest.body);
    touches_ = std::move(collector.touches);
    decidable_ = true;
    for (size_t d = 0; d < nest.vars.size(); ++d) {
      const std::optional<int64_t> extent = AsInt(nest.extents[d]);
      if (extent) axes_.push_back({nest.vars[d], 0, *extent});
      decidable_ &= extent.has_value() && *extent > 0;
    }
  }

  void Verify() {
    if (!decidable_) return;
    for (const Touch& t : touches_) {
      if (!t.is_write || std::count(checked_.begin(), checked_.end(), t.buffer.get())) continue;
      checked_.push_back(t.buffer.get());
      owners_.clear();
      VerifyBuffer(t.buffer);
    }
  }

 private:
  using Point = std::vector<int64_t>;

  void VerifyBuffer(const Var& buffer) {
    for (const bool writes : {true, false}) {
      for (const Touch& t : touches_) {
        if (t.buffer.same_as(buffer) && t.is_write == writes) VerifyTouch(t);
      }
    }
  }

  void VerifyTouch(const Touch& t) {
    std::vector<Axis> axes = axes_;
    for (const ForNode* loop : t.inner) {
      if (const std::optional<Axis> axis = AxisOf(loop)) axes.push_back(*axis);
    }
    IndexBox box(axes);
    if (box.Points() > kMaxPoints) return;
    for (const auto& [condition, value] : t.guards) {
      if (!box.Require(around_->Mutate(condition), value)) return;
    }
    std::vector<IntProgram> programs;
    for (const Expr& e : t.indices) {
      const Expr index = around_->Mutate(e);
      if (!IsPureInteger(index) || !box.CanEvaluate(index)) return;
      programs.push_back(box.Compile(index));
    }
    box.ForEach([&](const Point& point) {
      Point element;
      for (const IntProgram& p : programs) element.push_back(p(point.data()));
      const Point iteration(point.begin(), point.begin() + static_cast<std::ptrdiff_t>(Rank()));
      auto it = owners_.find(element);
      if (it != owners_.end() && it->second != iteration) {
        Refuse(t, element, it->second, iteration);
      }
      if (t.is_write) owners_.emplace(element, iteration);
      return true;
    });
  }

  size_t Rank() const { return axes_.size(); }

  static std::string Text(const Point& p) {
    std::string text;
    for (int64_t x : p) text += (text.empty() ? "" : ", ") + std::to_string(x);
    return text;
  }

  [[noreturn]] void Refuse(const Touch& t, const Point& element, const Point& first,
                           const Point& second) const {
    std::string vars;
    for (const Axis& a : axes_) vars += (vars.empty() ? "" : ", ") + std::string(a.var->name);
    ThrowAt(t.span, "ValueError",
            "found iterations (" + vars + ") = (" + Text(first) + ") and (" + Text(second) +
                ") of T.Parallel that both touch " + std::string(t.buffer->name) + "[" +
                Text(element) + "], the first one writing it, wanted independent iterations; " +
                (t.is_write ? "use T.serial, a reduction or T.atomic_add"
                            : "read from another buffer than the one that is written"));
  }

  Substituter* around_;
  std::vector<Touch> touches_;
  std::vector<Axis> axes_;
  bool decidable_;
  std::vector<const Object*> checked_;
  std::unordered_map<Point, Point, Hash> owners_;
};

class Verifier : public StmtExprVisitor {
 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == "thread_extent") {
      const Var& index = op->node.cast<IterVar>()->var;
      around_.map[index.get()] = MakeInt(index->dtype(), 0);
    }
    Default(op);
  }
  void Visit_(const BindNode* op) final {
    if (IsPureInteger(op->value)) around_.map[op->var.get()] = around_.Mutate(op->value);
  }
  void Visit_(const ForNode* op) final {
    if (op->kind == ForKind::kParallel) {
      NestVerifier(NestOfLoop(op), &around_).Verify();
      return;
    }
    around_.map[op->loop_var.get()] = around_.Mutate(op->min);
    Default(op);
  }

 private:
  Substituter around_;
};

PrimFunc VerifyParallelLoop(PrimFunc f) {
  Verifier()(f->body);
  return f;
}

Registration registration([] { RegisterPass("VerifyParallelLoop", VerifyParallelLoop); });

}  // namespace
}  // namespace tl
