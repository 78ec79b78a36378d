/*! Waiting for MMAs of warp groups. */
#pragma once
#include "../tvm/build.h"

namespace tl {

inline constexpr const char* kWgmmaWait = "tl.tileop.wgmma_wait";

/*! At most `groups` of this warp's groups of MMAs are in flight. */
Stmt WaitForMmas(int64_t groups, const Span& span);
/*! Keeps the compiler from moving accesses of a thread's accumulators across this point. */
Stmt FenceAccumulator(const Var& registers, const Span& span);

}  // namespace tl
