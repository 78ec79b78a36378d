/*!
 * Layouts of shared tiles. A row of a tile is cut into 16-byte chunks, and the chunk number is
 * xored with the row number, so that eight rows of one chunk column lie in eight different groups
 * of four banks (shared memory has 32 banks of 4 bytes): ldmatrix and 16-byte accesses then have no
 * bank conflict.
 *
 * The matrix is the last two dimensions of a shape; leading ones are kept. `bits` is the size of an
 * element. What does not fit is a ValueError that says which extent is wrong.
 */
#pragma once
#include "layout.h"

namespace tl {

/*!
 * Rows swizzled in spans of `chunks` (8, 4 or 2) chunks of 16 bytes: 128, 64 or 32 bytes. Needs
 * columns divisible by chunks * 128 / bits, and rows divisible by 8 (or 4 rows).
 */
Layout MakeBankSwizzle(const std::vector<int64_t>& shape, int bits, int chunks);

/*! Row-major with the row stride raised by one 16-byte chunk when it is a multiple of 32 bytes. */
Layout MakePaddedLayout(const std::vector<int64_t>& shape, int bits);

/*!
 * What mma.sync reads best: the widest swizzle that fits the shape, else padded rows. Operands of 8
 * bits that are not K-major are read byte by byte and padded; 64-bit ones are swizzled in chunks of
 * 32 bytes, the four elements that four lanes of an mma.m8n8k4 read from a row.
 *
 * Of `banks`, 64, it is what MFMA reads best on such a chip: MakeWideSwizzle.
 */
Layout MakeSwizzledLayout(const std::vector<int64_t>& shape, int bits, bool k_major = true,
                          int banks = 32);

/*!
 * Rows swizzled in spans of `chunks` (8, 4, 2 or 1) chunks of 16 bytes, for LDS of 64 banks. 16
 * chunks make a line of all banks: of the chunk's number there bits are flipped by those of the row
 * that say which line it is in. Neither K-major operands of MFMA, read by ds_read_b128, have
 * conflicts then, nor others, read by ds_read_tr. What is served at once are 16 lanes of 16 bytes,
 * or 32 of 8 bytes:
 *  - one chunk of 16 rows, four by four of 32 (MFMA of 32 rows), or two neighbours, of four times
 *    four rows of 16 (of 16 rows);
 *  - of 16-bit elements four chunks of four rows (of 32 rows), or two chunks of four rows and of
 *    those that are 4 or 8 behind them (of 16);
 *  - of 8-bit elements two chunks of eight rows (of 32), or one of those and of those 16 behind
 * them (of 16). `memory_accesses` counts them. Needs columns divisible by chunks * 128 / bits, and
 * rows by 16 / chunks.
 */
Layout MakeWideSwizzle(const std::vector<int64_t>& shape, int bits, int chunks);

/*!
 * What wgmma and tcgen05 read: the widest swizzle (128, 64, 32 bytes) whose span divides
 * `continuity`, the number of elements that lie side by side in the operand; else row-major, if
 * 16-byte chunks divide it. Needs rows divisible by 8.
 */
Layout MakeUnpaddedSwizzle(const std::vector<int64_t>& shape, int bits, int64_t continuity);

/*!
 * Operands of Volta's mma.m8n8k4 (16-bit): the crosswise pattern if `k_inner`, else the congruous
 * ones of A and B. Source: CUTLASS, layout/tensor_op_multiplicand_sm70.h.
 */
Layout MakeVoltaSwizzle(const std::vector<int64_t>& shape, bool is_a, bool k_inner);

/*! Row-major order as one number. */
Layout MakeRowMajorLayout(const std::vector<int64_t>& shape);

/*!
 * The same layout of elements of `bits`, knowing the swizzle that it is
 * (LayoutNode::swizzle_bytes): for those that no function here has made, such as a user's. Tables
 * decide.
 */
Layout WithSwizzle(const Layout& layout, int bits);

}  // namespace tl
