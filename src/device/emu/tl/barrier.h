/*! Barriers of a block and collectives of a warp. */
#pragma once

#include <tl/error.h>

namespace tl {
namespace emu {

/*! Waits at a barrier for `threads` threads, or with 0 for all threads of the block that have not
 * exited. */
inline void barrier_sync(int number, unsigned threads, Location where) {
  if (number < 0 || number >= kBarriers) {
    fail(where, "barrier %d does not exist. Use 0 to %d", number, kBarriers - 1);
  }
  if (threads % kWarpSize != 0) {
    fail(where, "barrier %d is to wait for %u threads. Use a multiple of %d", number, threads,
         kWarpSize);
  }
  worker->current->where = where;
  WaitPoint& barrier = worker->barriers[number];
  if (barrier.arrived == 0) {
    barrier.expected = threads;
  } else if (barrier.expected != threads) {
    fail(where,
         "barrier %d is to wait for %u threads, but threads wait there for %u (0: all). Use "
         "another barrier",
         number, threads, barrier.expected);
  }
  if (++barrier.arrived == (threads ? threads : worker->live)) {
    release(barrier);
  } else {
    wait_at(barrier);
  }
}

/*! Takes the running thread out of the block: barriers for all threads no longer wait for it. */
inline void exit_thread() {
  Fiber* self = worker->current;
  self->exited = true;
  --worker->live;
  for (WaitPoint& barrier : worker->barriers) {
    if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived == worker->live) {
      release(barrier);
    }
  }
  hand_over(self);
}

/*! Waits for all lanes of the warp; the last one runs the collective on the arguments of all. */
inline void collective_sync(const char* name, Collective collective, void* argument,
                            Location where) {
  Fiber* self = worker->current;
  self->where = where;
  Warp& warp = worker->warps[self->linear / kWarpSize];
  WaitPoint& point = warp.point;
  if (point.arrived == 0) {
    point.name = name;
    warp.collective = collective;
    warp.where = where;
  } else if (warp.collective != collective || warp.where.line != where.line) {
    fail(where,
         "the lanes of a warp diverge: this one is at %s, others are at %s in %s:%d. All lanes "
         "have to take "
         "the same way to it",
         name, point.name, warp.where.file, warp.where.line);
  }
  warp.arguments[self->linear % kWarpSize] = argument;
  if (++point.arrived == point.expected) {
    collective(warp.arguments);
    release(point);
  } else {
    wait_at(point);
  }
}

}  // namespace emu
}  // namespace tl
