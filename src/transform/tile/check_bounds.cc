/*!
 * CheckBounds: indices that leave a buffer of the block or of a thread.
 *
 * In:  a tile program under thread_extent attributes.   Out: the same program.
 * Establishes: nothing; an index that is not decided here passes. Refuses (ValueError with the
 * index and where it is reached): an access of shared memory, a fragment or local memory that is
 * outside of the buffer for some iteration and thread, conditions around it counted, where all of
 * them have constant ranges; and one that is outside whenever it happens. Global memory is guarded
 * instead (LegalizeSafeMemoryAccess): of an element that is outside whenever it happens there is a
 * warning.
 */

#include "../../analysis/effects.h"
#include "../../layout/index_box.h"
#include "../../op/intrinsics.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

/*! More points than this are not looked at. */
constexpr int64_t kMaxBoundsPoints = 1 << 20;

bool IsOnChip(const Var& buffer) {
  return IsShared(buffer) || IsFragment(buffer) || IsLocal(buffer) || IsReducer(buffer) ||
         IsBarrier(buffer);
}

class BoundsChecker : public StmtExprVisitor {
 public:
  explicit BoundsChecker(const PrimFunc& f) : leaves_early_(LeavesEarly(f->body)) {
    analyzer_.BindShapes(f);
  }

 protected:
  void Visit_(const AttrStmtNode* op) final {
    if (op->attr_key == kThreadExtent) {
      analyzer_.BindThread(op);
      const std::optional<int64_t> extent = AsInt(op->value);
      if (extent) axes_.push_back({op->node.cast<IterVar>()->var, 0, *extent});
    }
    Default(op);
  }
  void Visit_(const ForNode* op) final {
    // A body that never runs reaches nothing, as of `T.unroll(n - 1)` where n is 1.
    if (const std::optional<int64_t> extent = AsInt(op->extent); extent && *extent <= 0) return;
    analyzer_.BindLoop(op);
    const std::optional<Axis> axis = AxisOf(op);
    if (axis) axes_.push_back(*axis);
    Default(op);
    if (axis) axes_.pop_back();
  }
  void Visit_(const BindNode* op) final {
    Visit(op->value);
    if (!IsPureInteger(op->value)) return;
    analyzer_.BindExpr(op->var, op->value);
    names_.map[op->var.get()] = names_.Mutate(op->value);
  }
  void Visit_(const EvaluateNode* op) final {
    span_ = op->span;
    Default(op);
  }
  void Visit_(const BufferStoreNode* op) final {
    span_ = op->span;
    Check(op->buffer, op->indices);
    WarnOfTensor(op->buffer, op->indices, "nothing is stored");
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    const Var buffer = op->source.as_or_throw<Var>();
    Check(buffer, op->indices);
    WarnOfTensor(buffer, op->indices, "it reads as 0, or as its safe value");
    Default(op);
  }
  void Visit_(const TensorRegionNode* op) final {
    Array<Expr> first, last;
    for (const Range& r : op->region) {
      first.push_back(r->min);
      last.push_back(r->min + r->extent - MakeInt(r->min->dtype(), 1));
    }
    const Var buffer = op->source.as_or_throw<Var>();
    Check(buffer, first);
    Check(buffer, last);
    Default(op);
  }

  void Visit_(const IfThenElseNode* op) final {
    Visit(op->condition);
    Under(op->condition, true, op->then_case);
    if (op->else_case) Under(op->condition, false, *op->else_case);
  }
  void Visit_(const SelectNode* op) final {
    VisitChoice(op->condition, op->true_value, op->false_value);
  }
  void Visit_(const CallNode* op) final {
    if (IsIfThenElse(op)) return VisitChoice(op->args[0], op->args[1], op->args[2]);
    // An address may be that of the end, except of an mbarrier.
    const TensorLoadNode* pointee = AsAddressOf(GetRef<Expr>(op));
    if (!pointee || IsBarrier(pointee->source.as_or_throw<Var>())) return Default(op);
    for (const Expr& i : pointee->indices) Visit(i);
  }
  void Visit_(const AndNode* op) final {
    Visit(op->a);
    Under(op->a, true, op->b);
  }
  void Visit_(const OrNode* op) final {
    Visit(op->a);
    Under(op->a, false, op->b);
  }

 private:
  void VisitChoice(const Expr& condition, const Expr& yes, const Expr& no) {
    Visit(condition);
    Under(condition, true, yes);
    Under(condition, false, no);
  }

  void Under(const Expr& condition, bool value, const ObjectRef& body) {
    const Expr known = names_.Mutate(condition);
    guards_.emplace_back(known, value);
    if (IsArithmetic(known)) {
      analyzer_.WithConstraint(value ? known : NotOf(known), [&] { Visit(body); });
    } else {
      Visit(body);
    }
    guards_.pop_back();
  }

