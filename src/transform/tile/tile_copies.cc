#include "tile_copies.h"

#include "pipeline_barriers.h"
#include "pipeline_reads.h"

namespace tl {
namespace {

bool IsOfIteration(const Pipeline& p, const Var& tile, const Stmt& function_body,
                   const Views& views) {
  if (!IsShared(tile) || IsBarrier(tile)) return false;
  for (const Var& view : views.all) {
    if (views.IsSameMemory(view, tile)) return false;
  }
  if (CountMentions(function_body, tile) != CountMentions(p.loop->body, tile)) return false;
  std::vector<int64_t> stages;
  for (size_t i = 0; i < p.body.size(); ++i) {
    const bool reads = Contains(p.uses[i].reads, tile);
    if (!reads && !Contains(p.uses[i].writes, tile)) continue;
    stages.push_back(p.stage[i]);
    if (reads && !IsSupplied(p.body, i, tile, views)) return false;
  }
  return AllOf(stages, [&](int64_t s) { return s == stages[0]; });
}

}  // namespace

std::vector<Var> TilesOfIteration(const Pipeline& p, const Stmt& function_body, const Views& views,
                                  const std::vector<Var>& versioned) {
  std::vector<Var> tiles;
  for (const BufferUse& use : p.uses) {
    for (const Var& v : use.writes) {
      if (Contains(tiles, v) || Contains(versioned, v)) continue;
      if (IsOfIteration(p, v, function_body, views)) tiles.push_back(v);
    }
  }
  return tiles;
}

Stmt TileCopier::Copy(const Stmt& s) {
  first_ = made.size();
  return Mutate(s);
}

Expr TileCopier::Mutate_(const VarNode* op) {
  const Var buffer = GetRef<Var>(op);
  if (!Contains(tiles_, buffer)) return buffer;
  for (size_t i = first_; i < made.size(); ++i) {
    if (made[i].first.same_as(buffer)) return made[i].second;
  }
  const BufferTypeNode* type = BufferOf(buffer);
  made.emplace_back(buffer,
                    MakeBuffer(buffer->name, type->dtype->dtype, type->shape, type->storage_scope));
  return made.back().second;
}

}  // namespace tl
