/*! What a loop layout makes of accesses of global memory: a part of the cost by which layout
 * inference chooses. */
#pragma once
#include "parallel.h"

namespace tl {

/*!
 * The time of a nest's accesses of global memory, as the bits that a thread could move to registers
 * meanwhile: an instruction of a warp takes the time of 32 bits a thread for each 4 sectors of 32
 * bytes that its lanes touch (NVIDIA Nsight Compute, Memory Tables), and a little for itself. The
 * first warp stands for all, tensors with symbolic strides have long rows, and accesses whose place
 * memory tells are left out.
 */
int64_t GlobalMemoryBits(const ParallelNest& nest, const Fragment& layout, int64_t lanes);

}  // namespace tl
