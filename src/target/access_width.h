/*! How much memory one thread touches at once, for those who plan vectors and those who make them.
 */
#pragma once
#include "../tvm/registry.h"

namespace tl {

/*! PTX ISA, ld and st: vectors have up to 16 bytes. */
inline constexpr int kMaxInstructionBits = 128;
/*! CUDA Programming Guide, "Device Memory Accesses": memory is cached in sectors of 32 bytes. */
inline constexpr int kSectorBits = 256;

/*!
 * Most bits of consecutive elements that a thread reads or writes in one go, as two instructions if
 * need be: a loop that converts 16-bit to 32-bit elements has 16 bytes on the narrow side, and the
 * wide side still fills whole sectors.
 */
inline int MaxAccessBits() {
  return PassConfigFlag("tl.disable_vectorize_256", false) ? kMaxInstructionBits : kSectorBits;
}

}  // namespace tl
