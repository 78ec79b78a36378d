/*! Matrix instructions of a warp, with their operands in registers, and of a group of warps, which
 * reads operands from shared memory; and how warps share a tile. One row an instruction; the check,
 * the choice, the fragments and the error text come from the same row. */
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../layout/mma_fragment.h"
#include "../tvm/build.h"
#include "target.h"

namespace tl {

/*! The threads of four warps that issue a wgmma together, and move registers (PTX ISA, wgmma,
 * setmaxnreg). */
inline constexpr int64_t kWarpGroupThreads = 128;

/*! C += A B by the lanes of one warp, or by a group of warps. A and B have one type. */
struct MatrixInstruction {
  /*! The shape. For a warp group n is the most columns; ColumnsFor chooses a tile's. */
  int m, n, k;
  DLDataType operand, accumulator;
  Feature feature;
  /*! Names of the types in the device headers. */
  std::string operand_name, accumulator_name;
  /*! Which lane holds which element: of A, m rows by what is stored of k; of B, n by k; of C, m by
   * n. The registers of a fragment are in the order of their numbers. Undefined of a group. */
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
  /*! How many elements along K of a row of A, and of a column of B, share a scale, a power of two;
   * 0 without scales. Lane l gives the scale of row l % m of A, and of column l % n of B, of
   * elements from l / m * scale_k on; behind the pointers to A and B the intrinsic is called with
   * both. */
  int scale_k = 0;

  /*! The threads of a group of warps that issue it together; 0 for those of a warp. A group has A
   * in shared memory or in registers, B in shared memory, each by a descriptor. */
  int64_t group_threads = 0;
  /*! Operands of a group may have rows or columns side by side; others only elements along K. */
  bool any_order = false;
  /*! Type of B, and its name, of as many bits as `operand`, which is then A's alone; of no bits
   * where it is the same (PTX ISA, mma and wgmma: any two of .e4m3 and .e5m2). */
  DLDataType other_operand{kDLOpaqueHandle, 0, 1};
  std::string other_name = {};

  bool IsOfGroup() const { return group_threads > 0; }
  /*! Has a group's instruction a form of `columns`? */
  bool HasColumns(int64_t columns) const;
  /*! Columns of the fewest equal instructions that make `columns`; 0 if there are none. */
  int64_t ColumnsFor(int64_t columns) const;
  /*! Elements of each operand that one lane holds. */
  int64_t ElementsA() const { return a->RegisterExtent(); }
  int64_t ElementsB() const { return b->RegisterExtent(); }
  DLDataType OperandB() const { return other_operand.bits ? other_operand : operand; }
  const std::string& NameB() const { return other_operand.bits ? other_name : operand_name; }
  int64_t ElementsC() const { return c->RegisterExtent(); }
  /*! The elements that A and B are made of in memory and registers, and that fragments count:
   * bytes of 6-bit floats, of which three have four floats. */
  DLDataType Stored() const { return operand.bits == 6 ? DLDataType{kDLUInt, 8, 1} : operand; }
  /*! `elements` along K, a multiple of four of 6 bits, as stored. */
  int64_t StoredOf(int64_t elements) const { return elements * operand.bits / Stored().bits; }
  /*! Extent along K of what is stored of A. */
  int StoredK() const { return static_cast<int>(StoredOf(sparse ? k / 2 : k)); }
  /*! Elements along K that one 32-bit register holds. */
  int PerRegister() const { return operand.bits < 32 ? 32 / operand.bits : 1; }
  /*! Extent along K of a matrix that ldmatrix loads. */
  int BlockDepth() const { return 4 * PerRegister(); }
  /*! Bits of metadata of a row of A. */
  int MetadataBits() const { return operand.bits == 32 ? 2 * k : k; }
  /*! "mma.m16n8k16 (float16 x float16 -> float32)"; of a group with its number of columns. */
  std::string Text(int64_t columns = 0) const;
};

/*! Adds the instructions of a kind of targets, in order of preference. */
void AddMatrixInstructions(const std::string& kind, std::vector<MatrixInstruction> rows);
const std::vector<MatrixInstruction>& MatrixInstructionsOf(const std::string& kind);
/*! The instruction that a call of `intrinsic` is; nullptr without one. */
const MatrixInstruction* FindMatrixInstruction(const std::string& intrinsic,
                                               const std::vector<std::string>& template_args);

/*! The instruction that MatrixInstruction::Text names so, of a group with its `columns`; nullptr
 * without one. */
const MatrixInstruction* MmaNamed(const std::string& text, int64_t* columns);

/*! T.GemmWarpPolicy. */
enum class GemmWarpPolicy : int { kSquare = 0, kFullRow = 1, kFullCol = 2 };

struct WarpPartition {
  int64_t m_warps;
  int64_t n_warps;
};

/*! What a T.gemm and its like ask for. */
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
  /*! A and B have a scale for each block of elements along K. */
  bool scaled = false;
};

/*! The instruction for the shape, the one with the largest K first; nullptr with `reasons` (one
 * line an instruction of these types, or one line if there is none) if none fits. */
const MatrixInstruction* SelectMma(const GemmShape& shape, std::string* reasons);

/*! An instruction of a group of warps, and how the groups share the tile. */
struct GroupChoice {
  const MatrixInstruction* instruction = nullptr;
  /*! Whole groups along M. */
  WarpPartition warps{0, 0};
  /*! Columns of an instruction. */
  int64_t n = 0;
};
/*! The same for groups of warps, for a tile whose operands in shared memory are `k_major`: have
 * elements along K side by side. nullopt with the precondition that fails in `why`. */
std::optional<GroupChoice> SelectGroupMma(const GemmShape& shape, bool k_major,
                                          GemmWarpPolicy policy, std::string* why);

/*! The type as the tables name it: float8_e4m3 without a suffix is NVIDIA's format, which has no
 * infinity. */
DLDataType CanonicalOperand(DLDataType t);

/*!
 * Splits an m x n tile over `warps` warps in units of m_unit x n_unit, a multiple of `m_step` warps
 * along m. FullRow gives the rows as many warps as they take, FullCol the columns; Square minimises
 * |rows per warp / columns per warp - m / n| in units, the fewest row warps on a tie; warp groups
 * take rows instead where that reads less (PolicyOfGroups of op/gemm_plan.cc). Returns
 * nullopt where no split is legal.
 */
std::optional<WarpPartition> PartitionWarps(int64_t m, int64_t n, int64_t warps, int64_t m_unit,
                                            int64_t n_unit, GemmWarpPolicy policy,
                                            int64_t m_step = 1);

}  // namespace tl
