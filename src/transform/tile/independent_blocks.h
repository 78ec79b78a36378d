/*! Kernels whose blocks may take the tiles of their grid in any order. */
#pragma once
#include <string>
#include <vector>

#include "../../tvm/analyzer.h"
#include "../../tvm/build.h"

namespace tl {

/*! The variables of a grid's axes, x first, and their extents. */
struct Grid {
  std::vector<Var> vars;
  std::vector<Expr> extents;

  Expr Tiles() const {
    Expr tiles = MakeInt(1);
    for (const Expr& extent : extents) tiles = tiles * extent;
    return Analyzer().Simplify(tiles);
  }
};

/*! The launch of a kernel: its grid and what says that its blocks are not independent. */
struct Launch {
  Grid grid;
  /*! Clusters, orders of chiplets, roles or numbers of blocks that the program gives. */
  bool is_special = false;
  /*! The order of T.use_swizzle, "" without one. */
  std::string order;
};
Launch ReadLaunch(const Stmt& kernel);

/*! Pipelined loops of the kernel multiply, and its blocks neither depend on each other nor take
 * different times: no loop has another number of iterations, and no pipelined loop is in a branch
 * or in a loop. */
bool MultiplyIndependently(const Grid& grid, const Stmt& kernel);

}  // namespace tl
