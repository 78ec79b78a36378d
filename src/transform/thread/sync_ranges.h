/*! Where barriers stand that order what ranges of threads apart do: others than these threads do
 * not wait. */
#pragma once
#include "sync_state.h"

namespace tl {

/*! The end of an earlier range that has all threads of the range of a later access, which stands
 * outside: its threads may meet there. nullptr if there is none. */
SyncNode* EndOfLargerRange(const Pending& earlier, const SyncNode& later);

/*! Threads of one range may wait for those of a range behind it. So a barrier of both that stood
 * between, at `place`, would deadlock: it moves in front of the first range behind the earlier
 * access. If that access is in one of the ranges, the barrier stays. */
const SyncNode* InFrontOfRanges(const SyncNode* place, const Pending& earlier);

}  // namespace tl
