/*! Passes that work on one kernel of a function at a time. */
#pragma once
#include "../tvm/attrs.h"
#include "../tvm/functor.h"

namespace tl {

/*! The function with `change(op)` in the place of each kernel, where `op` is the outermost of its
 * thread_extent attributes: kernels have threads, shared memory and barriers of their own. */
template <typename F>
PrimFunc ForEachKernel(const PrimFunc& f, F change) {
  struct Walk : StmtExprMutator {
    F* change;
    Stmt Mutate_(const AttrStmtNode* op) override {
      return op->attr_key == kThreadExtent ? (*change)(op) : Default<Stmt>(op);
    }
  } walk;
  walk.change = &change;
  return WithBody(f, walk.Mutate(f->body));
}

}  // namespace tl
