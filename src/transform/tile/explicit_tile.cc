#include "explicit_tile.h"

#include "../../op/intrinsics.h"
#include "../../op/tensor_map_spec.h"
#include "../../tvm/error.h"
#include "../../tvm/functor.h"

namespace tl {

std::optional<int> ExplicitTile(const CallNode* call) {
  const Expr e = GetRef<Expr>(call);
  if (IsCallTo(e, kInitializeWgmmaDescriptor)) return 4;
  const bool loads = IsCallTo(e, kTmaLoad) || IsCallTo(e, kTmaLoadMulticast);
  return loads ? std::optional(3) : std::nullopt;
}

std::unordered_set<const Object*> NamedByElements(const Stmt& kernel, const Views& views) {
  struct Collector : StmtExprVisitor {
    const Views* views;
    std::unordered_set<const Object*> found;
    void Visit_(const SBlockNode* op) final { Visit(op->body); }
    void Visit_(const BufferStoreNode* op) final {
      Add(op->buffer);
      Default(op);
    }
    void Visit_(const TensorLoadNode* op) final {
      Add(op->source.as_or_throw<Var>());
      Default(op);
    }
    void Visit_(const TensorRegionNode* op) final {
      Add(op->source.as_or_throw<Var>());
      Default(op);
    }
    void Visit_(const CallNode* op) final {
      const TensorLoadNode* pointee = AsAddressOf(GetRef<Expr>(op));
      if (!pointee) return Default(op);
      for (const Expr& index : pointee->indices) Visit(index);
    }
    void Add(const Var& buffer) { found.insert(views->RootOf(buffer).get()); }
  } collector;
  collector.views = &views;
  collector(kernel);
  return std::move(collector.found);
}

void CheckSwizzle(const CallNode* call, const Layout& layout, bool named_by_elements,
                  const Span& span) {
  if (!layout.defined()) return;
  const bool describes = IsCallTo(call, kInitializeWgmmaDescriptor);
  const auto tile = AsAddressOf(call->args[*ExplicitTile(call)])->source.as_or_throw<Var>();
  const int64_t swizzle = describes ? DescriptorSwizzle(call)
                                    : TensorMapSpec::FromOperand(call->args[1]).value().swizzle;
  const auto placed = layout->SwizzleBytes(DTypeOf(tile).bits);
  if (placed == swizzle || (placed == 0 && !named_by_elements)) return;
  ThrowAt(span, "ValueError",
          std::string("found ") +
              (describes ? "T.initialize_wgmma_descriptor" : "T.tma_load with a tensor map") +
              " of a swizzle of " + std::to_string(swizzle) + " bytes for " +
              std::string(tile->name) + ", whose layout has " +
              (placed ? "one of " + std::to_string(*placed) + " bytes" : "no such swizzle") +
              ", wanted the same; give both the layout's, or T.annotate_layout the tile");
}

}  // namespace tl
