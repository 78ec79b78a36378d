/*! Tensor-core instructions of a warp group (sm_90a). One row an instruction; the check, the choice
 * and the explanation come from the same row. */
#pragma once
#include <string>

#include "mma.h"

namespace tl {

/*! The threads of four warps that issue a wgmma together, and move registers (PTX ISA, wgmma,
 * setmaxnreg). */
inline constexpr int64_t kWarpGroupThreads = 128;

/*!
 * PTX ISA, wgmma.mma_async: 64 rows of C, `k` elements (32 bytes of what is stored of A) along K,
 * and a number of columns that is chosen for the tile. A is in shared memory or registers, B in
 * shared memory. A and B have one type.
 */
struct WgmmaInstruction {
  static constexpr int kRows = 64;
  static constexpr int kMaxColumns = 256;

  int k;
  DLDataType operand, accumulator;
  /*! Names of the types in the device headers. */
  const char* operand_name;
  const char* accumulator_name;
  /*! Shared operands may have rows or columns side by side; the others only elements along K. */
  bool any_order = false;
  /*! Rounds its operands, so that it is used only where the user allows it. */
  bool opt_in = false;
  /*! wgmma.sp: half of A is stored, as for mma.sp, in shared memory and K-major. */
  bool sparse = false;

  /*! Elements along K of what is stored of A. */
  int StoredK() const { return sparse ? k / 2 : k; }
  /*! Elements along K of one register of A. */
  int PerRegister() const { return k / 8; }
  /*! Is there one with `n` columns? */
  bool HasColumns(int64_t n) const;
  /*! Columns of the fewest equal instructions that make `n` columns; 0 if there are none. */
  int64_t ColumnsFor(int64_t n) const;
  /*! "wgmma.m64n128k16 (float16 x float16 -> float32)" */
  std::string Text(int64_t n) const;
};

/*! The instruction that WgmmaInstruction::Text names so, with its columns in `n`; nullptr without
 * one. */
const WgmmaInstruction* WgmmaNamed(const std::string& text, int64_t* n);

/*! An instruction and how the warp groups share the tile. */
struct WgmmaChoice {
  const WgmmaInstruction* instruction = nullptr;
  /*! Multiples of four warps along M. */
  WarpPartition warps{0, 0};
  /*! Columns of an instruction. */
  int64_t n = 0;
};

/*! The instruction for a tile whose operands in shared memory are `k_major`: have elements along K
 * side by side. nullopt with the precondition that fails in `why`. */
std::optional<WgmmaChoice> SelectWgmma(const GemmShape& shape, bool k_major, GemmWarpPolicy policy,
                                       std::string* why);

}  // namespace tl
