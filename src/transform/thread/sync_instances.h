/*!
 * Ranges that stand for several warp groups (T.ws(.., each=True)), as ThreadSync looks at them.
 *
 * In the program such a range stands once, with the numbers of the first group's threads.
 * ThreadSync asks whose access of which element comes behind whose, so it looks at a branch for
 * each group, with that group's numbers. The branches have one plan: what is marked in one of them
 * stands in all.
 */
#pragma once
#include "../../target/target.h"
#include "sync_tree.h"

namespace tl {

/*! The kernel with a branch for each warp group. Refuses (ValueError) ranges that stand for several
 * if the target has no named barriers. */
Stmt WithAllInstances(const Stmt& kernel, const Target& target);

/*! Lets the branches of one range have the plan of the first one. */
void ShareInstancePlans(SyncNode* root);

/*! The inverse of WithAllInstances: the first branch stands for all. */
Stmt WithOneInstance(const Stmt& kernel);

}  // namespace tl
