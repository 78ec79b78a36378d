/*!
 * Whose an element of a tensor is. A tensor's extents and the place of a block's tile in it are
 * often symbols, so that its elements cannot be numbered as those of shared memory are. What is the
 * same for both accesses (the block's place, a common loop) is left out of each index; of the rest,
 * what threads and constant loops decide is evaluated, and what remains, times its factor, is taken
 * for any multiple of that: `t * 128 + thread`, t unknown, is named by `thread` modulo 128. Where
 * the loops of one access have too many points, the longest are unknown, too.
 */
#pragma once
#include "access_pair.h"

namespace tl {

/*! Whether each element that both accesses may touch is touched by one thread (one warp group, or
 * by the same access, as `between` says) only. False where that is not known. */
bool EachTensorElementHasOneOwner(const AccessPair& pair, const std::vector<Var>& opaque,
                                  SharedConflict::Between between, Analyzer* analyzer);

}  // namespace tl
