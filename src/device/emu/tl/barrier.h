/*! Barriers of a block, a cluster and the grid, and collectives of a warp. */
#pragma once

#include <tl/error.h>

namespace tl {
namespace emu {

TL_RUNTIME void describe_barrier(const WaitPoint& self, Text& text) {
  const Barrier& barrier = static_cast<const Barrier&>(self);
  text.add("barrier %d: %u of %u threads have arrived", int(&barrier - barrier.block->barriers),
           barrier.arrived, barrier.expected ? barrier.expected : barrier.block->live);
}

TL_RUNTIME void describe_meeting(const WaitPoint& self, Text& text) {
  text.add("%s: %u of %u lanes of the warp have arrived", static_cast<const Meeting&>(self).name,
           self.arrived, self.expected);
}

TL_RUNTIME void describe_lane_set(const WaitPoint& self, Text& text) {
  text.add("%s: %u of %u lanes of the warp have arrived", static_cast<const LaneSet&>(self).name,
           self.arrived, self.expected);
}

TL_RUNTIME void describe_cluster_barrier(const WaitPoint& self, Text& text) {
  text.add("the barrier of the cluster: %u of %u threads have arrived", self.arrived,
           static_cast<const PhaseBarrier&>(self).live);
}

TL_RUNTIME void describe_grid_barrier(const WaitPoint& self, Text& text) {
  text.add("the barrier of the grid: %u of %u threads have arrived", self.arrived,
           static_cast<const PhaseBarrier&>(self).live);
}

/*! Arrives at a barrier for `threads` threads, or with 0 for all threads of the block that have not
 * exited; returns whether this one is the last. */
TL_RUNTIME bool barrier_arrive(Barrier& barrier, unsigned threads, Location where) {
  worker->current->where = where;
  if (threads % kWarpSize != 0) {
    fail(where, "barrier %d is to wait for %u threads. Use a multiple of %d",
         int(&barrier - barrier.block->barriers), threads, kWarpSize);
  }
  if (barrier.arrived == 0) {
    barrier.expected = threads;
  } else if (barrier.expected != threads) {
    fail(where,
         "barrier %d is to wait for %u threads, but threads wait there for %u (0: all). Use "
         "another barrier",
         int(&barrier - barrier.block->barriers), threads, barrier.expected);
  }
  check_release(barrier.clock);
  return ++barrier.arrived == (threads ? threads : barrier.block->live);
}

/*!
 * The instructions of a barrier are .aligned: all lanes of a warp execute the same one (PTX ISA,
 * bar). Those of a warp are held against the first one that came.
 */
TL_RUNTIME void check_aligned(Barrier& barrier, Location where) {
  Warp& warp = this_block().warps[worker->current->linear / kWarpSize];
  const int number = int(&barrier - barrier.block->barriers);
  if (warp.barrier_lanes == 0) {
    warp.barrier = &barrier;
    warp.barrier_where = where;
    ++barrier.partial_warps;
  } else if (warp.barrier != &barrier || warp.barrier_where.line != where.line ||
             __builtin_strcmp(warp.barrier_where.file, where.file) != 0) {
    fail(where,
         "the lanes of a warp diverge: this one is at barrier %d, others are at barrier %d in "
         "%s:%d. All lanes have to take the same way to a barrier of the block: let the condition "
         "be the same in a whole warp, or move the barrier out of it",
         number, int(warp.barrier - barrier.block->barriers), warp.barrier_where.file,
         warp.barrier_where.line);
  }
  if (++warp.barrier_lanes < unsigned(count_lanes(warp.live))) return;
  warp.barrier_lanes = 0;
  --barrier.partial_warps;
}

/*! All that a barrier counts have arrived. */
TL_RUNTIME void check_whole_warps(const Barrier& barrier, Location where) {
  if (barrier.partial_warps == 0) return;
  fail(where,
       "barrier %d has all %u threads that it counts, but not all lanes of their warps. All lanes "
       "of a warp have to come to it, and it has to count them all",
       int(&barrier - barrier.block->barriers), barrier.arrived);
}

TL_RUNTIME Barrier& find_barrier(int number, Location where) {
  if (number < 0 || number >= kBarriers) {
    fail(where, "barrier %d does not exist. Use 0 to %d", number, kBarriers - 1);
  }
  return this_block().barriers[number];
}

TL_RUNTIME void barrier_sync(int number, unsigned threads, Location where) {
  Barrier& barrier = find_barrier(number, where);
  check_aligned(barrier, where);
  if (barrier_arrive(barrier, threads, where)) {
    check_whole_warps(barrier, where);
    check_acquire(barrier.clock);
    release(barrier);
    maybe_stand_back();
  } else {
    wait_at(barrier);
  }
}

/*! The lanes of `mask` that the running thread's warp has and that have not exited: a collective
 * waits for no others (PTX ISA, shfl.sync, vote.sync). */
TL_RUNTIME LaneMask existing_lanes(LaneMask mask) {
  const Fiber* self = worker->current;
  return mask & self->block->warps[self->linear / kWarpSize].live;
}

/*! A lane of the running thread's warp reads one that takes no part. */
[[noreturn]] TL_RUNTIME void fail_for_absent_lane(unsigned lane, LaneMask mask, int from,
                                                  Location where) {
  const Fiber* self = worker->current;
  const Block& block = *self->block;
  const unsigned source = self->linear / kWarpSize * kWarpSize + unsigned(from);
  if (source >= block.threads) {
    fail(where,
         "lane %u reads lane %d of its warp, which does not exist: the block has %u threads. What "
         "it gets is undefined; let each lane read one that takes part",
         lane, from, block.threads);
  }
  if (block.fibers[source].exited) {
    fail(where,
         "lane %u reads lane %d of its warp, which has exited. What it gets is undefined; let all "
         "lanes that are read take part",
         lane, from);
  }
  fail(where,
       "lane %u reads lane %d of its warp, which the lanes %s that take part do not contain. "
       "What it gets is undefined; let the mask name it, and let it take part",
       lane, from, LaneText(mask).characters);
}

/*! A lane gives its value to those that read it; nobody may read one that takes no part. */
inline void check_source_lane(LaneMask mask, int from, Location where) {
  if (existing_lanes(mask) >> from & 1) return;
  fail_for_absent_lane(worker->current->linear % kWarpSize, mask, from, where);
}

/*! Runs the collective of lanes that have all arrived, and lets them go on. */
TL_RUNTIME void complete_set(Warp& warp, LaneSet& set) {
  if (set.collective) {
    void* lanes[kWarpSize] = {};
    for (int l = 0; l < kWarpSize; ++l) {
      if (set.present >> l & 1) lanes[l] = warp.set_arguments[l];
    }
    check_engine_begins();
    set.collective(lanes);
    check_engine_ends();
  }
  release(set);
}

/*!
 * Waits for the lanes of the warp in `mask`; the last one runs the collective on their arguments,
 * nullptr for other lanes. Sets of lanes that have none in common do not wait for each other.
 */
TL_RUNTIME void masked_sync(const char* name, LaneMask mask, Collective collective, void* argument,
                            Location where) {
  Fiber* self = worker->current;
  self->where = where;
  const unsigned lane = self->linear % kWarpSize;
  if (!(mask >> lane & 1)) {
    fail(where, "lane %u waits for the lanes %s of its warp, which it is not one of", lane,
         LaneText(mask).characters);
  }
  const LaneMask present = existing_lanes(mask);
  Warp& warp = self->block->warps[self->linear / kWarpSize];
  for (const LaneSet& other : warp.sets) {
    if (other.arrived == 0 || !(other.mask & mask)) continue;
    if (other.mask != mask) {
      fail(where,
           "lane %u waits for the lanes %s of its warp while others wait for %s at %s:%d. Let "
           "all lanes of a mask come to one place with the same mask",
           lane, LaneText(mask).characters, LaneText(other.mask).characters, other.where.file,
           other.where.line);
    }
    if (other.collective != collective) {
      fail(where,
           "lane %u waits at %s while others of its lanes %s wait at %s at %s:%d. Let all of them "
           "take the same way",
           lane, name, LaneText(mask).characters, other.name, other.where.file, other.where.line);
    }
  }
  LaneSet& set = warp.sets[lowest_lane(mask)];
  if (set.arrived == 0) {
    set.describe = describe_lane_set;
    set.scope = Scope::kWarp;
    set.name = name;
    set.where = where;
    set.mask = mask;
    set.collective = collective;
    set.present = present;
    set.expected = count_lanes(present);
  }
  warp.set_arguments[lane] = argument;
  // What lanes tell each other orders no memory accesses (PTX ISA, shfl.sync); the barrier does.
  if (!collective) check_release(set.clock);
  if (++set.arrived < set.expected) return wait_at(set);
  check_acquire(set.clock);
  complete_set(warp, set);
  maybe_stand_back();
}

/*! All lanes of a warp execute the instruction at this place together. */
TL_RUNTIME void meet_aligned(const char* name, Location where) {
  const auto same_place = [](void* const* lanes) {
    const Location* first = nullptr;
    for (int l = 0; l < kWarpSize; ++l) {
      const auto* at = static_cast<const Location*>(lanes[l]);
      if (!at) continue;
      if (!first) first = at;
      if (at->line == first->line && __builtin_strcmp(at->file, first->file) == 0) continue;
      fail(*at,
           "the lanes of a warp diverge: lane %d arrives here, others arrive in %s:%d. All lanes "
           "have to take the same way to a barrier of the block",
           l, first->file, first->line);
    }
  };
  masked_sync(name, kAllLanes, same_place, &where, where);
}

TL_RUNTIME void named_barrier_arrive(int number, unsigned threads, Location where) {
  if (threads == 0) fail(where, "barrier %d is to wait for no threads", number);
  meet_aligned("named_barrier_arrive", where);
  Barrier& barrier = find_barrier(number, where);
  if (barrier_arrive(barrier, threads, where)) {
    check_whole_warps(barrier, where);
    release(barrier);
  }
  maybe_stand_back();
}

inline void warp_barrier_sync(LaneMask mask, Location where) {
  masked_sync("sync_warp", mask, nullptr, nullptr, where);
}

/*! Ends the phase where all threads have arrived. */
TL_RUNTIME void end_phase_if_all(PhaseBarrier& barrier) {
  if (barrier.arrived == 0 || barrier.arrived != barrier.live) return;
  ++barrier.phase;
  check_phase_ends(barrier.clock, barrier.completed);
  release(barrier);
}

/*! What PTX calls the phases of the cluster's barrier: each thread arrives, then waits. */
TL_RUNTIME void cluster_barrier_arrive(bool releases, Location where) {
  Fiber* self = worker->current;
  self->where = where;
  PhaseBarrier& barrier = self->block->cluster->barrier;
  if (self->cluster_arrived) {
    fail(where, "a second arrival at the barrier of the cluster without tl::cluster_wait between");
  }
  self->cluster_arrived = true;
  if (releases) check_release(barrier.clock);
  self->cluster_phase = barrier.phase;
  ++barrier.arrived;
  end_phase_if_all(barrier);
  maybe_stand_back();
}

TL_RUNTIME void cluster_barrier_wait(Location where) {
  Fiber* self = worker->current;
  self->where = where;
  PhaseBarrier& barrier = self->block->cluster->barrier;
  if (!self->cluster_arrived) {
    fail(where, "tl::cluster_wait without tl::cluster_arrive before it");
  }
  if (self->cluster_phase == barrier.phase) wait_at(barrier);
  check_acquire(barrier.completed);
  self->cluster_arrived = false;
}

/*! Waits for all threads of the grid. */
TL_RUNTIME void grid_barrier_sync(Location where) {
  worker->current->where = where;
  if (!worker->cooperative) {
    fail(where, "tl::sync_grid in a launch that is not cooperative");
  }
  PhaseBarrier& barrier = worker->grid_barriers[this_rank()];
  const unsigned phase = barrier.phase;
  check_release(barrier.clock);
  ++barrier.arrived;
  end_phase_if_all(barrier);
  if (phase == barrier.phase) wait_at(barrier);
  check_acquire(barrier.completed);
}

/*! The lanes that wait for a lane of their warp that exits do so no longer. */
TL_RUNTIME void leave_warp(const Fiber& self) {
  Warp& warp = self.block->warps[self.linear / kWarpSize];
  const LaneMask lane = LaneMask(1) << self.linear % kWarpSize;
  warp.live &= ~lane;
  if (warp.barrier_lanes > 0 && warp.barrier_lanes == unsigned(count_lanes(warp.live))) {
    warp.barrier_lanes = 0;
    --self.block->barriers[warp.barrier - self.block->barriers].partial_warps;
  }
  for (LaneSet& set : warp.sets) {
    if (set.arrived == 0 || !(set.present & lane)) continue;
    set.present &= ~lane;
    if (set.arrived == --set.expected) complete_set(warp, set);
  }
}

/*! Takes the running thread out: barriers for all threads no longer wait for it. */
TL_RUNTIME void exit_thread() {
  Fiber* self = worker->current;
  check_exit();
  if (is_noted()) note_exit();
  self->exited = true;
  Block& block = *self->block;
  --block.live;
  leave_warp(*self);
  for (Barrier& barrier : block.barriers) {
    if (barrier.arrived > 0 && barrier.expected == 0 && barrier.arrived == block.live) {
      release(barrier);
    }
  }
  PhaseBarrier& cluster = block.cluster->barrier;
  --cluster.live;
  if (self->cluster_arrived && self->cluster_phase == cluster.phase) --cluster.arrived;
  end_phase_if_all(cluster);
  note_progress();
  hand_over(self);
}

/*!
 * Waits for all lanes of the warp; the last one runs the collective on the arguments of all. The
 * last warp of a block may lack lanes; a collective that is `partial` gets no
 * argument from those that it lacks, others fail there.
 */
TL_RUNTIME void collective_sync(const char* name, Collective collective, void* argument,
                                Location where, bool partial = false) {
  Fiber* self = worker->current;
  self->where = where;
  Meeting& meeting = self->block->warps[self->linear / kWarpSize].meeting;
  if (!partial && meeting.expected != kWarpSize) {
    fail(where, "%s needs %d lanes, but this warp has %u. Launch a multiple of %d threads", name,
         kWarpSize, meeting.expected, kWarpSize);
  }
  if (meeting.arrived == 0) {
    meeting.name = name;
    meeting.collective = collective;
    meeting.where = where;
  } else if (meeting.collective != collective || meeting.where.line != where.line) {
    fail(where,
         "the lanes of a warp diverge: this one is at %s, others are at %s in %s:%d. All lanes "
         "have to take "
         "the same way to it",
         name, meeting.name, meeting.where.file, meeting.where.line);
  }
  meeting.arguments[self->linear % kWarpSize] = argument;
  if (++meeting.arrived == meeting.expected) {
    check_engine_begins();
    collective(meeting.arguments);
    check_engine_ends();
    release(meeting);
    maybe_stand_back();
  } else {
    wait_at(meeting);
  }
}

/*! Lets the other threads go on, in a loop that waits for one of them. */
TL_RUNTIME void yield(Location where) {
  Fiber* self = worker->current;
  self->where = where;
  worker->ready.push(self);
  worker->schedule.pass_turn();
  if (++worker->fruitless > worker->patience) {
    switch_context(self->context, worker->scheduler);
  } else {
    hand_over(self);
  }
}

}  // namespace emu
}  // namespace tl
