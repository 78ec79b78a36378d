/*! Barriers of a block and of a warp. */
#pragma once

#include <tl/platform.h>

namespace tl {

/*! Waits for all threads of the block that have not exited, and orders their memory accesses. */
TL_DEVICE void sync_threads() { __syncthreads(); }

/*!
 * Waits for `threads` threads (a multiple of 32) at barrier `barrier` (0 to 15; 0 is that of
 * sync_threads). PTX ISA, bar.
 */
TL_DEVICE void sync_threads_partial(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/*!
 * Arrives at barrier `barrier` without waiting: one of the `threads` threads (a multiple of 32)
 * that sync_threads_partial waits for there. PTX ISA, bar.
 */
TL_DEVICE void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/*! Waits for the lanes of the warp whose bit is set in `mask`, this one's among them. */
TL_DEVICE void sync_warp(uint32_t mask) { __syncwarp(mask); }

}  // namespace tl
