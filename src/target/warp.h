/*! Numbers of threads that hardware works with, where no target is at hand to be asked. */
#pragma once
#include <cstdint>

namespace tl {

/*! The fewest threads of a warp of any target: ranges of threads are multiples of it. */
inline constexpr int64_t kLeastWarpThreads = 32;

}  // namespace tl
