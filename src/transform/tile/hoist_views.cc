/*!
 * HoistViews: views of buffers are declared before anything happens.
 *
 * In:  a traced tile program; DeclBuffer(view, buffer_data(buffer)) anywhere in a kernel's block.
 * Out: the same, with all these declarations in front of the block's body, in source order, but for
 * those that nothing uses; those of tensors at an address, DeclBuffer(tensor,
 * reinterpret(address)), stay where the address is known. Establishes: no loop that is pipelined,
 * unrolled or partitioned has a declaration in it; each view is used, so that a layout of its
 * buffer has to suit uses, not names. Refuses nothing.
 */
#include <unordered_map>
#include <unordered_set>

#include "../../layout/annotation.h"
#include "../../op/views.h"
#include "../../tvm/find.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class Hoister : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;

  Stmt Mutate_(const SBlockNode* op) final {
    std::vector<Stmt> body;
    std::swap(body, declared_);
    const Stmt rest = Mutate(op->body);
    std::swap(body, declared_);
    if (rest.same_as(op->body)) return GetRef<Stmt>(op);
    auto block = make_object<SBlockNode>(*op);
    block->body = rest;
    const SBlock without(block);
    body = UsedIn(without, body);
    body.push_back(rest);
    auto with = make_object<SBlockNode>(*op);
    with->body = MakeSeq(body);
    return SBlock(with);
  }

  Stmt Mutate_(const DeclBufferNode* op) final {
    if (!ViewedBy(op).defined()) return GetRef<Stmt>(op);
    declared_.push_back(GetRef<Stmt>(op));
    return MakeSeq({});
  }

  Stmt Mutate_(const SeqStmtNode* op) final {
    std::vector<Stmt> stmts;
    for (const Stmt& s : op->seq) {
      Stmt t = Mutate(s);
      const auto* decl = s.as<DeclBufferNode>();
      if (!decl || !ViewedBy(decl).defined()) stmts.push_back(t);
    }
    return MakeSeq(stmts);
  }

 private:
  /*! The declarations of views that the block, or an annotation of it, names. One by another one
   * that it does not name is of that one's buffer. */
  static std::vector<Stmt> UsedIn(const SBlock& block, const std::vector<Stmt>& declarations) {
    std::unordered_set<const Object*> named;
    ForEachIn<VarNode>(block, [&](const VarNode* v) { named.insert(v); });
    for (const Var& buffer : AnnotatedBuffers(block->annotations)) named.insert(buffer.get());
    std::unordered_map<const Object*, Var> behind_unnamed;
    std::vector<Stmt> used;
    for (const Stmt& s : declarations) {
      const auto* decl = s.as<DeclBufferNode>();
      Var buffer = ViewedBy(decl);
      const auto it = behind_unnamed.find(buffer.get());
      if (it != behind_unnamed.end()) buffer = it->second;
      if (named.count(decl->buffer.get())) {
        used.push_back(buffer.same_as(ViewedBy(decl))
                           ? s
                           : Stmt(DeclareView(decl->buffer, buffer, decl->span)));
      } else {
        behind_unnamed[decl->buffer.get()] = buffer;
      }
    }
    return used;
  }
  std::vector<Stmt> declared_;
};

PrimFunc HoistViews(PrimFunc f) {
  if (Views(f->body).all.empty()) return f;
  const Stmt body = Hoister().Mutate(f->body);
  return WithBody(std::move(f), body);
}

Registration hoist_views_registration([] { RegisterPass("HoistViews", HoistViews); });

}  // namespace
}  // namespace tl
