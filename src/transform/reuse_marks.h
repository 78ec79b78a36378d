/*! What earlier passes tell PlanSharedMemory, behind which there is none of it. */
#pragma once

namespace tl {

/*! Attribute around statements that want nothing of what is in some shared buffers when they begin;
 * its node names them, Array<Var>. The same as an annotation of a loop. */
inline constexpr const char* kRewrites = "tl.rewrites";
/*! Annotation of a loop: a number that it shares with the loops of other roles which run the same
 * iterations. */
inline constexpr const char* kRoleLoop = "tl.role_loop";

}  // namespace tl
