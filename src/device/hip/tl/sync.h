/*! Barriers of a block and of a wavefront. */
#pragma once

#include <tl/platform.h>

/*! Waits for all threads of the block that have not exited, and orders their memory accesses. */
TL_DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/*! Orders memory accesses of this thread as others of the device, block, or system see them. */
TL_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
TL_DEVICE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
TL_DEVICE void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

namespace tl {

TL_DEVICE void sync_threads() { __syncthreads(); }

/*! Orders the memory accesses of the wavefront's lanes, which run together: whose bit is set in the
 * mask does not matter. */
TL_DEVICE void sync_warp(detail::LaneMask) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

}  // namespace tl
