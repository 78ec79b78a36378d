/*!
 * PlaceTensors: accesses of tensors that have a layout go where the layout puts the element.
 *
 * In:  a thread program whose accesses of global memory are guarded, with block annotation
 *      `tensor_layout_map` and the boxes of CheckTensorLayouts.
 * Out: the same without the annotation. Each access of such a tensor, under its own name or that
 *      of a view, is an access of a view whose shape is the box, at the indices that the layout
 *      gives.
 * Establishes: passes that ask for addresses (vectors, barriers) see the real ones, while guards
 *      have used the element's own indices. The address of an element is its address in the box.
 * Refuses (ValueError): intrinsics that access several elements from one address on, unless they
 *      are vectors that are provably contiguous; views of another dtype.
 */
#include <unordered_map>

#include "../../analysis/analyzing_mutator.h"
#include "../../layout/annotation.h"
#include "../../op/intrinsics.h"
#include "../../op/views.h"
#include "../../tvm/error.h"
#include "../../tvm/find.h"
#include "../../tvm/registry.h"
#include "lane_value.h"

namespace tl {
namespace {

class Placer : public AnalyzingMutator {
 public:
  explicit Placer(const PrimFunc& f) : AnalyzingMutator(f), views_(f->body) {}

 protected:
  Stmt Mutate_(const SBlockNode* op) override {
    const auto layouts = GetTensorLayouts(op->annotations);
    if (layouts.empty()) return Default<Stmt>(op);
    for (const auto& [tensor, given] : layouts) {
      const Var place = MakeBuffer(tensor->name, DTypeOf(tensor), given.box, ScopeOf(tensor));
      tensors_[views_.RootOf(tensor).get()] = {tensor, given.layout, place, false};
    }
    auto block = make_object<SBlockNode>(*op);
    EraseTensorLayouts(&block->annotations);
    const Stmt body = Mutate(op->body);
    std::vector<Stmt> all;
    for (const auto& [tensor, given] : layouts) {
      const Placed& placed = tensors_.at(views_.RootOf(tensor).get());
      if (placed.is_declared) continue;
      all.push_back(DeclareView(placed.place, views_.RootOf(tensor), given.span));
    }
    tensors_.clear();
    all.push_back(body);
    block->body = MakeSeq(all);
    return SBlock(block);
  }

  // A tensor at an address that the kernel has computed.
  Stmt Mutate_(const DeclBufferNode* op) override {
    const Stmt declared = Default<Stmt>(op);
    const auto it = tensors_.find(op->buffer.get());
    if (it == tensors_.end()) return declared;
    it->second.is_declared = true;
    return MakeSeq({declared, DeclareView(it->second.place, op->buffer, op->span)});
  }

  Stmt Mutate_(const EvaluateNode* op) override {
    span_ = op->span;
    return Default<Stmt>(op);
  }

  Stmt Mutate_(const BindNode* op) override {
    span_ = op->span;
    return AnalyzingMutator::Mutate_(op);
  }

  Stmt Mutate_(const BufferStoreNode* op) override {
    span_ = op->span;
    const Placed* placed = Find(op->buffer);
    if (!placed) return Default<Stmt>(op);
    auto store = make_object<BufferStoreNode>(*op);
    store->value = Mutate(op->value);
    store->indices = PlaceOf(*placed, op->buffer, MutateArray(op->indices));
    store->buffer = placed->place;
    return BufferStore(store);
  }

  Expr Mutate_(const TensorLoadNode* op) override {
    const auto source = op->source.as_or_throw<Var>();
    const Placed* placed = Find(source);
    // What does not change stays the same node: a buffer whose extents load it is known by its own.
    if (!placed) return Default<Expr>(op);
    auto load = make_object<TensorLoadNode>(*op);
    load->indices = PlaceOf(*placed, source, MutateArray(op->indices));
    load->source = placed->place;
    return TensorLoad(load);
  }

  Expr Mutate_(const CallNode* op) override {
    for (const PointerAccess& access : PointerAccesses(op)) {
      const Placed* placed = Find(access.buffer);
      if (placed && !IsInOnePiece(op, access, *placed)) RefuseSeveral(op, access.buffer);
    }
    return AnalyzingMutator::Mutate_(op);
  }

