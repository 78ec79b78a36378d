/*! T.gemm: C += op(A) op(B) on tiles. A and B in shared memory, C a fragment; mma.sync with
 * ldmatrix. */
#pragma once
#include <functional>
#include <utility>

#include "../layout/layout.h"
#include "../target/mma.h"
#include "tile_op.h"

namespace tl {

struct GemmOp {
  TileRegion a, b, c;
  bool trans_a, trans_b;
  GemmWarpPolicy policy;
  Expr clear_accum;
  Span span;

  static GemmOp From(const CallNode* call, const Span& span);
  int64_t M() const { return Extent(c, 1); }
  int64_t N() const { return Extent(c, 0); }
  int64_t K() const { return Extent(a, trans_a ? 1 : 0); }

 private:
  /*! Extent of a dimension counted from the last. */
  static int64_t Extent(const TileRegion& r, size_t from_last);
};

/*! Instruction and warp split of one gemm; refuses (ValueError) what no instruction can do. */
struct GemmPlan {
  const MmaInstruction* instruction;
  WarpPartition warps;
};
GemmPlan PlanGemm(const GemmOp& op, int64_t num_threads, int arch);

/*! Layouts that the operands need. */
Fragment GemmLayoutC(const GemmOp& op, const GemmPlan& plan);
Layout GemmLayoutShared(const TileRegion& operand);

/*!
 * The thread program of a gemm. `registers_c` is the per-thread buffer of C, `place` maps an
 * element of a shared operand to its physical indices, `thread` is the linear thread number in the
 * block.
 */
struct GemmLowering {
  Var registers_c;
  Expr thread;
  std::function<std::pair<Var, Array<Expr>>(const TileRegion&, const Array<Expr>&)> place;
};
Stmt LowerGemm(const GemmOp& op, const GemmPlan& plan, const GemmLowering& ctx);

}  // namespace tl
