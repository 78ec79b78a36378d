/*! Copies between fragments and shared memory by instructions that move matrices: ldmatrix,
 * stmatrix, ds_read_tr. */
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "operator.h"

namespace tl {

/*! How matrix instructions make a copy, as an attribute that prints. */
struct MatrixPlan {
  /*! Matrices in registers are the transposes of those in memory. */
  bool transposed = false;
  /*! Consecutive matrices in registers. */
  struct Run {
    int64_t first, count;
  };
  std::vector<Run> runs;

  static MatrixPlan Of(const CallNode* copy);
};

/*!
 * Plans the copy as matrix instructions, as an attribute in `to_do`; or says why not, where one of
 * these does not hold:
 *  - one side is a fragment, the other shared memory, of a dtype of which the instruction has
 *    matrices; registers of another dtype are converted, as many at a time as an instruction moves;
 *  - the target has the instruction, and threads are whole warps;
 *  - the registers of each warp are matrices, as the instruction's row lays them out: decided by
 * the fragment's table;
 *  - a part of a fragment is whole matrices, the same registers in all warps;
 *  - each row of a matrix is in one piece in shared memory, at a multiple of its bytes: decided by
 *    the table of the shared layout;
 *  - for a store, each element is held once.
 */
std::string PlanMatrixCopy(const std::string& instruction, const TileRegion& src,
                           const TileRegion& dst, const LayoutScope& scope,
                           Map<String, Any>* to_do);
/*! As many matrices as an instruction takes go at a time. */
Stmt LowerToMatrixCopy(const std::string& instruction, const TileRegion& src, const TileRegion& dst,
                       const MatrixPlan& plan, LoweringScope* scope, const Span& span);

/*! Why no threads of this number make the copy so, whatever the layouts are, as words behind
 * "found";
 * "" if layouts decide. */
std::string WhyNotMatrices(const std::string& instruction, const TileRegion& src,
                           const TileRegion& dst, const Target& target, int64_t num_threads);

/*! Where the shared side of such a copy may lie so that the rows of a matrix are in banks of their
 * own; undefined where the copy is none. */
Layout ProposeMatrixLayout(const TileRegion& src, const TileRegion& dst, const LayoutScope& scope);

/*! The first matrix of elements of `bits` that is `wanted`; nullptr without one. */
const LaneMatrix* FindMatrix(const CopyInstruction& row, int64_t bits,
                             const std::function<bool(const LaneMatrix&)>& wanted);

/*! The registers of each warp of `lanes` lanes are such matrices, whose rows are elements of the
 * fragment's last dimension from a multiple of their number on. */
bool IsMadeOf(const Fragment& f, const LaneMatrix& m, int64_t num_threads, int64_t lanes);

/*! The row that a lane names: the lane and the register with its first element, and the number of
 * its matrix among the `count` of an instruction. */
struct RowPlace {
  Expr lane, reg, matrix;
};
RowPlace RowOfLane(const LaneMatrix& m, const Expr& lane, int64_t count);
/*! The op that moves `count` matrices. */
const std::string& IntrinsicFor(const LaneMatrix& m, int64_t count);

}  // namespace tl
