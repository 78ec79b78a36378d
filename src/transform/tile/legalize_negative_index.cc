/*!
 * LegalizeNegativeIndex: an index that is negative however often loops run counts from the end.
 *
 * In:  a tile program under thread_extent attributes.
 * Out: the same; where an index of an element is proved to be negative, as that of `A[-1 - i]` or
 *      `A[i % 8 - 8]`, the dimension's extent is added, as Python does and the front end for
 *      constants.
 * Refuses nothing. Numbers of iterations, threads and blocks prove nothing, so that a program means
 * the same with any of them: `A[k * 64 + i - 64]` is a halo, also where a size makes the loop over
 * k one iteration long. Other indices are left as they are: of a tensor, elements in front of it
 * read as 0 or as its safe value, and are not written (LegalizeSafeMemoryAccess); an access that
 * is outside whenever it happens has a warning or, in a tile, is refused (CheckBounds).
 */
#include "../../analysis/analyzing_mutator.h"
#include "../../analysis/effects.h"
#include "../../tvm/attrs.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class NegativeIndexLegalizer : public AnalyzingMutator {
 public:
  using AnalyzingMutator::AnalyzingMutator;

 protected:
  Stmt Mutate_(const AttrStmtNode* op) final {
    if (op->attr_key != kThreadExtent) return AnalyzingMutator::Mutate_(op);
    const Var index = op->node.cast<IterVar>()->var;
    BindToAnyExtent(index, MakeInt(index->dtype(), 0));
    return Default<Stmt>(op);
  }
  Stmt Mutate_(const ForNode* op) final {
    BindToAnyExtent(op->loop_var, op->min);
    return Default<Stmt>(op);
  }
  Expr Mutate_(const TensorLoadNode* op) final {
    const Expr e = Default<Expr>(op);
    const auto* load = e.as<TensorLoadNode>();
    const Array<Expr> indices = FromTheEnd(load->source.as_or_throw<Var>(), load->indices);
    if (indices.same_as(load->indices)) return e;
    return With(load, &TensorLoadNode::indices, indices);
  }
  Stmt Mutate_(const BufferStoreNode* op) final {
    const Stmt s = Default<Stmt>(op);
    const auto* store = s.as<BufferStoreNode>();
    const Array<Expr> indices = FromTheEnd(store->buffer, store->indices);
    if (indices.same_as(store->indices)) return s;
    return With(store, &BufferStoreNode::indices, indices);
  }

 private:
  void BindToAnyExtent(const Var& var, const Expr& first) {
    analyzer_.Bind(var, first, MakeVar("extent", var->dtype()));
  }

  Array<Expr> FromTheEnd(const Var& buffer, Array<Expr> indices) {
    const Array<Expr>& shape = BufferOf(buffer)->shape;
    for (size_t d = 0; d < indices.size() && d < shape.size(); ++d) {
      const Expr& index = indices[d];
      if (!IsNegative(index)) continue;
      const DLDataType of_index = index->dtype(), of_extent = shape[d]->dtype();
      const DLDataType type = of_index.bits < of_extent.bits ? of_extent : of_index;
      indices.Set(d, analyzer_.Simplify(CastTo(type, index) + CastTo(type, shape[d])));
    }
    return indices;
  }

  bool IsNegative(const Expr& index) {
    if (!IsPureInteger(index) || index->dtype().lanes != 1) return false;
    const Analyzer::Bound bound = analyzer_.ConstBound(index);
    if (bound.min >= 0) return false;
    return bound.max < 0 ? bound.min <= bound.max
                         : analyzer_.CanProve(index < MakeInt(index->dtype(), 0));
  }
};

PrimFunc LegalizeNegativeIndex(PrimFunc f) {
  NegativeIndexLegalizer legalize(f);
  const Stmt body = legalize.Mutate(f->body);
  return WithBody(std::move(f), body);
}

TL_REGISTER_PASS(LegalizeNegativeIndex);

}  // namespace
}  // namespace tl
