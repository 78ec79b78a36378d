/*!
 * Tiles of shared memory that an iteration writes and reads, and nothing else does. A pipeline
 * repeats the arithmetic of its last iterations behind its loop; with tiles of their own there, a
 * tile of the loop does not live on to the end of these.
 */
#pragma once
#include <utility>
#include <vector>

#include "../../tvm/functor.h"
#include "pipeline.h"

namespace tl {

/*! Those of a pipeline: statements of one stage use them, none outside of the loop does, and what
 * an iteration reads it has written before. `versioned` tiles and those with views are none. */
std::vector<Var> TilesOfIteration(const Pipeline& p, const Stmt& function_body, const Views& views,
                                  const std::vector<Var>& versioned);

/*! Gives a statement tiles of its own. */
class TileCopier : public StmtExprMutator {
 public:
  explicit TileCopier(std::vector<Var> tiles) : tiles_(std::move(tiles)) {}

  Stmt Copy(const Stmt& s);
  /*! Tiles, and what stands for them in some statement. */
  std::vector<std::pair<Var, Var>> made;

 protected:
  Expr Mutate_(const VarNode* op) final;

 private:
  const std::vector<Var> tiles_;
  size_t first_ = 0;  // of this statement in `made`
};

}  // namespace tl
