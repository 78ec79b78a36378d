#include "tile_stager.h"

#include "../../tvm/find.h"
#include "warp_roles.h"

namespace tl {
namespace {

/*! Does the kernel give threads roles of its own? */
bool GivesRoles(const Stmt& kernel) {
  return HasNode<AttrStmtNode>(kernel,
                               [](const AttrStmtNode* op) {
                                 return op->attr_key == kThreadRange || op->attr_key == kWsOp;
                               }) ||
         HasNode<SBlockNode>(
             kernel, [](const SBlockNode* op) { return op->annotations.count(kWsSchedule) != 0; });
}

}  // namespace

TileStager::TileStager(const Stmt& kernel, const Target& target)
    : target_(target), shared_(kernel), has_roles_(GivesRoles(kernel)) {}

Stmt TileStager::Mutate_(const AttrStmtNode* op) {
  Stmt out;
  scope_.Within(op, [&] { out = Default<Stmt>(op); });
  return out;
}

Stmt TileStager::Mutate_(const SBlockNode* op) {
  if (has_roles_) return GetRef<Stmt>(op);
  const Stmt body = Staged(op->body);
  if (tiles_.empty()) return GetRef<Stmt>(op);
  auto block = make_object<SBlockNode>(*op);
  block->body = body;
  for (const Var& tile : tiles_) block->alloc_buffers.push_back(tile);
  return SBlock(block);
}

Stmt TileStager::Staged(const Stmt& s) {
  if (s.as<SeqStmtNode>()) {
    std::vector<Stmt> out;
    for (const Stmt& t : FlatSeq(s)) out.push_back(Staged(t));
    return MakeSeq(out);
  }
  if (const auto* attr = s.as<AttrStmtNode>()) {
    auto n = make_object<AttrStmtNode>(*attr);
    n->body = Staged(attr->body);
    return AttrStmt(n);
  }
  return StagedStatement(s);
}

For TileStager::StagedLoop(const ForNode* loop) {
  auto n = make_object<ForNode>(*loop);
  n->body = Staged(loop->body);
  return For(n);
}

}  // namespace tl
