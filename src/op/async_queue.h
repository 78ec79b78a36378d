/*! Asynchronous queues as data: how their operations are grouped, and how a thread waits for them.
 */
#pragma once
#include <limits>

#include "../tvm/attrs.h"
#include "intrinsics.h"

namespace tl {

/*! A queue of which a thread counts the groups. They complete in the order of their commits, so a
 * wait names the number of youngest groups that may still be in flight. */
struct AsyncQueueRow {
  AsyncQueue queue;
  const char* name;
  /*! `wait(n, ..)`: until at most n groups are in flight. */
  const char* wait;
  /*! The largest n that the wait takes. */
  int64_t max_pending;
  /*! The wait can end where the operations have read their sources, before their destinations are
   * written. */
  bool waits_for_reads;
  /*! Operations have to be complete before a signal to so many threads. */
  ThreadScope completes_before;
};

inline constexpr int64_t kNoMaxPending = std::numeric_limits<int64_t>::max();

inline constexpr AsyncQueueRow kAsyncQueues[] = {
    {AsyncQueue::kCpAsync, "cp.async", kCpAsyncWait, kNoMaxPending, false, ThreadScope::kLanes},
    {AsyncQueue::kTmaStore, "TMA store", kTmaStoreWait, kNoMaxPending, true, ThreadScope::kCluster},
    // PTX ISA, wgmma.wait_group: 0 to 7.
    {AsyncQueue::kWgmma, "wgmma", kWarpgroupWait, 7, false, ThreadScope::kLanes}};

/*! The row of a queue, nullptr for one that counts no groups. */
constexpr const AsyncQueueRow* RowOf(AsyncQueue queue) {
  for (const AsyncQueueRow& row : kAsyncQueues) {
    if (row.queue == queue) return &row;
  }
  return nullptr;
}

}  // namespace tl
