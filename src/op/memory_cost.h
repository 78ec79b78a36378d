/*! What layouts make of accesses of memory: of global memory a part of the cost by which layout
 * inference chooses, of shared memory the layout of a tile that nothing else places. */
#pragma once
#include "parallel.h"

namespace tl {

/*! Banks of shared memory that the counts of conflicts are for, each of words of 4 bytes. */
inline constexpr int64_t kBanks = 32, kBankBytes = 4;

/*!
 * The time of a nest's accesses of global memory, as the bits that a thread could move to registers
 * meanwhile: an instruction of a warp takes the time of 32 bits a thread for each 4 sectors of 32
 * bytes that its lanes touch (NVIDIA Nsight Compute, Memory Tables), and a little for itself. The
 * first warp stands for all, tensors with symbolic strides have long rows, and accesses whose place
 * memory tells are left out.
 */
int64_t GlobalMemoryBits(const ParallelNest& nest, const Fragment& layout, int64_t lanes);

/*!
 * The layout of a shared tile by which a nest's accesses of it have fewest bank conflicts:
 * undefined where rows that follow each other have at most half as many more as any swizzle of
 * 16-byte chunks, which leave vectors along rows as they are. `layout` is the nest's; lanes of the
 * first warp stand for all, and accesses whose place memory tells are left out.
 */
Layout FewestConflicts(const ParallelNest& nest, const Fragment& layout, const Var& tile,
                       int64_t lanes);

}  // namespace tl
