/*! Matrix instructions of a warp, with their operands in registers, and how warps share a tile. One
 * row an instruction; the check, the choice, the fragments and the error text come from the same
 * row. */
#pragma once
#include <string>
#include <vector>

#include "../layout/mma_fragment.h"
#include "../tvm/build.h"
#include "target.h"

namespace tl {

/*! C += A B by the lanes of one warp. A and B have one type. */
struct MatrixInstruction {
  int m, n, k;
  DLDataType operand, accumulator;
  Feature feature;
  /*! Names of the types in the device headers. */
  std::string operand_name, accumulator_name;
  /*! Which lane holds which element: of A, m rows by what is stored of k; of B, n by k; of C, m by
   * n. The registers of a fragment are in the order of their numbers. */
  Fragment a, b, c;
  /*! What it is called in messages: "mma.m16n8k16". */
  std::string name;
  /*! The intrinsic that is called with pointers to the registers of C, A and B, and its template
   * arguments: integers, and names of types. */
  std::string intrinsic;
  std::vector<std::string> template_args;
  /*! It is called with B for A and A for B, and so gives the transposed MMA: C is transposed.
   */
  bool exchanges_operands = false;
  /*! Not for operands in registers, which lie as sums do: with fewer elements of a lane in a row.
   */
  bool shared_only = false;
  /*! A and B are made of the matrices that ldmatrix loads: 8 rows by 4 registers of 32 bits, lane l
   * holding register l % 4 of row l / 4. */
  bool has_ldmatrix = false;
  /*! Rounds its operands, so that it is used only where the user allows it. */
  bool opt_in = false;
  /*! mma.sp: of every four elements of a row of A (two of tf32) half are stored, and two bits of
   * metadata for each of them say which (for tf32 four). */
  bool sparse = false;

  /*! Elements of each operand that one lane holds. */
  int64_t ElementsA() const { return a->RegisterExtent(); }
  int64_t ElementsB() const { return b->RegisterExtent(); }
  int64_t ElementsC() const { return c->RegisterExtent(); }
  /*! Extent along K of what is stored of A. */
  int StoredK() const { return sparse ? k / 2 : k; }
  /*! Elements along K that one 32-bit register holds. */
  int PerRegister() const { return operand.bits < 32 ? 32 / operand.bits : 1; }
  /*! Extent along K of a matrix that ldmatrix loads. */
  int BlockDepth() const { return 4 * PerRegister(); }
  /*! Bits of metadata of a row of A. */
  int MetadataBits() const { return operand.bits == 32 ? 2 * k : k; }
  /*! "mma.m16n8k16 (float16 x float16 -> float32)" */
  std::string Text() const;
};

/*! Adds the instructions of a kind of targets, in order of preference. */
void AddMatrixInstructions(const std::string& kind, std::vector<MatrixInstruction> rows);
const std::vector<MatrixInstruction>& MatrixInstructionsOf(const std::string& kind);
/*! The instruction that a call of `intrinsic` is; nullptr without one. */
const MatrixInstruction* FindMatrixInstruction(const std::string& intrinsic,
                                               const std::vector<std::string>& template_args);

/*! The instruction that MatrixInstruction::Text names so; nullptr without one. */
const MatrixInstruction* MmaNamed(const std::string& text);

/*! What a T.gemm or T.gemm_sp asks for. */
struct GemmShape {
  int64_t m, n, k;
  DLDataType a, b, c;
  const Target* target;
  int64_t num_threads;
  /*! float32 operands may be rounded to tf32. */
  bool allow_tf32;
  /*! K must be a multiple of the instruction's: an operand is in registers. Otherwise what is left
   * of K is for another instruction. */
  bool whole_k;
  /*! A is stored without its zeros. */
  bool sparse;
};

/*! The instruction for the shape, the one with the largest K first; nullptr with `reasons` (one
 * line an instruction of these types, or one line if there is none) if none fits. */
const MatrixInstruction* SelectMma(const GemmShape& shape, std::string* reasons);

/*! The type as the tables name it: float8_e4m3 without a suffix is NVIDIA's format, which has no
 * infinity. */
DLDataType CanonicalOperand(DLDataType t);

/*! T.GemmWarpPolicy. */
enum class GemmWarpPolicy : int { kSquare = 0, kFullRow = 1, kFullCol = 2 };

struct WarpPartition {
  int64_t m_warps;
  int64_t n_warps;
};

/*!
 * Splits an m x n tile over `warps` warps in units of m_unit x n_unit, a multiple of `m_step` warps
 * along m. FullRow gives the rows as many warps as they take, FullCol the columns; Square minimises
 * |rows per warp / columns per warp - m / n| in units, the fewest row warps on a tie. Returns
 * nullopt where no split is legal.
 */
std::optional<WarpPartition> PartitionWarps(int64_t m, int64_t n, int64_t warps, int64_t m_unit,
                                            int64_t n_unit, GemmWarpPolicy policy,
                                            int64_t m_step = 1);

}  // namespace tl
