/*!
 * The registers that the warp groups of a block hold, as setmaxnreg moves them: those that the
 * program's T.set_max_nreg moves, and those that the compiler moves to roles.
 *
 * PTX ISA, setmaxnreg: what `.dec` gives back goes to a pool of the block, and `.inc` waits until
 * the pool has what it asks for.
 */
#pragma once
#include "../../tvm/build.h"

namespace tl {

/*! Refuses (ValueError) a kernel whose warp groups wait for registers for ever, in whatever order
 * they go on: `start` is what each thread begins with. Branches and loops of which the compiler
 * cannot tell who runs them are taken as giving back, and as asking for nothing. */
void RefuseEndlessWaits(const Stmt& kernel, int64_t start);

}  // namespace tl
