/*!
 * Register fragments of matrix instructions: which lane of a warp holds which element of an
 * operand, and how a block's tile is made of them.
 *
 * Warp w works on row group w % m_warps and column group w / m_warps; warps interleave at the
 * instruction's rows and columns.
 */
#pragma once
#include "layout.h"

namespace tl {

/*! One 8x8 tile: thread = 4 i + j / 2, register = j % 2. */
Fragment MakeGemmFragment8x8();

/*! A digit of the lane's or of the register's number: it is (x / divisor) % extent of coordinate
 * `dim` of the element. */
struct WarpDigit {
  size_t dim;
  int64_t extent, divisor;
};

/*!
 * A warp's fragment of a matrix from its digits, the lowest first: those of the lane and those of
 * the register. Together they have to count every element once.
 *
 * Example: C of mma.m16n8k16 (PTX ISA, "Matrix Fragments") is
 * MakeWarpFragment({{1, 4, 2}, {0, 8, 1}}, {{1, 2, 1}, {0, 2, 8}}): lane = j / 2 % 4 + 4 (i % 8),
 * register = j % 2 + 2 (i / 8).
 */
Fragment MakeWarpFragment(const std::vector<WarpDigit>& lane, const std::vector<WarpDigit>& reg);

/*! A or B of mma.sync: blocks of 8 rows by 4 registers along K, of `per_register` elements each,
 * those below each other first (PTX ISA, "Matrix Fragments for mma"). */
Fragment MakeMmaSyncOperand(int64_t row_blocks, int64_t depth_blocks, int64_t per_register);
/*! C of mma.sync with m rows: 8 or 16. */
Fragment MakeMmaSyncAccumulator(int64_t m);

/*! Accumulator of an m x n tile computed by m_warps x n_warps warps, of which `unit` is the
 * instruction's. */
Fragment MakeGemmFragmentC(const Fragment& unit, int64_t m, int64_t n, int64_t m_warps,
                           int64_t n_warps);

/*!
 * The same with `dim` of the tile shared by `warps` warps in other places: a warp's units (of
 * `unit` rows or columns) in groups of `count`, and element c of unit q of a group next to element
 * c of unit q + 1. So a thread has `count` neighbours, one of each unit of a group.
 */
Fragment InterleaveUnits(const Fragment& tile, size_t dim, int64_t unit, int64_t warps,
                         int64_t count);

/*! One operand over a whole tile, for the fragment that a T.gemm reads from registers. */
struct OperandTile {
  /*! Extent of the tile along M (of A) or N (of B), and along K. */
  int64_t rows, depth;
  /*! Warps along this operand's rows, and warps that hold the same rows. */
  int64_t warps, copies;
  /*! Whether equal rows belong to warps w, w + warps, ... (A) or to consecutive ones (B). */
  bool is_a;
};

/*!
 * thread and register of every element (row, k), of which `unit` is the instruction's fragment:
 * such fragments follow each other down the rows, then along K. With `transposed` the layout takes
 * (k, row).
 */
Fragment MakeGemmFragmentOperand(const Fragment& unit, const OperandTile& tile, bool transposed);

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
