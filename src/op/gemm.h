/*!
 * T.gemm: C += op(A) op(B) on tiles. A and B in shared memory or fragments, C a fragment. T.gemm_sp
 * stores half of A, T.gemm_blockscaled has a scale for each block of K of A and B.
 *
 * Planned first (gemm_plan.cc): the wgmma of warp groups (gemm_wgmma.cc) where it fits, else a
 * tensor-core instruction of warps (gemm_mma.cc) for as much of K as it divides, ordinary
 * arithmetic (gemm_fma.cc) for the rest, or for everything where no instruction fits. Operands in
 * registers are read where they are if every thread has what the instruction wants of it, else they
 * go through shared memory (gemm_operand.cc).
 */
#pragma once
#include "../target/mma.h"
#include "operator.h"
#include "wgmma_operand.h"

namespace tl {

inline constexpr const char* kGemm = "tl.tileop.gemm";
inline constexpr const char* kGemmSp = "tl.tileop.gemm_sp";
inline constexpr const char* kGemmScaled = "tl.tileop.gemm_blockscaled";
/*! Attribute of kGemmScaled: the type of A and B that bytes hold. */
inline constexpr const char* kPackedOperand = "packed_operand";
/*! Attribute that WithOperands writes: C is the transpose of what A and B give. */
inline constexpr const char* kTransposeC = "transpose_C";

/*! Operands and options of one T.gemm, T.gemm_sp or T.gemm_blockscaled. */
struct GemmOp {
  TileRegion a, b, c;
  bool trans_a, trans_b;
  /*! C has N rows and M columns. */
  bool trans_c = false;
  /*! Which elements of a sparse A are stored: row m is a string of bits, the lowest first in each
   * element of `metadata`. */
  std::optional<TileRegion> metadata;
  bool trans_metadata = false;
  /*! In shared memory: a scale for each row of A, and column of B, and block along K. */
  std::optional<TileRegion> scales_a, scales_b;
  /*! The type of A and B where these are bytes that hold it (PackFloat6). */
  std::optional<DLDataType> packed;
  GemmWarpPolicy policy;
  Expr clear_accum;
  bool allow_tf32;
  /*! Nobody waits for the MMA here: it has to be a wgmma. */
  bool asynchronous = false;
  Span span;

  int64_t M() const { return Extent(c, trans_c ? 0 : 1); }
  int64_t N() const { return Extent(c, trans_c ? 1 : 0); }
  int64_t K() const {
    const int64_t stored = Extent(b, trans_b ? 0 : 1);
    return packed ? stored * StoredType().bits / packed->bits : stored;
  }
  bool IsSparse() const { return metadata.has_value(); }
  bool IsScaled() const { return scales_a.has_value(); }
  const char* Name() const {
    if (asynchronous) return IsSparse() ? "T.wgmma_gemm_sp" : "T.wgmma_gemm";
    if (IsScaled()) return "T.gemm_blockscaled";
    return IsSparse() ? "T.gemm_sp" : "T.gemm";
  }
  /*! Types of the numbers that are multiplied, and of A's and B's elements in memory. */
  DLDataType OperandType() const { return packed ? *packed : StoredType(); }
  /*! Type of the numbers of B, which may be another float of 8 bits. */
  DLDataType OtherType() const { return packed ? *packed : DTypeOf(b.buffer); }
  DLDataType StoredType() const { return DTypeOf(a.buffer); }
  DLDataType AccumulatorType() const { return DTypeOf(c.buffer); }

 private:
  /*! Extent of a dimension counted from the last. */
  static int64_t Extent(const TileRegion& r, size_t from_last) {
    return ToInt(r.ranges[r.ranges.size() - 1 - from_last]->extent);
  }
};

/*! [begin, begin + steps * instruction->k) of K, by one instruction. */
struct MmaSteps {
  const MatrixInstruction* instruction;
  int64_t begin;
  int64_t steps;
};

/*! What decides over the instruction beside the operator itself. */
struct GemmContext {
  int64_t num_threads;
  const Target* target;
  /*! Layouts of A and B in shared memory, as far as they are settled, and not by a gemm. */
  Layout a, b;
  /*! A or B is a view with elements of another width. */
  bool views = false;
  /*! The lowest of the threads, in the block. */
  int64_t first_thread = 0;
  /*! What other readers of A and B have against wgmma; empty if nothing. */
  std::string no_common_layout = "";
  /*! Registers of a thread in all fragments of the block. */
  int64_t fragment_registers = 0;
};

/*!
 * How many of a warp's MMAs along M and along N take neighbouring rows and columns in turns. An
 * operand in shared memory whose rows (of A) or columns (of B) lie side by side, and not its
 * elements along K, is then read by vectors of so many elements, one for each of the MMAs.
 */
struct Interleaving {
  int64_t m = 1, n = 1;
  bool operator==(const Interleaving& other) const { return m == other.m && n == other.n; }
};

/*! How a gemm is computed. */
struct GemmPlan {
  /*! Computes the whole, if it has an instruction; `mma` is empty then. */
  GroupChoice wgmma;
  /*! Why the instructions of warp groups do not, empty before sm_90. */
  std::string why_no_wgmma;
  /*! Instructions that differ in k only; empty if none fits. */
  std::vector<MmaSteps> mma;
  /*! K from here on is for ordinary arithmetic. */
  int64_t fma_begin = 0;
  /*! The warps that compute; the block may have more. */
  WarpPartition warps{0, 0};
  /*! Why no instruction does the whole, empty if one does. */
  std::string why_fma;
  /*! The device's compiler is told to put the reads of A and B between the instructions. */
  bool interleaves_reads = false;
  Interleaving interleaving;
  /*! Bytes of the swizzle that a wgmma gives its A and B in shared memory; 0 where it gives none:
   * the user does, or another product that reads the same memory under another name. */
  int64_t swizzle_a = 0, swizzle_b = 0;

