/*! Tensor-core instructions of mma.sync and how warps share a tile. One row an instruction; the
 * check, the choice and the error text come from the same row. */
#pragma once
#include <string>
#include <vector>

#include "../tvm/build.h"
#include "target.h"

namespace tl {

/*!
 * PTX ISA, "Matrix multiply-accumulate operation using mma instruction". A and B have one type.
 * Every row has the same kind of fragments: operands are made of blocks of 8 rows (M or N) by 4
 * registers along K, lane l holding register l % 4 of row l / 4.
 */
struct MmaInstruction {
  static constexpr int kLanes = 32;
  int m, n, k;
  DLDataType operand, accumulator;
  Feature feature;
  /*! Names of the types in the device headers. */
  const char* operand_name;
  const char* accumulator_name;
  /*! Rounds its operands, so that it is used only where the user allows it. */
  bool opt_in = false;
  /*! mma.sp: of every four elements of a row of A (two of tf32) half are stored, and two bits of
   * metadata for each of them say which (for tf32 four). */
  bool sparse = false;

  /*! Elements along K that one register holds. */
  int PerRegister() const { return operand.bits < 32 ? 32 / operand.bits : 1; }
  /*! Extent along K of what is stored of A. */
  int StoredK() const { return sparse ? k / 2 : k; }
  /*! Blocks of 8 rows by 4 registers in fragments of A and B. */
  int RowBlocks() const { return m / 8; }
  int DepthBlocksA() const { return StoredK() / BlockDepth(); }
  int DepthBlocksB() const { return k / BlockDepth(); }
  int BlockDepth() const { return 4 * PerRegister(); }
  /*! Elements of each operand that one lane holds. */
  int ElementsA() const { return m * StoredK() / kLanes; }
  int ElementsB() const { return n * k / kLanes; }
  int ElementsC() const { return m * n / kLanes; }
  /*! Bits of metadata of a row of A. */
  int MetadataBits() const { return operand.bits == 32 ? 2 * k : k; }
  /*! "mma.m16n8k16 (float16 x float16 -> float32)" */
  std::string Text() const;
};

/*! The instruction of this shape and these types, by their names in the device headers; nullptr
 * without one. */
const MmaInstruction* FindMma(int64_t m, int64_t n, int64_t k, const std::string& operand,
                              const std::string& accumulator, bool sparse);

/*! The instruction that MmaInstruction::Text names so; nullptr without one. */
const MmaInstruction* MmaNamed(const std::string& text);

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
const MmaInstruction* SelectMma(const GemmShape& shape, std::string* reasons);

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
