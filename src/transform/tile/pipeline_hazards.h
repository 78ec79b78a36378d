/*!
 * Whether a schedule keeps the dependences of a loop, and how many versions of a buffer it takes.
 *
 * An instance (statement i, iteration k) runs in step k + stage(i), at the place order(i). Two
 * instances that touch one buffer, one of them writing, have to run in the order of the program,
 * unless each iteration has its own version of the buffer: then that holds within an iteration, and
 * for two iterations that share a version.
 */
#pragma once
#include "pipeline.h"

namespace tl {

/*! The versions that `buffer` needs; `is_read_outside` tells that what is left in it after the loop
 * counts. Throws ValueError with both statements where the order within an iteration is not kept,
 * and where it takes several versions of what has one only: memory that is not shared, or of which
 * more is read than what the same iteration has written. */
int64_t VersionsOf(const Pipeline& p, const Var& buffer, const Views& views, bool is_read_outside);

/*! Every dependence is kept with one version of each buffer. */
bool NeedsNoVersions(const Pipeline& p);

}  // namespace tl
