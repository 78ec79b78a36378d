/*!
 * Where a kernel waits for its asynchronous operations: one forward dataflow over its structured
 * control flow, for all queues of which threads count the groups.
 *
 * The state before a statement names the operations that may be in flight. An operation is an issue
 * and, for each loop around it, the number of iterations since: exact for few, "at least so many"
 * for more, unknown after the loop. For each operation the state has the number of groups that were
 * certainly committed since, and whether its sources have certainly been read. Where ways meet, the
 * state has the operations of both, and the lower number of each. Loops repeat until the state is
 * stable.
 *
 * A statement waits for the operations that conflict with it. Groups that were certainly committed
 * after the youngest of these stay in flight. An operation conflicts with a statement that
 *  - writes its source: until the source has been read;
 *  - accesses its destination: until it is complete. Two operations of one chain do not conflict
 *    there;
 *  - signals other threads (an arrival, an atomic operation that is not relaxed, a call of a
 *    function that is not known), or may leave a loop: until it is complete;
 *  - uses some shared memory first, outside of loops, which may have the bytes of its source: until
 *    the source has been read.
 * Two accesses of one buffer conflict unless their elements are provably disjoint. To operations
 * from outside, a range of threads is one statement. No operation of a range is in flight at its
 * end, and none of the kernel at the kernel's end. A source that several ranges use has to be read
 * at once, unless arrivals inside the block are signals to the queue: the ranges order their
 * accesses by means that are not seen here. What is written then is waited for as above.
 *
 * Seven waits for MMAs are earlier than that, since ptxas else lets no MMA of the kernel run beside
 * another one (docs/measurements.md):
 *  - registers that a statement writes while later MMAs run: right behind the next MMA, and so are
 *    those that the loop's other MMAs read, if the loop writes them (C7513);
 *  - an MMA of the iteration before that reads such registers: in front of what writes the
 * registers of an MMA with other accumulators (C7513);
 *  - accumulators of an earlier iteration: one wait for all that are in flight (C7514);
 *  - accumulators that a branch uses, and what follows it, too: in front of the branch (C7514);
 *  - what an iteration would begin with: at the end of the iteration before (C7515);
 *  - MMAs of a loop that may run no iteration: right behind it, in a branch that such a loop does
 *    not take, where the program has set the accumulators in front of the loop (C7515);
 *  - MMAs of one way of a branch: at its end, unless their accumulators are in flight on the other
 *    way, too (C7515).
 */
#pragma once
#include "structured_cfg.h"

namespace tl {

/*! Plans the waits of a kernel: sets `before`, `at_end` and `wait` of the nodes. */
void PlanAsyncWaits(CfgNode* kernel, Analyzer* analyzer);

/*! The planned waits in program order, a line each: `wgmma<1> before the statement at k.py:12: uses
 * c, which the gemm at k.py:10 writes`. */
Array<String> WaitTexts(const CfgNode& root);

}  // namespace tl
