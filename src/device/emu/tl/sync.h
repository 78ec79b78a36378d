/*! Barriers of a block and of a warp. */
#pragma once

#include <tl/platform.h>

namespace tl {

/*! Waits for all threads of the block that have not exited. */
TL_DEVICE void sync_threads(emu::Location where = emu::here()) { __syncthreads(where); }

/*! Waits for `threads` threads (whole warps) at barrier `barrier` (0 to 15; 0 is that of
 * sync_threads). */
TL_DEVICE void sync_threads_partial(int barrier, int threads, emu::Location where = emu::here()) {
  emu::barrier_sync(barrier, unsigned(threads), where);
}

/*!
 * Arrives at barrier `barrier` without waiting: one of the `threads` threads (whole warps)
 * that sync_threads_partial waits for there.
 */
TL_DEVICE void named_barrier_arrive(int barrier, int threads, emu::Location where = emu::here()) {
  emu::named_barrier_arrive(barrier, unsigned(threads), where);
}

/*! Waits for the lanes of the warp whose bit is set in `mask`, this one's among them. */
TL_DEVICE void sync_warp(emu::LaneMask mask, emu::Location where = emu::here()) {
  emu::warp_barrier_sync(mask, where);
}

}  // namespace tl
