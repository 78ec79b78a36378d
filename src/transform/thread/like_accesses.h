/*!
 * Accesses that are alike: of the same elements by the same threads, in loop nests of their own
 * that stand in one sequence, such as those of
 *
 *   for r in range(32): S[r, tx] = F[r]
 *   for r in range(32): S[r, tx] = G[r]
 *
 * What conflicts with one conflicts with the other, and a barrier for that has one place.
 */
#pragma once
#include "sync_tree.h"

namespace tl {

/*! Sets `like` and `nest` of the accesses of a tree. */
void LinkLikeAccesses(SyncNode* root);

}  // namespace tl
