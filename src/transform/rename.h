/*! Copies of statements: each has its own names for loops and values, because two values of one
 * name would have to be one. */
#pragma once
#include "../tvm/build.h"
#include "../tvm/functor.h"

namespace tl {

class BindingRenamer : public Substituter {
 protected:
  Stmt Mutate_(const ForNode* op) override {
    map[op->loop_var.get()] = MakeVar(op->loop_var->name, op->loop_var->dtype());
    For loop = Default<Stmt>(op).as_or_throw<For>();
    loop.CopyOnWrite()->loop_var = map[op->loop_var.get()].as_or_throw<Var>();
    return loop;
  }
  Stmt Mutate_(const BindNode* op) override {
    auto bind = make_object<BindNode>(*op);
    bind->value = Mutate(op->value);
    bind->var = MakeVar(op->var->name, op->var->dtype());
    map[op->var.get()] = bind->var;
    return Bind(bind);
  }
  Stmt Mutate_(const DeclBufferNode* op) override {
    auto decl = make_object<DeclBufferNode>(*op);
    decl->data = Mutate(op->data);
    decl->buffer = Var(make_object<VarNode>(*op->buffer.get()));
    map[op->buffer.get()] = decl->buffer;
    return DeclBuffer(decl);
  }
};

}  // namespace tl
