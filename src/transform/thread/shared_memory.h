/*! The plan of dynamic shared memory, as it stands on AllocBuffer statements. */
#pragma once
#include "../../tvm/build.h"

namespace tl {

/*! Buffers in the kernel's dynamic shared array: of scope `shared.dyn`, and mbarriers. */
inline bool IsInDynamicArray(const Var& buffer) {
  return ScopeOf(buffer) == "shared.dyn" || IsBarrier(buffer);
}

/*! Annotation of an AllocBuffer in the dynamic shared array: byte offset in the kernel's dynamic
 * shared array. */
inline constexpr const char* kSharedOffset = "tl.shared_offset";

/*! Size of a shared buffer; ValueError where its shape is symbolic. */
int64_t SharedBytes(const AllocBufferNode* alloc);

}  // namespace tl