  bool UsesWgmma() const { return wgmma.instruction != nullptr; }
  bool UsesMma() const { return !mma.empty(); }
  /*! An instruction dictates where C is. */
  bool UsesTensorCores() const { return UsesWgmma() || UsesMma(); }
  /*! Operands may be read from fragments in the instruction's own layout. */
  bool TakesFragments() const { return UsesWgmma() || (mma.size() == 1 && why_fma.empty()); }
  /*! A and B of a wgmma in shared memory. */
  WgmmaOperand SharedA(const GemmOp& op) const;
  WgmmaOperand SharedB(const GemmOp& op) const;
  Fragment LayoutOfA(const GemmOp& op) const;
  Fragment LayoutOfB(const GemmOp& op) const;
  Fragment LayoutOfC(const GemmOp& op) const;
  /*! One line: instructions, warps, and what remains and why. */
  std::string Text(const GemmOp& op) const;
};

/*! Is the call one of kGemm, kGemmSp or kGemmScaled? */
bool IsGemm(const CallNode* call);
/*! The operator of such a call. */
GemmOp ParseGemm(const CallNode* call, const Span& span);
/*! The region of C among its arguments. */
Expr AccumulatorOf(const CallNode* call);
/*! The call with another condition for C to begin at zero. */
Call WithClearAccum(const CallNode* call, const Expr& clear_accum);
/*! A call of kGemm with A, B, their transposes, the policy and `trans_c` of `op`. */
Call WithOperands(const CallNode* call, const GemmOp& op);

/*! Refuses (ValueError) operands in the wrong memory, slices of C, types without arithmetic, and an
 * asynchronous MMA that is no wgmma. */
GemmPlan PlanGemm(const GemmOp& op, const GemmContext& context);

/*! How the gemm's operands in shared memory are read best. */
Interleaving InterleavingOf(const GemmOp& op, const GemmPlan& plan, const Target& target);

/*! C of a gemm that no instruction dictates: rows and columns dealt to a grid of threads, so that a
 * thread's elements share as many loads of A and B as they can. */
Fragment MakeFmaLayout(const GemmOp& op, int64_t num_threads);

/*! An operand as lowering reads it: memory that all threads share, indexed (row, k), or registers.
 */
struct GemmOperand {
  /*! Shared memory; `mins` is the tile's first element. */
  Var shared;
  Array<Expr> mins;
  bool transposed;
  /*! Each row of the stored tile is made of vectors of so many bytes: 16, as ldmatrix reads them,
   * 8, or 0. */
  int64_t vector_bytes;
  /*! Registers in the instruction's order, undefined for an operand in shared memory. */
  Var registers;

  /*! Logical indices of element (row, k), where a row is one of M (of A) or N (of B). */
  Array<Expr> Element(const Expr& row, const Expr& k) const;
};

/*!
 * The operand of a gemm for its thread program. Statements that bring it there (register moves, or
 * a copy to new shared memory, swizzled if `for_wgmma`) are added to `before`. `wanted` is the
 * layout that the instruction reads, undefined if it takes shared memory only.
 */
GemmOperand LowerOperand(const GemmOp& op, const TileRegion& region, bool transposed,
                         const Fragment& wanted, LoweringScope* scope, std::vector<Stmt>* before,
                         bool for_wgmma = false);
/*! Refuses a fragment operand that neither is where the instruction wants it nor can be copied. */
void VerifyOperand(const GemmOp& op, const TileRegion& region, const Fragment& placed);

/*! What a lane of a warp holds of `bits` bits of metadata from bit `first` of a row on, for 16 rows
 * from row `row` on. */
Expr MetadataOfLane(const GemmOp& op, const Expr& row, const Expr& lane, const Expr& first,
                    int bits, LoweringScope* scope);
/*! Thread programs: the steps of one instruction; K in [begin, K) by multiply and add. */
Stmt LowerGemmToMma(const GemmOp& op, const GemmPlan& plan, const MmaSteps& steps,
                    const GemmOperand& a, const GemmOperand& b, LoweringScope* scope);
Stmt LowerGemmToWgmma(const GemmOp& op, const GemmPlan& plan, LoweringScope* scope);
Stmt LowerGemmToFma(const GemmOp& op, int64_t begin, const GemmOperand& a, const GemmOperand& b,
                    LoweringScope* scope);

}  // namespace tl