  void Check(const Var& buffer, const Array<Expr>& indices) {
    if (!IsOnChip(buffer)) return;
    const Array<Expr>& shape = BufferOf(buffer)->shape;
    for (size_t d = 0; d < indices.size() && d < shape.size(); ++d) {
      const Expr index = names_.Mutate(indices[d]);
      const std::optional<int64_t> extent = AsInt(shape[d]);
      if (extent && IsPureInteger(index)) CheckIndex(buffer, d, index, *extent);
    }
  }

  /*! An element of a tensor that exists for no thread and no iteration is hardly meant. */
  void WarnOfTensor(const Var& buffer, const Array<Expr>& indices, const char* effect) {
    if (!IsGlobal(buffer)) return;
    const Array<Expr>& shape = BufferOf(buffer)->shape;
    for (size_t d = 0; d < indices.size() && d < shape.size(); ++d) {
      const Expr index = names_.Mutate(indices[d]);
      if (!IsPureInteger(index) || IsConst(shape[d], 0)) continue;
      const Analyzer::Bound bound = analyzer_.ConstBound(analyzer_.Simplify(index));
      const int64_t extent = AsInt(shape[d]).value_or(INT64_MAX);
      if (bound.min > bound.max || (bound.max >= 0 && bound.min < extent)) continue;
      std::string found = "found index ";
      if (bound.max < 0)
        found += std::to_string(bound.max) + (bound.min < bound.max ? " or less" : "");
      else
        found += std::to_string(bound.min) + (bound.min < bound.max ? " or more" : "");
      LogAt(
          LogLevel::kWarning, span_,
          found + " of " + std::string(buffer->name) + " in dimension " + std::to_string(d) +
              " whenever it happens, outside of the tensor: " + effect +
              (bound.max < 0 ? ". Because numbers of iterations, threads or blocks make it "
                               "negative, it does not count from the end; write the extent plus it"
                             : ""));
    }
  }

  void CheckIndex(const Var& buffer, size_t dim, const Expr& index, int64_t extent) {
    const Analyzer::Bound bound = analyzer_.ConstBound(analyzer_.Simplify(index));
    if (bound.min > bound.max || (bound.min >= 0 && bound.max < extent)) return;
    if (bound.max < 0) Refuse(buffer, dim, bound.max, extent, "");
    if (bound.min >= extent) Refuse(buffer, dim, bound.min, extent, "");
    if (leaves_early_) return;
    std::optional<IndexBox> box = BoxOf(index);
    if (!box || box->Points() > kMaxBoundsPoints) return;
    const IntProgram value = box->Compile(index);
    box->ForEach([&](const std::vector<int64_t>& point) {
      const int64_t at = value(point.data());
      if (at < 0 || at >= extent) Refuse(buffer, dim, at, extent, Text(box->axes(), point));
      return true;
    });
  }

  /*! The points at which an expression is evaluated here; nullopt if that depends on something that
   * is not known. */
  std::optional<IndexBox> BoxOf(const Expr& index) const {
    std::vector<Axis> used;
    for (const Axis& axis : axes_) {
      const bool guard = AnyOf(guards_, [&](const auto& g) { return Uses(g.first, axis.var); });
      if (guard || Uses(index, axis.var)) used.push_back(axis);
    }
    IndexBox box(std::move(used));
    if (!box.CanEvaluate(index)) return std::nullopt;
    for (const auto& [condition, value] : guards_) {
      if (!box.Require(condition, value)) return std::nullopt;
    }
    return box;
  }

  static std::string Text(const std::vector<Axis>& axes, const std::vector<int64_t>& point) {
    std::string text;
    for (size_t i = 0; i < axes.size(); ++i) {
      text +=
          (i ? ", " : " at ") + std::string(axes[i].var->name) + " = " + std::to_string(point[i]);
    }
    return text;
  }

  [[noreturn]] void Refuse(const Var& buffer, size_t dim, int64_t found, int64_t extent,
                           const std::string& where) const {
    ThrowAt(span_, "ValueError",
            "found index " + std::to_string(found) + " of " + std::string(buffer->name) +
                " in dimension " + std::to_string(dim) + where + ", wanted 0 to " +
                std::to_string(extent - 1) +
                "; make the range smaller or the buffer larger, or guard the access with `if`");
  }

  const bool leaves_early_;
  Analyzer analyzer_;
  Substituter names_;
  std::vector<Axis> axes_;
  std::vector<std::pair<Expr, bool>> guards_;
  Span span_;
};

PrimFunc CheckBounds(PrimFunc f) {
  BoundsChecker checker(f);
  checker(f->body);
  return f;
}

TL_REGISTER_PASS(CheckBounds);

}  // namespace
}  // namespace tl
