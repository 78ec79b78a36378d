/*! What copies by TMA are told. */
#pragma once

#include <tl/platform.h>

/*!
 * Describes a tensor in global memory and the box of it that one copy moves; the host makes it, a
 * kernel takes it as `const __grid_constant__ CUtensorMap`. CUDA Driver API, Tensor Map Object
 * Management.
 */
struct alignas(64) CUtensorMap {
  uint64_t opaque[16];
};

namespace tl {

/*! Cache policies of PTX ISA, createpolicy, as constants: what the L2 cache does with the bytes. */
inline constexpr uint64_t evict_normal = 0x1000000000000000;
inline constexpr uint64_t evict_first = 0x12f0000000000000;
inline constexpr uint64_t evict_last = 0x14f0000000000000;

}  // namespace tl
