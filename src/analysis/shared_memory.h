/*! The plan of dynamic shared memory, as it stands on AllocBuffer statements. */
#pragma once
#include "../tvm/build.h"

namespace tl {

/*! Buffers in the kernel's dynamic shared array: of scope `shared.dyn`, and mbarriers. */
inline bool IsInDynamicArray(const Var& buffer) {
  return ScopeOf(buffer) == "shared.dyn" || IsBarrier(buffer);
}

/*! Size of a shared buffer of constant extents. */
int64_t SharedBytes(const AllocBufferNode* alloc);

/*! Where PlanSharedMemory has put a buffer in the dynamic shared array. */
Expr SharedBegin(const AllocBufferNode* alloc);

}  // namespace tl
