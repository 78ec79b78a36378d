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
 */
Layout MakeSwizzledLayout(const std::vector<int64_t>& shape, int bits, bool k_major = true);

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
