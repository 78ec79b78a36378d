/*! Orders of atomic operations, with the numbers and meanings of C++'s std::memory_order; then
 * those whose scope is the system, all GPUs and the host, instead of the device. */
#pragma once

#include <tl/platform.h>

namespace tl {

enum MemoryOrder : int {
  relaxed,
  consume,
  acquire,
  release,
  acq_rel,
  seq_cst,
  relaxed_system,
  consume_system,
  acquire_system,
  release_system,
  acq_rel_system,
  seq_cst_system
};

TL_DEVICE constexpr bool is_system(MemoryOrder order) { return order >= relaxed_system; }
/*! The same order at the scope of the device. */
TL_DEVICE constexpr MemoryOrder plain(MemoryOrder order) {
  return is_system(order) ? MemoryOrder(order - relaxed_system) : order;
}

}  // namespace tl
