/*!
 * What the workers of a launch have in common: which clusters are still to be run, which failed,
 * and whether one of the workers may still do something that the threads of others poll for.
 */
#pragma once

#include <pthread.h>
#include <tl/worker.h>

namespace tl {
namespace emu {

/*! Whether what the program does may depend on the order of its blocks: by default they then run
 * one after the other. */
inline bool ordered_blocks = false;

constexpr unsigned long kNone = ~0ul;

enum class Outlook { kGoOn, kGiveUp, kDeadlock };

struct Grid {
  unsigned long clusters, next;  // all of them, and the first that no worker has taken
  unsigned long failed;          // the lowest that failed, or kNone
  pthread_mutex_t mutex;         // for all but next
  unsigned working, idle;        // workers; an idle one's threads poll in vain
  unsigned changes;              // how often these two have changed
  unsigned confirmed;            // idle workers that since then saw nothing happen
  Outlook outlook;               // once all of them have
};

/*! The first of the next `count` clusters, or kNone. Clusters behind one that failed are not run.
 */
inline unsigned long take_clusters(Grid& grid, unsigned long count) {
  if (__atomic_load_n(&grid.next, __ATOMIC_RELAXED) >= grid.clusters) return kNone;
  const unsigned long first = __atomic_fetch_add(&grid.next, count, __ATOMIC_RELAXED);
  const bool runs =
      first < grid.clusters && first < __atomic_load_n(&grid.failed, __ATOMIC_RELAXED);
  return runs ? first : kNone;
}

inline void note_failure(Grid& grid, unsigned long cluster) {
  pthread_mutex_lock(&grid.mutex);
  if (cluster < grid.failed) __atomic_store_n(&grid.failed, cluster, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&grid.mutex);
}

inline void count_workers(Grid& grid, int working, int idle) {
  pthread_mutex_lock(&grid.mutex);
  grid.working += unsigned(working);
  grid.idle += unsigned(idle);
  grid.confirmed = 0;
  ++grid.changes;
  pthread_mutex_unlock(&grid.mutex);
}

TL_RUNTIME void leave_idle() {
  worker->idle = false;
  count_workers(*worker->grid, 1, -1);
}

/*! Polls in a row that find nothing new before a worker looks for something else to do: each of
 * its threads has had its turn, or most likely so in a random order. */
inline unsigned long short_patience() {
  const unsigned long turns = worker->schedule.order == Order::kRandom ? 16 : 4;
  return turns * worker->threads() + 1024;
}

/*!
 * For a worker whose threads have polled in vain. Another one may still write what they poll for.
 * Where all workers are idle nobody does, unless a loop counts its attempts and goes on, so that
 * each has to poll many times more while the others remain idle.
 */
inline Outlook look_around() {
  // Tens of milliseconds; each poll costs more under the checks.
  constexpr unsigned long kManyPolls = TL_EMU_CHECKS ? 1ul << 15 : 1ul << 22;
  Grid& grid = *worker->grid;
  if (!worker->idle) {
    worker->idle = true;
    count_workers(grid, -1, 1);
  }
  pthread_mutex_lock(&grid.mutex);
  const bool others_work = grid.working > 0;
  if (others_work || worker->changes_seen != grid.changes) {
    worker->changes_seen = grid.changes;
    worker->fruitless = 0;
    worker->patience = short_patience();
  } else if (worker->patience < kManyPolls) {
    worker->patience = kManyPolls;
  } else {
    worker->fruitless = 0;
    const bool again = worker->changes_confirmed == grid.changes;
    worker->changes_confirmed = grid.changes;
    if (!again && ++grid.confirmed == grid.idle && grid.outlook == Outlook::kGoOn) {
      grid.outlook = grid.failed == kNone ? Outlook::kDeadlock : Outlook::kGiveUp;
    }
  }
  const Outlook outlook = grid.outlook;
  pthread_mutex_unlock(&grid.mutex);
  if (others_work) sched_yield();
  return outlook;
}

}  // namespace emu
}  // namespace tl
