/*! The plan of dynamic shared memory, as it stands on AllocBuffer statements. */
#pragma once
#include "../../tvm/build.h"

namespace tl {

/*! Annotation of an AllocBuffer of scope `shared.dyn`: byte offset in the kernel's dynamic shared
 * array. */
inline constexpr const char* kSharedOffset = "tl.shared_offset";

/*! Size of a shared buffer; ValueError where its shape is symbolic. */
int64_t SharedBytes(const AllocBufferNode* alloc);

}  // namespace tl
