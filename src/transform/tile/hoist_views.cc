/*!
 * HoistViews: views of buffers are declared before anything happens.
 *
 * In:  a traced tile program; DeclBuffer(view, buffer_data(buffer)) anywhere in a kernel's block.
 * Out: the same, with all these declarations in front of the block's body, in source order; those
 * of tensors at an address, DeclBuffer(tensor, reinterpret(address)), stay where the address is
 * known. Establishes: no loop that is pipelined, unrolled or partitioned has a declaration in it.
 */
#include "../../op/views.h"
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
    body.push_back(rest);
    auto block = make_object<SBlockNode>(*op);
    block->body = MakeSeq(body);
    return SBlock(block);
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
  std::vector<Stmt> declared_;
};

PrimFunc HoistViews(PrimFunc f) {
  if (Views(f->body).all.empty()) return f;
  const Stmt body = Hoister().Mutate(f->body);
  return WithBody(std::move(f), body);
}

Registration registration([] { RegisterPass("HoistViews", HoistViews); });

}  // namespace
}  // namespace tl
