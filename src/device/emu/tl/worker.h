/*!
 * A worker and the blocks that it runs at the same time: those of one cluster, or those of the
 * whole grid where its threads wait for each other. One fiber for each thread.
 *
 * When no fiber is ready, the worker's own context goes on: the blocks are done, or their threads
 * wait for each other.
 */
#pragma once

#include <tl/schedule.h>
#include <tl/stacks.h>
#include <tl/text.h>

namespace tl {
namespace emu {

constexpr int kBarriers = 16;  // PTX ISA, bar
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxRanks = 64;

/*! What the last lane to arrive does for its warp, with the arguments of all lanes. */
using Collective = void (*)(void* const* arguments);

/*! A barrier of a block. It expects 0: all threads of the block that have not exited. */
struct Barrier : WaitPoint {
  const Block* block;
  unsigned partial_warps;  // of which some lanes have arrived and others not
};

/*! Where the lanes of a warp meet for a collective. */
struct Meeting : WaitPoint {
  const char* name;
  Collective collective;
  Location where;
  void* arguments[kWarpSize];
};

/*! Where some lanes of a warp meet. */
struct LaneSet : WaitPoint {
  const char* name;
  LaneMask mask, present;  // those of the mask that are waited for
  Location where;          // of the first lane
  Collective collective;   // nullptr for a barrier
};

struct Warp {
  Meeting meeting;
  LaneMask live;  // lanes that have not exited
  // Lanes that have arrived at a barrier of the block together, as long as some have not.
  unsigned barrier_lanes;
  const Barrier* barrier;
  Location barrier_where;
  AsyncQueue products;     // wgmma
  unsigned registers;      // of each thread, where setmaxnreg was executed
  bool registers_fenced;   // wgmma.fence was executed
  unsigned product_count;  // issued in this block, with the checksum of what they are
  uint64_t product_checksum;
  Location product_where;   // of the last one
  LaneSet sets[kWarpSize];  // by the lowest lane
  void* set_arguments[kWarpSize];
};

struct Mbarrier;

/*! Where all threads of a grid meet, or those of a cluster that have not exited. */
struct PhaseBarrier : WaitPoint {
  unsigned live;  // the threads that have to arrive
  unsigned phase;
  SyncClock completed;  // what was released in the phase before
};

/*! Blocks that see each other's shared memory. */
struct Cluster {
  bool running;
  unsigned gpu;  // the rank, of those that run the kernel, whose grid it is of
  uint3 index;
  Block* blocks;
  PhaseBarrier barrier;
};

/*! Its shared memory is kMaxStaticSharedBytes for static arrays, then the dynamic bytes. */
struct Block {
  uint3 index;
  unsigned rank;  // in its cluster
  Cluster* cluster;
  Fiber* fibers;
  unsigned threads, live;  // live ones have not exited
  int votes;
  unsigned char* shared;
  unsigned shared_bytes;  // dynamic ones
  unsigned static_bytes;  // of the static arrays that the kernel has declared
  SyncClock end;          // what its threads knew when they exited
  Barrier barriers[kBarriers];
  Warp warps[kMaxThreads / kWarpSize];

  unsigned char* dynamic_shared() const { return shared + kMaxStaticSharedBytes; }
};

struct Grid;

/*! All zeros when made. Its clusters that have been started come first. */
struct Worker {
  Fiber* current;  // nullptr while the worker's own context runs
  Queue ready;
  Context scheduler;
  Block* running;  // the block that blockIdx is that of
  Block* blocks;
  Cluster* clusters;
  Fiber* fibers;
  unsigned block_count;  // of the clusters that have been started
  unsigned cluster_blocks, block_threads, cluster_capacity;
  dim3 cluster;
  bool cooperative;
  PhaseBarrier grid_barriers[kMaxRanks];
  unsigned ranks;  // GPUs that run the kernel
  bool ranks_take_turns;
  unsigned rank_order[kMaxRanks];
  Mbarrier** mbarriers;  // of these blocks
  unsigned mbarrier_count, mbarrier_capacity;
  void (*invoke)(const void* closure);
  const void* closure;
  const char* kernel;
  unsigned shared_bytes;  // of a block, dynamic ones
  size_t bytes;           // with its arrays
  char* stacks;
  unsigned char* shared;
  Memory* memory;  // stacks and shared
  const Arguments* arguments;
  Text report;
  bool failed;
  Grid* grid;
  unsigned long first_cluster;  // of those that run
  Schedule schedule;
  Checker* checker;
  unsigned engines;         // that are at work, so that accesses are theirs
  unsigned long fruitless;  // yields since something happened that others may wait for
  unsigned long patience;   // how many of them before the worker looks for something else to do
  unsigned long turns;      // how often a thread has been given the processor, or kept it
  tl_timeline* asked;       // for what happens in one of its blocks, if that is one,
  tl_timeline* timeline;    // while it runs
  bool issues_late;         // operations wait for who asks, and nobody notes them
  bool idle;                // its threads poll, and nothing else is to do
  unsigned changes_seen, changes_confirmed;  // of the grid

