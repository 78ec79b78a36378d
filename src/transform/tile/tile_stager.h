/*! Puts tiles of shared memory in front of statements that all threads of a kernel come to. */
#pragma once
#include <vector>

#include "../../tvm/attrs.h"
#include "../../tvm/build.h"
#include "../../tvm/functor.h"
#include "../each_kernel.h"
#include "kernel_scope.h"
#include "shared_estimate.h"

namespace tl {

/*! What passes that stage tensors have in common: the walk over the statements of a kernel's block,
 * the tiles that the block then allocates, and what is known of its shared memory. Kernels whose
 * threads have roles are left alone. */
class TileStager : public StmtExprMutator {
 public:
  /*! Bytes of tiles that have memory of their own. */
  int64_t taken = 0;

 protected:
  TileStager(const Stmt& kernel, const Target& target);

  Stmt Mutate_(const AttrStmtNode* op) final;
  Stmt Mutate_(const SBlockNode* op) final;

  /*! A statement, and all statements of sequences and attributes. */
  Stmt Staged(const Stmt& s);
  /*! A loop with its body staged. */
  For StagedLoop(const ForNode* loop);
  /*! A statement that is no sequence and no attribute, staged or as it is. */
  virtual Stmt StagedStatement(const Stmt& s) = 0;

  const Target& target_;
  const SharedEstimate shared_;
  KernelScope scope_;
  std::vector<Var> tiles_;

 private:
  bool has_roles_ = false;
};

/*! The function with the tiles of a stager, which `make(kernel, target)` returns for each kernel.
 */
template <typename F>
PrimFunc WithStagedTiles(const PrimFunc& f, F make) {
  int64_t taken = 0;
  const PrimFunc staged = ForEachKernel(f, [&, &target = TargetOf(f)](const AttrStmtNode* op) {
    auto stager = make(GetRef<Stmt>(op), target);
    const Stmt kernel = stager.Mutate(GetRef<Stmt>(op));
    taken += stager.taken;
    return kernel;
  });
  return taken ? WithAttr(staged, kTakesShared, MakeInt(1)) : staged;
}

}  // namespace tl
