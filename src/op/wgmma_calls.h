/*! Calls of MMAs of warp groups. */
#pragma once
#include "../tvm/find.h"
#include "intrinsics.h"

namespace tl {

/*! Annotation of a loop with MMAs: it has an iteration, which assumptions prove. */
inline constexpr const char* kLoopRuns = "tl.loop_runs";

/*! kWarpgroupArrive behind the end of a basic block: SeparateProducts. */
inline constexpr const char* kWarpgroupArriveApart = "tl.warpgroup_arrive_apart";

/*! Registers of a thread that a call of an MMA (IsWgmma) accumulates in: a warp group has
 * 64 x n elements, each thread n / 2 (PTX ISA, wgmma, "Register Fragments"). */
inline int64_t AccumulatorRegisters(const CallNode* product) {
  // <m, n, k, type of A, of B, of C, ..>
  const bool packed = ToString(product->args[5]) == "half_t";
  return ToInt(product->args[1]) / (packed ? 4 : 2);
}

inline bool HasWgmmas(const Stmt& s) {
  return HasNode<CallNode>(s, [](const CallNode* call) { return IsWgmma(call); });
}

}  // namespace tl