  unsigned threads() const { return block_count * block_threads; }
  unsigned cluster_count() const { return block_count / cluster_blocks; }
  /*! Of blocks that may be started, whose memory is reserved. */
  unsigned block_capacity() const { return cluster_capacity * cluster_blocks; }
};

inline thread_local Worker* worker = nullptr;

inline bool is_noted() { return __builtin_expect(worker->timeline != nullptr, 0); }

/*! How threads and asynchronous work of the running launch are scheduled. */
inline Schedule& schedule() { return worker->schedule; }

/*! 64 random bits by the seed of the schedule. */
inline uint64_t random() { return worker->schedule.random(); }

/*! The block of the running thread. */
inline Block& this_block() { return *worker->current->block; }

/*! The rank that the running thread is of. */
inline unsigned this_rank() { return this_block().cluster->gpu; }

/*! Makes `next` the running fiber, for the switch to it that follows. */
inline void select(Fiber* next) {
  worker->current = next;
  if (next->block != worker->running) {
    worker->running = next->block;
    blockIdx = next->block->index;
  }
}

/*! Begins or ends to note what happens. */
inline void set_timeline(tl_timeline* timeline) {
  worker->timeline = timeline;
  worker->issues_late = !timeline && worker->schedule.moment == Moment::kLate;
}

void leave_idle();

/*! Barriers and collectives that an attempt of a loop that polls may have behind the poll. */
constexpr unsigned kAttempt = 64;

/*! The running thread has polled and found nothing new. */
inline void note_vain_poll() { worker->current->attempt = kAttempt; }

/*! Something happened that other threads may wait for. */
inline void note_progress() {
  worker->fruitless = 0;
  if (worker->current) worker->current->attempt = 0;
  if (__builtin_expect(worker->idle, 0)) leave_idle();
}

inline Fiber* next_ready() {
  if (__builtin_expect(worker->schedule.order != Order::kRoundRobin, 0)) {
    return worker->schedule.next(worker->ready);
  }
  return worker->ready.pop();
}

/*! Gives the processor away; returns when this fiber is ready and its turn comes. */
inline void hand_over(Fiber* self) {
  Fiber* next = next_ready();
  ++worker->turns;
  if (next) {
    if (next == self) return;
    select(next);
    switch_context(self->context, next->context);
  } else {
    switch_context(self->context, worker->scheduler);
  }
}

/*! Whether waits there are noted. Lanes that wait for lanes of their own warp are too many. */
inline bool is_told(const WaitPoint& point) { return point.scope != Scope::kWarp && is_noted(); }

inline void wait_at(WaitPoint& point) {
  Fiber* self = worker->current;
  const bool noted = is_told(point);
  if (noted) note_wait(point, Happening::kWait);
  self->waits_at = &point;
  if (self->attempt > point.attempt) point.attempt = self->attempt;
  point.waiting.push(self);
  hand_over(self);
  self->waits_at = nullptr;
  if (noted && is_noted()) note_wait(point, Happening::kGoOn);
}

/*! The threads that have met go on. That leads nowhere where one of them came with a poll in vain:
 * in a loop they would poll and meet for ever. */
inline void note_meeting(WaitPoint& point) {
  Fiber* self = worker->current;
  const unsigned attempt = self->attempt > point.attempt ? self->attempt : point.attempt;
  if (attempt == 0) return note_progress();
  point.attempt = 0;
  self->attempt = attempt - 1;
  unsigned others = 0;
  for (Fiber* other = point.waiting.first; other; other = other->next, ++others) {
    other->attempt = attempt - 1;
  }
  worker->fruitless += 1 + others / kWarpSize;
}

inline void release(WaitPoint& point) {
  point.arrived = 0;
  check_phase_ends(point);
  note_meeting(point);
  if (is_told(point) && point.waiting.first) note_release(point);
  worker->ready.take_all(point.waiting);
}

/*! In a random schedule, lets the running thread stand back where it could go on. */
inline void maybe_stand_back() {
  if (__builtin_expect(worker->schedule.order != Order::kRandom, 1) || random() >> 63) return;
  worker->ready.push(worker->current);
  hand_over(worker->current);
}

}  // namespace emu
}  // namespace tl
