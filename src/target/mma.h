/*! Tensor-core instructions of mma.sync and how warps share a tile. One row an instruction; the
 * check, the choice and the error text come from the same row. */
#pragma once
#include <string>
#include <vector>

#include "../tvm/build.h"

namespace tl {

/*! PTX ISA, "Matrix multiply-accumulate operation using mma instruction". */
struct MmaInstruction {
  int m, n, k;
  DLDataType a, b, c;
  int min_arch;
};

/*! What a T.gemm asks for. */
struct GemmShape {
  int64_t m, n, k;
  DLDataType a, b, c;
  int arch;
};

/*! The instruction for the shape; nullptr with `reasons` (one line an instruction that was tried)
 * if none fits. */
const MmaInstruction* SelectMma(const GemmShape& shape, std::string* reasons);

/*! T.GemmWarpPolicy. */
enum class GemmWarpPolicy : int { kSquare = 0, kFullRow = 1, kFullCol = 2 };

struct WarpPartition {
  int64_t m_warps;
  int64_t n_warps;
};

/*!
 * Splits an m x n tile over `warps` warps in units of m_unit x n_unit. FullRow gives the rows as
 * many warps as they take, FullCol the columns; Square minimises |rows per warp / columns per warp
 * - m / n| in units, the fewest row warps on a tie. Returns nullopt where no split is legal.
 */
std::optional<WarpPartition> PartitionWarps(int64_t m, int64_t n, int64_t warps, int64_t m_unit,
                                            int64_t n_unit, GemmWarpPolicy policy);

}  // namespace tl
