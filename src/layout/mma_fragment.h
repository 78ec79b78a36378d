/*!
 * Register fragments of mma.sync: which thread of a warp holds which element of an operand (PTX
 * ISA, "Matrix Fragments for mma.m16n8k16"), and how a block's tile is made of them.
 */
#pragma once
#include "layout.h"

namespace tl {

/*! One 8x8 tile: thread = 4 i + j / 2, register = j % 2. */
Fragment MakeGemmFragment8x8();

/*!
 * Accumulator of an m x n tile computed by m_warps x n_warps warps. Warp w works on row group w %
 * m_warps and column group w / m_warps; warps interleave at 16 rows and 8 columns.
 */
Fragment MakeGemmFragmentC(int64_t m, int64_t n, int64_t m_warps, int64_t n_warps);

}  // namespace tl
