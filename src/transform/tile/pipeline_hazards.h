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

/*!
 * The versions that `buffer` needs. `is_read_outside`: code behind the loop reads what is left.
 *
 * Throws ValueError with both statements if the schedule does not keep the order within an
 * iteration. It also throws if the buffer needs several versions and can have one only: it is not
 * shared memory, or an iteration reads what another one has written.
 */
int64_t VersionsOf(const Pipeline& p, const Var& buffer, const Views& views, bool is_read_outside);

/*! Every dependence is kept with one version of each buffer. */
bool NeedsNoVersions(const Pipeline& p);

}  // namespace tl
