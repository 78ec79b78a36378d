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
#include "../../op/views.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"

namespace tl {
namespace {

class Hoister : public ViewDeclarer {
 protected:
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
};

PrimFunc HoistViews(PrimFunc f) {
  if (Views(f->body).all.empty()) return f;
  const Stmt body = Hoister().Mutate(f->body);
  return WithBody(std::move(f), body);
}

TL_REGISTER_PASS(HoistViews);

}  // namespace
}  // namespace tl
