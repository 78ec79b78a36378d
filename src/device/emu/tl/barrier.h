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

/*! Waits for the lanes of the warp in `mask` that the block has. One set of lanes at a time. */
inline void warp_barrier_sync(uint32_t mask, Location where) {
  Fiber* self = worker->current;
  self->where = where;
  const unsigned first = self->linear / kWarpSize * kWarpSize, lane = self->linear - first;
  if (!(mask >> lane & 1)) {
    fail(where, "lane %u waits for the lanes %08x of its warp, which it is not one of", lane, mask);
  }
  const unsigned lanes = worker->threads - first;
  if (lanes < kWarpSize) mask &= (uint32_t(1) << lanes) - 1;
  Warp& warp = worker->warps[self->linear / kWarpSize];
  if (warp.barrier.arrived == 0) {
    warp.barrier_mask = mask;
    warp.barrier.expected = __builtin_popcount(mask);
  } else if (warp.barrier_mask != mask) {
    fail(where, "lane %u waits for the lanes %08x of its warp while others wait for %08x", lane,
         mask, warp.barrier_mask);
  }
  if (++warp.barrier.arrived == warp.barrier.expected) {
    release(warp.barrier);
  } else {
    wait_at(warp.barrier);
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

/*!
 * Waits for all lanes of the warp; the last one runs the collective on the arguments of all. The
 * last warp of a block may have fewer than 32 lanes; a collective that is `partial` gets no
 * argument from those that it lacks, others fail there.
 */
inline void collective_sync(const char* name, Collective collective, void* argument, Location where,
                            bool partial = false) {
  Fiber* self = worker->current;
  self->where = where;
  Warp& warp = worker->warps[self->linear / kWarpSize];
  WaitPoint& point = warp.point;
  if (!partial && point.expected != kWarpSize) {
    fail(where, "%s needs %d lanes, but this warp has %u. Launch a multiple of %d threads", name,
         kWarpSize, point.expected, kWarpSize);
  }
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
