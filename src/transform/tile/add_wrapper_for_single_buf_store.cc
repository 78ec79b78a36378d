/*!
 * AddWrapperForSingleBufStore: stores of single elements of fragments become loops that layout
 * inference sees.
 *
 * In:  a tile program under thread_extent attributes.   Out: the same; a store outside of
 * T.Parallel that writes or reads a fragment stands in a parallel loop of one iteration that every
 * thread of its range runs (`parallel_loop_layout`). Establishes: the fragments of such stores are
 * held by every thread, or inference refuses them. Stores of shared memory stay: all threads run
 * them.
 */
#include <algorithm>

#include "../../layout/inverse.h"
#include "../../op/operator.h"
#include "../../tvm/functor.h"
#include "../../tvm/registry.h"
#include "kernel_scope.h"

namespace tl {
namespace {

class Wrapper : public StmtExprMutator {
 protected:
  using StmtExprMutator::Mutate_;
  Stmt Mutate_(const AttrStmtNode* op) final {
    Stmt result;
    scope_.Within(op, [&] { result = Default<Stmt>(op); });
    return result;
  }
  Stmt Mutate_(const ForNode* op) final {
    return op->kind == ForKind::kParallel ? GetRef<Stmt>(op) : Default<Stmt>(op);
  }
  Stmt Mutate_(const BufferStoreNode* op) final {
    const Stmt store = GetRef<Stmt>(op);
    if (!TouchesFragment(store)) return store;
    const Fragment layout = MakeReplicatedFragment({1}, scope_.Threads(op->span).threads);
    return MakeFor(MakeVar("u"), MakeInt(1), ForKind::kParallel, store, op->span,
                   {{"parallel_loop_layout", layout}});
  }

 private:
  static bool TouchesFragment(const Stmt& s) {
    const BufferUse use = CollectBufferUse(s);
    return std::any_of(use.reads.begin(), use.reads.end(), IsFragment) ||
           std::any_of(use.writes.begin(), use.writes.end(), IsFragment);
  }

  KernelScope scope_;
};

PrimFunc AddWrapperForSingleBufStore(PrimFunc f) { return WithBody(f, Wrapper().Mutate(f->body)); }

Registration registration([] {
  RegisterPass("AddWrapperForSingleBufStore", AddWrapperForSingleBufStore);
});

}  // namespace
}  // namespace tl
