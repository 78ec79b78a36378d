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
  return scope_.Within(op, [&] { return Default<Stmt>(op); });
}

Stmt TileStager::Mutate_(const SBlockNode* op) {
  if (has_roles_) return GetRef<Stmt>(op);
  const Stmt body = Staged(op->body);
  if (tiles_.empty()) return GetRef<Stmt>(op);
  return WithBuffers(With(op, &SBlockNode::body, body), tiles_);
}

Stmt TileStager::Staged(const Stmt& s) {
  if (s.as<SeqStmtNode>()) {
    std::vector<Stmt> out;
    for (const Stmt& t : FlatSeq(s)) out.push_back(Staged(t));
    return MakeSeq(out);
  }
  if (const auto* attr = s.as<AttrStmtNode>()) {
    return With(attr, &AttrStmtNode::body, Staged(attr->body));
  }
  return StagedStatement(s);
}

For TileStager::StagedLoop(const ForNode* loop) {
  return With(loop, &ForNode::body, Staged(loop->body));
}

}  // namespace tl
