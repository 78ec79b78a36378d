/*! Barriers after some threads of a block may have left the kernel (T.thread_return). */
#pragma once
#include "sync_tree.h"
#include "thread_subset.h"

namespace tl {

/*! Refuses (ValueError) a barrier, the program's or a planned one, of threads some of which may
 * have left before. */
void RefuseBarriersWithoutAll(const SyncNode& root, ThreadSubsets* subsets);

}  // namespace tl
