/*! Barriers of a block. */
#pragma once

#include <tl/platform.h>

namespace tl {

/*! Waits for all threads of the block that have not exited. */
TL_DEVICE void sync_threads(emu::Location where = emu::here()) { __syncthreads(where); }

/*! Waits for `threads` threads (a multiple of 32) at barrier `barrier` (0 to 15; 0 is that of
 * sync_threads). */
TL_DEVICE void sync_threads_partial(int barrier, int threads, emu::Location where = emu::here()) {
  emu::barrier_sync(barrier, unsigned(threads), where);
}

}  // namespace tl
