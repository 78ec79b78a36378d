/*! Asynchronous copies from global to shared memory by each thread (PTX ISA, Non-bulk copy). */
#pragma once

#include <tl/shared_address.h>

namespace tl {

/*!
 * Starts copying `bytes` bytes: 4, 8 or 16, both addresses being multiples of it. 16 bytes go
 * around the L1 cache. PTX ISA, cp.async.
 */
template <int bytes>
TL_DEVICE void cp_async_gs(void* shared, const void* global) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  const uint32_t to = detail::shared_address(shared);
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(bytes)
                 : "memory");
  }
}

/*!
 * Starts copying `bytes` bytes, or writing zeros without reading `global` where the predicate is
 * false. PTX ISA, cp.async: of the source, src-size bytes are read.
 */
template <int bytes>
TL_DEVICE void cp_async_gs_conditional(void* shared, const void* global, bool predicate) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  const uint32_t to = detail::shared_address(shared);
  const int size = predicate ? bytes : 0;
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                 "r"(size)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(bytes),
                 "r"(size)
                 : "memory");
  }
}

/*! Makes this thread's copies since the last commit a group. PTX ISA, cp.async.commit_group. */
TL_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/*!
 * Waits until at most `groups` groups of this thread are in flight. Other threads see the copied
 * bytes after a barrier. PTX ISA, cp.async.wait_group.
 */
template <int groups>
TL_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

}  // namespace tl
