/*!
 * Register fragments of mma.sync: which thread of a warp holds which element of an operand (PTX
 * ISA, "Matrix Fragments for mma"), and how a block's tile is made of them.
 *
 * Warp w works on row group w % m_warps and column group w / m_warps; warps interleave at the
 * instruction's rows and columns.
 */
#pragma once
#include "layout.h"

namespace tl {

/*! One 8x8 tile: thread = 4 i + j / 2, register = j % 2. */
Fragment MakeGemmFragment8x8();

/*! Accumulator of an m x n tile computed by m_warps x n_warps warps with an instruction of
 * `unit` (8 or 16) rows and 8 columns. */
Fragment MakeGemmFragmentC(int64_t m, int64_t n, int64_t m_warps, int64_t n_warps,
                           int64_t unit = 16);

/*! One operand of mma.sync over a whole tile, for the fragment that a T.gemm reads from registers.
 */
struct MmaOperandTile {
  /*! Extent of the tile along M (of A) or N (of B), and along K. */
  int64_t rows, depth;
  /*! The instruction's: elements along K of one register, blocks of 8 rows, blocks of 4 registers
   * along K. */
  int64_t per_register, row_blocks, depth_blocks;
  /*! Warps along this operand's rows, and warps that hold the same rows. */
  int64_t warps, copies;
  /*! Whether equal rows belong to warps w, w + warps, ... (A) or to consecutive ones (B). */
  bool is_a;
};

/*!
 * thread and register of every element (row, k): within a warp's fragment blocks of 8 rows are
 * fastest, then blocks along K; fragments follow each other down the rows, then along K. With
 * `transposed` the layout takes (k, row).
 */
Fragment MakeGemmFragmentOperand(const MmaOperandTile& tile, bool transposed);

/*!
 * Accumulator of an m x n tile computed by m_warps x n_warps warps, a multiple of four along m,
 * with wgmma: each warp has 16 consecutive rows of every 16 * m_warps, and n / n_warps consecutive
 * columns; registers go along the columns first. PTX ISA, "Register Fragments" of wgmma.
 */
Fragment MakeWgmmaFragmentC(int64_t m, int64_t n, int64_t m_warps, int64_t n_warps);

/*! A of the same product from registers, whose elements are `per_register` to a register: rows as
 * those of C, registers along K first, so that an accumulator that is cast stays where it is. */
Fragment MakeWgmmaFragmentA(int64_t m, int64_t k, int64_t m_warps, int64_t n_warps,
                            int64_t per_register, bool transposed);

}  // namespace tl
