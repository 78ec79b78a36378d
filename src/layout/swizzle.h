/*!
 * Layouts of shared tiles. A row of a tile is cut into 16-byte chunks, and the chunk number is
 * xored with the row number, so that eight rows of one chunk column lie in eight different groups
 * of four banks (shared memory has 32 banks of 4 bytes): ldmatrix and 16-byte accesses then have no
 * bank conflict.
 */
#pragma once
#include "layout.h"

namespace tl {

/*!
 * A tile of `shape` (last two dimensions the matrix, leading ones kept) whose rows are swizzled in
 * spans of `chunks` (8, 4 or 2) chunks of 16 bytes: 128, 64 or 32 bytes. Needs columns divisible by
 * chunks * 128 / bits and rows divisible by 8.
 */
Layout MakeBankSwizzle(const std::vector<int64_t>& shape, int bits, int chunks);

/*! The widest swizzle that fits the shape, else rows padded by 16 bytes where they would all start
 * in the same banks. */
Layout MakeSwizzledLayout(const std::vector<int64_t>& shape, int bits);

/*! Row-major with the row stride raised by one 16-byte chunk when it is a multiple of 32 bytes. */
Layout MakePaddedLayout(const std::vector<int64_t>& shape, int bits);

}  // namespace tl
