/*! Addresses of shared memory in 32 bits. */
#pragma once

#include <tl/platform.h>

namespace tl {
namespace detail {

// The instructions on shared memory take 32-bit addresses of its window (PTX ISA, cvta).
TL_DEVICE uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// The same place in the shared memory of the block of this rank in the cluster (PTX ISA, mapa).
TL_DEVICE uint32_t remote_address(const void* pointer, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

}  // namespace detail
}  // namespace tl
