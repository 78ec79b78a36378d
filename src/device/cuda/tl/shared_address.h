/*! Addresses of shared memory in 32 bits. */
#pragma once

#include <tl/platform.h>

namespace tl {
namespace detail {

// The instructions on shared memory take 32-bit addresses of its window (PTX ISA, cvta).
TL_DEVICE uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

}  // namespace detail
}  // namespace tl
