/*! T.gemm: C += op(A) op(B) on tiles. A and B in shared memory, C a fragment. */
#pragma once
#include "../target/mma.h"
#include "operator.h"

namespace tl {

/*! Operands and options of one T.gemm. */
struct GemmOp {
  TileRegion a, b, c;
  bool trans_a, trans_b;
  GemmWarpPolicy policy;
  Expr clear_accum;
  Span span;

  int64_t M() const { return Extent(c, 1); }
  int64_t N() const { return Extent(c, 0); }
  int64_t K() const { return Extent(a, trans_a ? 1 : 0); }

 private:
  /*! Extent of a dimension counted from the last. */
  static int64_t Extent(const TileRegion& r, size_t from_last) {
    return ToInt(r.ranges[r.ranges.size() - 1 - from_last]->extent);
  }
};

/*! Instruction and warp split of one gemm. */
struct GemmPlan {
  const MmaInstruction* instruction;
  WarpPartition warps;
};

/*! The thread program of a gemm by ldmatrix and mma.sync. */
Stmt LowerGemmToMmaSync(const GemmOp& op, const GemmPlan& plan, LoweringScope* scope);

}  // namespace tl
