/*!
 * Where a kernel waits for its asynchronous operations: one forward dataflow over the structured
 * control flow for all queues that count groups.
 *
 * What is known in front of a statement is, for each operation that may be in flight there, the
 * number of groups that were surely committed since, and whether its sources have surely been read.
 * An operation is an issue with the number of iterations that each loop around it has gone on
 * since: exact up to some, "at least so many" beyond, unknown behind the loop. Ways that meet join:
 * all operations of both, the lower number of each. Loops repeat until nothing is new.
 *
 * A statement waits for the operations that conflict with it; groups that were surely committed
 * since the youngest of these stay in flight. It conflicts with one
 *  - whose source it writes: until it has read;
 *  - whose destination it accesses: until it is complete. Operations of one chain do not conflict
 *    there;
 *  - that has to be complete before the statement's signal to other threads, or before it leaves a
 *    loop;
 *  - that may still read, where the statement is the first one to use some shared memory, outside
 * of loops: it may have the bytes of a source. Accesses of one buffer conflict unless their
 * elements are surely others. A range of threads is one statement to operations from outside of it,
 * and has none of its own in flight at its end; the kernel has none at its end.
 */
#pragma once
#include "structured_cfg.h"

namespace tl {

/*! Plans the waits of a kernel: sets `before`, `at_end` and `wait` of the nodes. `arrivals_tell`:
 * an arrival at an mbarrier is as good as a signal to all threads. */
void PlanAsyncWaits(CfgNode* kernel, bool arrivals_tell, Analyzer* analyzer);

/*! The planned waits in program order, a line each: `wait wgmma<1> before copy at k.py:12: uses c,
 * which the gemm at k.py:10 writes`. */
Array<String> WaitTexts(const CfgNode& root);

}  // namespace tl
