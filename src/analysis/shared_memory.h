/*! The plan of dynamic shared memory, as it stands on AllocBuffer statements. */
#pragma once
#include "../tvm/build.h"

namespace tl {

/*! Buffers in the kernel's dynamic shared array: of scope `shared.dyn`, and mbarriers. */
inline bool IsInDynamicArray(const Var& buffer) {
  return ScopeOf(buffer) == "shared.dyn" || IsBarrier(buffer);
}

/*! Annotation of an AllocBuffer in the dynamic shared array: byte offset in the kernel's dynamic
 * shared array, an expression behind a tile whose extents the launch decides. */
inline constexpr const char* kSharedOffset = "tl.shared_offset";

/*! Size of a shared buffer of constant extents. */
int64_t SharedBytes(const AllocBufferNode* alloc);

/*! Annotation beside it of a tile whose extents the launch decides: the offset of its end, which is
 * that of all buffers allocated up to there. */
inline constexpr const char* kSharedEnd = "tl.shared_end";

/*! Where PlanSharedMemory has put a buffer in the dynamic shared array. */
Expr SharedBegin(const AllocBufferNode* alloc);

}  // namespace tl
