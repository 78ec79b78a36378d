/*! Copies between fragments and shared memory by ldmatrix and stmatrix. */
#pragma once
#include <string>
#include <vector>

#include "operator.h"

namespace tl {

/*! How matrix instructions make a copy, as an attribute that prints. */
struct MatrixPlan {
  /*! Matrices in registers are the transposes of those in memory. */
  bool transposed = false;
  /*! Consecutive pairs of registers. */
  struct Run {
    int64_t first, count;
  };
  std::vector<Run> runs;

  static MatrixPlan Of(const CallNode* copy);
};

/*!
 * Plans the copy as matrix instructions, as an attribute in `to_do`; or says why not, where one of
 * these does not hold:
 *  - one side is a fragment, the other shared memory, of a 16-bit dtype; registers of another dtype
 *    are converted, as many at a time as an instruction moves;
 *  - the target has the instruction (ldmatrix sm_75, stmatrix sm_90), and threads are whole warps;
 *  - each register pair of a warp is an 8x8 matrix as PTX ISA, ldmatrix, lays it out, or the
 *    transpose of one: decided by the fragment's table;
 *  - a part of a fragment is whole matrices, the same registers in all warps;
 *  - the eight elements of each of its rows are 16 aligned bytes in shared memory: decided by the
 *    table of the shared layout;
 *  - for a store, each element is held once.
 */
std::string PlanMatrixCopy(const TileRegion& src, const TileRegion& dst, const LayoutScope& scope,
                           Map<String, Any>* to_do);
/*! Four matrices go at a time, then two, then one. */
Stmt LowerToMatrixCopy(const TileRegion& src, const TileRegion& dst, const MatrixPlan& plan,
                       LoweringScope* scope, const Span& span);

/*! Why no threads of this number make the copy so, whatever the layouts are, as words behind
 * "found";
 * "" if layouts decide. */
std::string WhyNotMatrices(const TileRegion& src, const TileRegion& dst, const Target& target,
                           int64_t num_threads);

/*! Where the shared side of such a copy may lie so that the rows of a matrix are in banks of their
 * own; undefined where the copy is none. */
Layout ProposeMatrixLayout(const TileRegion& src, const TileRegion& dst, const LayoutScope& scope);

}  // namespace tl
