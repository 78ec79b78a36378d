/*!
 * CheckTensorLayouts: layouts of tensors in global memory are permutations of their elements.
 *
 * In:  a tile program; block annotation `tensor_layout_map` (tensor -> Layout) from
 * T.annotate_layout. Out: the same; beside it stands the box of places of each (`tensor_boxes`),
 * and operators and parallel loops on such a tensor, or a view of it, say so (`tl.placed_tensor`),
 * so that none becomes a copy by TMA or is planned as cp.async.
 * Establishes: each layout is a bijection between the tensor's elements and its box, so that no
 * place is outside of the tensor (tensor_box.h). Refuses (ValueError): a layout that is not shown
 * to be one, a tensor that is not contiguous, two layouts for the memory of one tensor, a copy by
 * TMA that the program demands.
 */
#include <unordered_map>

#include "../../layout/annotation.h"
#include "../../layout/tensor_box.h"
#include "../../op/call_attrs.h"
#include "../../op/parallel.h"
#include "../../op/tma_copy.h"
#include "../../op/views.h"
#include "../../tvm/attrs.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {
namespace {

class TensorLayoutChecker : public StmtExprMutator {
 public:
  explicit TensorLayoutChecker(const PrimFunc& f) : views_(f->body) { analyzer_.BindShapes(f); }

 protected:
  Stmt Mutate_(const SBlockNode* op) final {
    const auto layouts = GetTensorLayouts(op->annotations);
    if (layouts.empty()) return Default<Stmt>(op);
    placed_.clear();
    Map<Var, Array<Expr>> boxes;
    WithFacts(&analyzer_, LeadingAssumptions(op->body), [&] {
      for (const auto& [tensor, given] : layouts) boxes.Set(tensor, BoxOf(tensor, given));
    });
    auto block = make_object<SBlockNode>(*op);
    SetTensorBoxes(&block->annotations, boxes);
    block->body = Mutate(op->body);
    placed_.clear();
    return SBlock(block);
  }

  Stmt Mutate_(const ForNode* op) final {
    if (op->kind != ForKind::kParallel || placed_.empty()) return Default<Stmt>(op);
    const BufferUse use = views_.UseOf(GetRef<Stmt>(op));
    for (const auto* touched : {&use.reads, &use.writes}) {
      for (const Var& v : *touched) {
        if (!placed_.count(v.get())) continue;
        For loop = GetRef<For>(op);
        loop.CopyOnWrite()->annotations.Set(kPlacedTensor, v->name);
        return loop;
      }
    }
    return GetRef<Stmt>(op);
  }

  Stmt Mutate_(const EvaluateNode* op) final {
    const CallNode* call = AsTileOp(GetRef<Stmt>(op));
    const Var tensor = call ? PlacedOperand(call) : Var();
    if (!tensor.defined()) return GetRef<Stmt>(op);
    const std::string name = tensor->name;
    const bool adds = TileOpIntAttr(call, "use_tma", 0) != 0;
    if (adds || IsCallTo(op->value, kTmaCopy) || IsCallTo(op->value, kTmaIm2col)) {
      ThrowAt(op->span, "ValueError",
              std::string(adds ? "T.atomic_add(.., use_tma=True)" : "T.tma_copy") +
                  ": found the layout of " + name +
                  " (T.annotate_layout), wanted a tensor in row-major order, which is what the "
                  "TMA addresses; " +
                  (adds ? "leave out use_tma" : "use T.copy, which copies by threads here"));
    }
    return MakeEvaluate(WithTileOpAttr(call, kPlacedTensor, tensor->name), op->span);
  }

 private:
  Array<Expr> BoxOf(const Var& tensor, const TensorLayout& given) {
    const std::string name = tensor->name;
    const Var root = views_.RootOf(tensor);
    if (!placed_.emplace(root.get(), tensor).second) {
      ThrowAt(given.span, "ValueError",
              "T.annotate_layout: found two layouts for the memory of " + std::string(root->name) +
                  ", wanted one; leave out that of " + name);
    }
    for (const Var& named : {tensor, root}) {
      if (IsRowMajor(BufferOf(named))) continue;
      ThrowAt(given.span, "ValueError",
              "T.annotate_layout: found strides and a layout for " + std::string(named->name) +
                  ", wanted one of them; a layout permutes the places of a contiguous tensor");
    }
    const TensorBox box = BoxOfTensor(given.layout, &analyzer_);
    if (box.defect.empty()) return box.extents;
    ThrowAt(given.span, "ValueError",
            "T.annotate_layout: found " + box.defect + " in the layout of " + name + ", wanted " +
                box.wanted + "\n  " + LayoutLine(given.layout));
  }

  bool IsRowMajor(const BufferTypeNode* type) {
    Expr stride = MakeInt(1);
    for (size_t d = type->strides.size(); d-- > 0;) {
      if (!analyzer_.CanProveEqual(type->strides[d], stride)) return false;
      stride = stride * type->shape[d];
    }
    return true;
  }

  Var PlacedOperand(const CallNode* call) const {
    for (const Expr& arg : call->args) {
      const auto* region = arg.as<TensorRegionNode>();
      if (!region) continue;
      const auto buffer = region->source.as_or_throw<Var>();
      if (placed_.count(views_.RootOf(buffer).get())) return buffer;
    }
    return Var();
  }

  const Views views_;
  Analyzer analyzer_;
  std::unordered_map<const Object*, Var> placed_;  // by root
};

PrimFunc CheckTensorLayouts(PrimFunc f) {
  return WithBody(f, TensorLayoutChecker(f).Mutate(f->body));
}

TL_REGISTER_PASS(CheckTensorLayouts);

}  // namespace
}  // namespace tl
