/*!
 * Operations that an engine performs some time after a thread has issued them: copies, products of
 * matrices, arrivals that follow them.
 *
 * Each waits in the queue of what announces its completion: the thread's groups, a warp's groups,
 * or an mbarrier. A program must be right whenever its operations are performed, so that the moment
 * is chosen by the schedule: at once, as late as a wait allows, or either by chance.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <tl/check.h>
#include <tl/location.h>
#include <tl/timeline.h>

namespace tl {
namespace emu {

/*! One operation in a queue; its `bytes` bytes of arguments are behind it. */
struct AsyncOperation {
  void (*perform)(AsyncOperation& operation);
  Location where;  // of the statement that issued it
  uint32_t group;
  uint32_t bytes;

  void* arguments() { return this + 1; }
};

/*!
 * Operations in the order of their issue, in groups. All zeros when made.
 *
 * A group ends where the thread commits it, and where an mbarrier is to hear of the operations so
 * far: waits count commits, so that the queue knows where the last ones were.
 */
struct AsyncQueue {
  static constexpr uint32_t kKnownCommits = 8;

  char* items;
  uint32_t first, last, capacity;
  uint32_t open_group;
  uint32_t commits, ends[kKnownCommits];  // groups before ends[i % kKnownCommits] are in commit i

  bool empty() const { return first == last; }

  const AsyncOperation& front() const { return *reinterpret_cast<AsyncOperation*>(items + first); }

  /*! Adds an operation with `bytes` bytes for its arguments, of a group that is not older than
   * those of the others; nullptr where there is no memory. */
  AsyncOperation* push(void (*perform)(AsyncOperation&), uint32_t bytes, Location where,
                       uint32_t group) {
    bytes = (bytes + 7) / 8 * 8;
    const uint32_t all = sizeof(AsyncOperation) + bytes;
    if (capacity - last < all && !make_room(all)) return nullptr;
    auto* operation = reinterpret_cast<AsyncOperation*>(items + last);
    *operation = {perform, where, group, bytes};
    last += all;
    return operation;
  }

  /*! Operations that follow are in another group, though not behind a commit. */
  void begin_group() { ++open_group; }

  void commit() {
    begin_group();
    ends[commits++ % kKnownCommits] = open_group;
  }

  /*! Performs the operations of all but the `allowed` newest commits. */
  void wait(uint32_t allowed) { perform_before(done(allowed)); }

  /*! Performs those of the groups before this one. */
  void perform_before(uint32_t group) {
    const bool noted = is_noted();
    while (!empty() && front().group < group) perform_first(noted);
  }

  void perform_all() {
    if (empty()) return;
    const bool noted = is_noted();
    while (!empty()) perform_first(noted);
  }

  /*! Groups before this one are complete when at most `allowed` commits may not be. A commit has
   * at least one group, which is all that is known of older ones. */
  uint32_t done(uint32_t allowed) const {
    if (commits <= allowed) return 0;
    const uint32_t newest = commits - 1 - allowed;
    return allowed < kKnownCommits ? ends[newest % kKnownCommits] : newest + 1;
  }

  void clear() { first = last = open_group = commits = 0; }

  void free_items() { free(items); }

 private:
  // An operation may issue others, but not into its own queue, which would move its arguments.
  void perform_first(bool noted) {
    auto* operation = reinterpret_cast<AsyncOperation*>(items + first);
    first += sizeof(AsyncOperation) + operation->bytes;
    if (empty()) first = last = 0;
    if (noted) note_done(*this, operation->where);
    check_engine_begins();
    operation->perform(*operation);
    check_engine_ends();
  }

  bool make_room(uint32_t bytes) {
    if (first > 0) {
      __builtin_memmove(items, items + first, last - first);
      last -= first;
      first = 0;
    }
    if (last < capacity / 2 && capacity - last >= bytes) return true;
    uint32_t wanted = capacity ? 2 * capacity : 4096;
    while (wanted - last < bytes) wanted *= 2;
    void* grown = realloc(items, wanted);
    if (!grown) return false;
    items = static_cast<char*>(grown);
    capacity = wanted;
    return true;
  }
};

/*! The queues of one thread. A bulk copy from shared memory reads first and writes later. */
struct ThreadQueues {
  AsyncQueue copies, bulk_reads, bulk_writes;

  void clear() {
    copies.clear();
    bulk_reads.clear();
    bulk_writes.clear();
  }

  void free_items() {
    copies.free_items();
    bulk_reads.free_items();
    bulk_writes.free_items();
  }
};

}  // namespace emu
}  // namespace tl
