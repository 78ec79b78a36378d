/*! Which tensors a kernel touches in every launch. */
#pragma once
#include <unordered_set>

#include "../tvm/build.h"

namespace tl {

/*!
 * The buffers that some thread of a kernel (a nest of `thread_extent` attributes) loads or stores
 * whatever its arguments are. Of accesses behind a condition these are those whose condition is of
 * numbers of threads, blocks and iterations alone, which lets some of them through. Calls that
 * move data do not count, nor does anything in a kernel that threads may leave early, or whose
 * number of blocks the call decides.
 */
std::unordered_set<const Object*> AlwaysTouched(const Stmt& kernel);

}  // namespace tl
