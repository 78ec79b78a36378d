/*! Accesses of shared tiles by statements outside of tile operators and T.Parallel, where each
 * thread says itself what it reads and writes. */
#pragma once
#include <vector>

#include "../../tvm/functor.h"
#include "kernel_scope.h"
#include "placements.h"

namespace tl {

class ThreadAccesses {
 public:
  void Note(const BufferStoreNode* op);
  /*! A name for a value: of a thread's number, say. */
  void Note(const BindNode* op);
  /*! Gives tiles that nothing else places, such as one of which each thread reads a row, the layout
   * in which these statements have fewest bank conflicts. */
  void InferSwizzle(const std::vector<Var>& buffers, const KernelScope& kernel,
                    Placements* placed) const;

 private:
  Substituter names_;
  std::vector<Stmt> statements_;
};

}  // namespace tl
