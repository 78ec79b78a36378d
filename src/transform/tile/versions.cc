#include "versions.h"

namespace tl {

Expr SlotOf(const Expr& iteration, int64_t versions) {
  if (!iteration.defined() || versions == 1) return MakeInt(0);
  return CastTo(kInt32, FloorModOf(iteration, versions));
}

Var VersionMaker::Versioned(const Var& buffer) {
  auto it = counts.find(buffer.get());
  if (it == counts.end()) return buffer;
  auto [made_it, is_new] = made.try_emplace(buffer.get(), Var());
  if (!is_new) return made_it->second;
  const BufferTypeNode* type = BufferOf(buffer);
  Array<Expr> shape = {MakeInt(it->second)};
  for (const Expr& e : type->shape) shape.push_back(e);
  made_it->second = MakeBuffer(buffer->name, type->dtype->dtype, shape, type->storage_scope);
  return made_it->second;
}

Array<Var> VersionMaker::Versioned(const Array<Var>& buffers) {
  Array<Var> out;
  for (const Var& buffer : buffers) out.push_back(Versioned(buffer));
  return out;
}

Stmt VersionMaker::Declare(const DeclBufferNode* view, const Views& views) {
  const Var root = views.RootOf(view->buffer);
  if (!counts.count(root.get())) return GetRef<Stmt>(view);
  return DeclareView(Versioned(view->buffer), Versioned(root), view->span);
}

void VersionMaker::ExpandLayouts(Annotations* annotations) const {
  const Map<Var, Layout> layouts = GetLayoutMap(*annotations);
  if (layouts.empty()) return;
  Map<Var, Layout> out;
  for (auto [buffer, layout] : layouts) {
    auto it = made.find(buffer.get());
    if (it == made.end()) {
      out.Set(buffer, layout);
    } else {
      out.Set(it->second, ExpandLayout(layout, {counts.at(buffer.get())}));
    }
  }
  SetLayoutMap(annotations, out);
}

Stmt VersionSelector::Mutate_(const BufferStoreNode* op) {
  const auto it = versioned.find(op->buffer.get());
  if (it == versioned.end()) return Default<Stmt>(op);
  return MakeStore(it->second, Mutate(op->value), Prepend(it->second, op->indices), op->span);
}

Expr VersionSelector::Mutate_(const TensorLoadNode* op) {
  const auto it = versioned.find(op->source.get());
  if (it == versioned.end()) return Default<Expr>(op);
  return LoadOf(it->second, Prepend(it->second, op->indices));
}

Expr VersionSelector::Mutate_(const TensorRegionNode* op) {
  const auto it = versioned.find(op->source.get());
  if (it == versioned.end()) return Default<Expr>(op);
  auto n = make_object<TensorRegionNode>(*op);
  n->source = it->second;
  n->region = {MakeRange(Slot(it->second), MakeInt(1))};
  for (const Range& r : op->region) n->region.push_back(Mutate(r));
  return TensorRegion(n);
}

Expr VersionSelector::Slot(const Var& buffer) const {
  return SlotOf(iteration, ToInt(BufferOf(buffer)->shape[0]));
}

Array<Expr> VersionSelector::Prepend(const Var& buffer, const Array<Expr>& indices) {
  Array<Expr> out = {Slot(buffer)};
  for (const Expr& e : indices) out.push_back(Mutate(e));
  return out;
}

}  // namespace tl
