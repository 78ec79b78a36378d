#include "whole_registers.h"

#include "../tvm/functor.h"
#include "intrinsics.h"

namespace tl {
namespace {

class Finder : public StmtExprVisitor {
 public:
  bool memory = false, narrow = false, branch = false;

 protected:
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
    narrow |= DTypeOf(buffer).bits < 32;
  }
};

class Float32Finder : public StmtExprVisitor {
 public:
  bool arithmetic = false, others = false;

 protected:
  void Visit_(const BufferStoreNode* op) final {
    others |= !IsFloat32(DTypeOf(op->buffer));
    Default(op);
  }
  void Visit_(const AddNode* op) final { Arithmetic(op); }
  void Visit_(const SubNode* op) final { Arithmetic(op); }
  void Visit_(const MulNode* op) final { Arithmetic(op); }

 private:
  static bool IsFloat32(DLDataType t) { return t.code == kDLFloat && t.bits == 32; }
  template <typename N>
  void Arithmetic(const N* op) {
    arithmetic |= IsFloat32(op->dtype());
    Default(op);
  }
};

}  // namespace

bool ComputesFloat32(const Stmt& s) {
  Float32Finder finder;
  finder(s);
  return finder.arithmetic && !finder.others && IsOfWholeRegisters(s);
}

bool IsOfWholeRegisters(const Stmt& s) {
  Finder finder;
  finder(s);
  return !finder.memory && !finder.narrow && !finder.branch;
}

}  // namespace tl