 private:
  struct Placed {
    /*! Whose indices the layout takes: the root, or the view of it that was named. */
    Var tensor;
    Layout layout;
    Var place;
    bool is_declared;
  };

  const Placed* Find(const Var& buffer) const {
    const auto it = tensors_.find(views_.RootOf(buffer).get());
    return it == tensors_.end() ? nullptr : &it->second;
  }

  Array<Expr> PlaceOf(const Placed& placed, const Var& buffer, const Array<Expr>& indices) {
    Array<Expr> element =
        buffer.same_as(placed.tensor) ? indices : IndicesOf(placed.tensor, buffer, indices);
    for (size_t d = 0; d < element.size(); ++d) {
      element.Set(d, CastTo(placed.layout->vars[d]->dtype(), element[d]));
    }
    return placed.layout->MapIndex(element).Map(
        [&](const Expr& e) { return analyzer_.Simplify(e); });
  }

  /*! The indices in `tensor` of an element of `view`, another shape of the same memory. */
  Array<Expr> IndicesOf(const Var& tensor, const Var& view, const Array<Expr>& indices) {
    const BufferTypeNode *to = BufferOf(tensor), *from = BufferOf(view);
    if (to->dtype->dtype != from->dtype->dtype) {
      ThrowAt(span_, "ValueError",
              "found an access of " + std::string(view->name) + " in " +
                  DTypeName(from->dtype->dtype) + ", another name of the memory of " +
                  std::string(tensor->name) + ", whose layout places elements of " +
                  DTypeName(to->dtype->dtype) + ", wanted these; annotate and use one of the two");
    }
    Expr flat = MakeInt(indices[0]->dtype(), 0);
    for (size_t d = 0; d < indices.size(); ++d) flat = flat * from->shape[d] + indices[d];
    std::vector<Expr> out(to->shape.size(), Expr());
    for (size_t d = out.size(); d-- > 0;) {
      out[d] = d ? FloorModOf(flat, to->shape[d]) : flat;
      flat = FloorDivOf(flat, to->shape[d]);
    }
    return Array<Expr>(out.begin(), out.end());
  }

  /*! The call touches one element, or as many as its value has lanes, which lie side by side. */
  bool IsInOnePiece(const CallNode* call, const PointerAccess& access, const Placed& placed) {
    const bool reads = IsCallTo(call, kLoadReadOnly);
    if (access.access != Access::kAtomic && !reads) return false;
    const auto* type = call->args.back()->ty.as<PrimTypeNode>();
    const int lanes = reads || !type ? 1 : type->dtype.lanes;
    if (lanes == 1) return true;
    const Var lane = MakeVar("lane", access.indices.back()->dtype());
    analyzer_.BindConst(lane, lanes);
    Array<Expr> element = access.indices;
    element.Set(element.size() - 1, element.back() + Expr(lane));
    const Array<Expr> place = PlaceOf(placed, access.buffer, element);
    Expr flat = MakeInt(0);
    const Array<Expr>& box = BufferOf(placed.place)->shape;
    for (size_t d = 0; d < place.size(); ++d) flat = flat * box[d] + place[d];
    const auto value = LaneValueOf(analyzer_.Simplify(flat), lane, lanes, &analyzer_);
    return value && value->step == 1 && value->divisor % lanes == 0;
  }

  [[noreturn]] void RefuseSeveral(const CallNode* call, const Var& tensor) const {
    const std::string name = tensor->name;
    ThrowAt(call->span.defined() ? call->span : span_, "ValueError",
            "found " + FindIntrinsic(call)->op + " on several elements of " + name +
                " from one address on, which the layout of " + name +
                " (T.annotate_layout) does not provably put side by side, wanted accesses of "
                "single elements; write T.copy or a T.Parallel loop, which makes vectors where "
                "the places allow it");
  }

  const Views views_;
  Span span_;
  std::unordered_map<const Object*, Placed> tensors_;  // by root
};

PrimFunc PlaceTensors(PrimFunc f) {
  const bool has_layouts = HasNode<SBlockNode>(
      f->body, [](const SBlockNode* op) { return !GetTensorLayouts(op->annotations).empty(); });
  return has_layouts ? WithBody(f, Placer(f).Mutate(f->body)) : f;
}

TL_REGISTER_PASS(PlaceTensors);

}  // namespace
}  // namespace tl
