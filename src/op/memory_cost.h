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
 * The swizzle of a shared tile with which a nest's accesses of it have fewest bank conflicts. It
 * moves chunks of 16 bytes, so vectors along rows stay. Undefined unless it has at most half of the
 * conflicts of a row-major tile. `layout` is the nest's. The lanes of the first warp stand for all.
 * Accesses whose index is read from memory are left out.
 */
Layout FewestConflicts(const ParallelNest& nest, const Fragment& layout, const Var& tile,
                       int64_t lanes);

}  // namespace tl
