#include "known_elements.h"

#include <unordered_set>

#include "../../op/copy_instruction.h"
#include "../../op/region_nest.h"
#include "../../tvm/analyzer.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "buffer_bytes.h"
#include "pipeline_bindings.h"

namespace tl {
namespace {

/*! The nest of a copy or of a parallel loop; nullopt for other statements. */
std::optional<ParallelNest> NestOf(const Stmt& s, const Views& views) {
  const auto* loop = s.as<ForNode>();
  if (loop && loop->kind == ForKind::kParallel) return InlinedNestOfLoop(loop, views);
  const CallNode* copy = AsTileOp(s, kCopy);
  if (!copy) return std::nullopt;
  return NestOfCopy(copy, s->span);
}

/*! Memory of threads may change behind the statement; a tile's elements have other names there. */
bool LoadsGlobalOnly(const Expr& e) {
  return !HasNode<TensorLoadNode>(
      e, [&](const TensorLoadNode* op) { return !IsGlobal(op->source.as_or_throw<Var>()); });
}

/*! `writer` has run whenever the node runs, in the same iteration of the loops around it. */
bool Precedes(const RoleNode& writer, const RoleNode& node) {
  const RoleNode* n = &node;
  while (n && n->parent != writer.parent) n = n->parent->owner;
  return n && IndexOf(writer) < IndexOf(*n);
}

}  // namespace

KnownElements::KnownElements(const RoleSequence& body, const Views& views) {
  std::unordered_set<const Object*> several;
  ForEachNode(body, [&](const RoleNode* node) {
    if (!node->IsLeaf()) return;
    for (const Var& v : node->opaque) several.insert(v.get());
    for (const Var& v : node->use.writes) {
      if (!IsTile(v) || several.count(v.get())) continue;
      const bool is_first = !tiles_.erase(v.get());
      const std::optional<Tile> tile = is_first ? TileOf(*node, v, views) : std::nullopt;
      if (tile) tiles_.emplace(v.get(), *tile);
      if (!tile) several.insert(v.get());
    }
  });
  for (const Object* v : several) tiles_.erase(v);
  for (const Var& view : views.all) tiles_.erase(views.RootOf(view).get());
}

std::optional<KnownElements::Tile> KnownElements::TileOf(const RoleNode& writer, const Var& buffer,
                                                         const Views& views) {
  const std::optional<ParallelNest> nest = NestOf(writer.stmt, views);
  const auto* store = nest ? nest->body.as<BufferStoreNode>() : nullptr;
  if (!store || !store->buffer.same_as(buffer) || !LoadsGlobalOnly(store->value)) {
    return std::nullopt;
  }
  const Array<Expr>& shape = BufferOf(buffer)->shape;
  Analyzer analyzer;
  std::vector<bool> used(nest->vars.size(), false);
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr index = analyzer.Simplify(store->indices[d]);
    const auto var = FindIf(nest->vars, [&](const Var& v) { return v.same_as(index); });
    if (var == nest->vars.end()) {
      if (IsConst(shape[d], 1) && IsConst(index, 0)) continue;
      return std::nullopt;
    }
    const size_t k = var - nest->vars.begin();
    if (used[k] || !analyzer.CanProveEqual(nest->extents[k], shape[d])) return std::nullopt;
    used[k] = true;
  }
  // A loop whose number names no element has run to its end.
  Tile tile{&writer, {}, store->value};
  Substituter last;
  for (size_t k = 0; k < used.size(); ++k) {
    if (!used[k] && !IsConst(nest->extents[k], 1)) return std::nullopt;
    if (!used[k]) last.map[nest->vars[k].get()] = MakeInt(nest->vars[k]->dtype(), 0);
  }
  tile.value = last.Mutate(tile.value);
  for (size_t d = 0; d < shape.size(); ++d) {
    const Expr index = analyzer.Simplify(store->indices[d]);
    const auto* var = index.as<VarNode>();
    tile.vars.push_back(var ? GetRef<Var>(var) : MakeVar("unit"));
  }
  return tile;
}

Expr KnownElements::ValueOf(const Tile& tile, const Array<Expr>& indices) {
  Substituter at;
  for (size_t d = 0; d < indices.size(); ++d) {
    at.map[tile.vars[d].get()] = CastTo(tile.vars[d]->dtype(), indices[d]);
  }
  return at.Mutate(tile.value);
}

std::optional<KnownElements::Element> KnownElements::Find(const TensorLoadNode* load,
                                                          const RoleNode& reader) const {
  const auto it = tiles_.find(load->source.get());
  if (it == tiles_.end() || !Precedes(*it->second.writer, reader)) return std::nullopt;
  return Element{ValueOf(it->second, load->indices), it->second.writer};
}

bool KnownElements::Has(const Var& buffer, const RoleNode& reader) const {
  const auto it = tiles_.find(buffer.get());
  return it != tiles_.end() && Precedes(*it->second.writer, reader);
}

Stmt KnownElements::Replace(const Stmt& program) const {
  struct Replacer : StmtExprMutator {
    const KnownElements& known;
    explicit Replacer(const KnownElements& k) : known(k) {}
    Expr Mutate_(const TensorLoadNode* op) final {
      const auto it = known.tiles_.find(op->source.get());
      if (it == known.tiles_.end()) return Default<Expr>(op);
      return ValueOf(it->second, MutateArray(op->indices));
    }
  };
  return Replacer(*this).Mutate(program);
}

}  // namespace tl
