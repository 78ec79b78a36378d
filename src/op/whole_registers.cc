#include "whole_registers.h"

#include "../tvm/functor.h"
#include "intrinsics.h"

namespace tl {
namespace {

class Finder : public StmtExprVisitor {
 public:
  bool memory = false, narrow = false, branch = false;

 protected:
  using StmtExprVisitor::Visit_;
  void Visit_(const IfThenElseNode*) final { branch = true; }
  void Visit_(const BufferStoreNode* op) final {
    Touch(op->buffer);
    Default(op);
  }
  void Visit_(const TensorLoadNode* op) final {
    Touch(op->source.as_or_throw<Var>());
    Default(op);
  }
  void Visit_(const CallNode* op) final {
    for (const PointerAccess& p : PointerAccesses(op)) Touch(p.buffer);
    Default(op);
  }
  void Visit_(const CastNode* op) final {
    narrow |= op->dtype().bits < 32 && op->dtype().code != kDLBool;
    Default(op);
  }

 private:
  void Touch(const Var& buffer) {
    memory |= !IsLocal(buffer) && !IsFragment(buffer);
    narrow |= BufferOf(buffer)->dtype->dtype.bits < 32;
  }
};

}  // namespace

bool IsOfWholeRegisters(const Stmt& s) {
  Finder finder;
  finder(s);
  return !finder.memory && !finder.narrow && !finder.branch;
}

}  // namespace tl
