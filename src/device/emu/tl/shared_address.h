/*! Addresses of shared memory. */
#pragma once

#include <tl/platform.h>

namespace tl {
namespace emu {

/*! Whether `bytes` bytes from `pointer` are shared memory of the block. */
TL_RUNTIME bool in_shared_memory(const void* pointer, size_t bytes) {
  const Block& block = this_block();
  const size_t at = static_cast<const unsigned char*>(pointer) - block.shared;
  const size_t end = at + bytes, dynamic = kMaxStaticSharedBytes;
  return at < dynamic ? end <= block.static_bytes : end <= dynamic + block.shared_bytes;
}

/*! Bits 4 to 6 of an address xored with bits 7 to 9, as many of them as the span of the swizzle
 * has. */
inline uint32_t swizzle_address(uint32_t address, uint32_t span) {
  return address ^ ((address >> 7 & (span / 16 - 1)) << 4);
}

TL_RUNTIME void check_in_shared(const void* pointer, size_t bytes, const char* kind,
                                Location where) {
  if (in_shared_memory(pointer, bytes)) return check_extent(pointer, bytes, where);
  fail(where, "%s is not in the block's shared memory: %zu bytes from %p", kind, bytes, pointer);
}

}  // namespace emu

namespace detail {

// Addresses count from dynamic shared memory, which begins at a multiple of every swizzle's
// pattern.
TL_DEVICE uint32_t shared_address(const void* pointer, emu::Location where = emu::here()) {
  const emu::Block& block = emu::this_block();
  const size_t at = static_cast<const unsigned char*>(pointer) - block.dynamic_shared();
  if (at >= block.shared_bytes) {
    emu::fail(where, "the operand at %p is not in the block's dynamic shared memory", pointer);
  }
  return uint32_t(at);
}

}  // namespace detail
}  // namespace tl
