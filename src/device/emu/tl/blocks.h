/*! Running the blocks of a worker: their shared memory, their threads as fibers, one set of blocks
 * after the other. */
#pragma once

#include <tl/barrier.h>
#include <tl/deadlock.h>
#include <tl/finish.h>
#include <tl/launch.h>
#include <tl/polling.h>
#include <tl/ranks.h>
#include <tl/timeline_notes.h>

namespace tl {
namespace emu {

// Unwritten shared memory reads as NaN, and what is written behind its end shows.
constexpr unsigned char kPoison = 0xff;

inline void fiber_main() {
  worker->invoke(worker->closure);
  exit_thread();
  __builtin_unreachable();
}

inline void prepare_warps(Block& block) {
  for (unsigned first = 0; first < block.threads; first += kWarpSize) {
    Warp& warp = block.warps[first / kWarpSize];
    const unsigned rest = block.threads - first;
    AsyncQueue products = warp.products;
    products.clear();
    warp = {};
    warp.products = products;
    warp.meeting.describe = describe_meeting;
    warp.meeting.scope = Scope::kWarp;
    warp.meeting.expected = rest < kWarpSize ? rest : kWarpSize;
    warp.live = rest < kWarpSize ? (LaneMask(1) << rest) - 1 : kAllLanes;
  }
}

inline unsigned role_of(const Block& block, unsigned thread) {
  const Schedule& schedule = worker->schedule;
  if (schedule.order != Order::kAdversarial) return 0;
  return unsigned(&block - worker->blocks) * schedule.roles_block +
         thread / schedule.role_threads();
}

inline void prepare_block(Block& block) {
  block.live = block.threads;
  block.static_bytes = 0;
  block.votes = 0;
  block.end = {};
  memset(block.dynamic_shared(), kPoison, block.shared_bytes);
  check_shared_begins(block.dynamic_shared(), block.shared_bytes);
  for (Barrier& barrier : block.barriers) {
    barrier = {};
    barrier.describe = describe_barrier;
    barrier.block = &block;
  }
  prepare_warps(block);
  for (unsigned i = 0; i < block.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    ThreadQueues queues = fiber.queues;
    queues.clear();
    fiber = {};
    fiber.queues = queues;
    fiber.block = &block;
    fiber.linear = i;
    fiber.role = role_of(block, i);
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    char* top = stack_top(worker->stacks, unsigned(&fiber - worker->fibers));
    make_context(fiber.context, top, kStackBytes / 2, fiber_main);
    worker->ready.push(&fiber);
  }
  check_block_begins(block);
}

inline void prepare_cluster(Cluster& cluster, uint3 index) {
  const dim3 size = worker->cluster;
  cluster.index = index;
  cluster.barrier = {};
  cluster.barrier.describe = describe_cluster_barrier;
  cluster.barrier.scope = Scope::kCluster;
  cluster.barrier.live = worker->cluster_blocks * worker->block_threads;
  for (unsigned rank = 0; rank < worker->cluster_blocks; ++rank) {
    Block& block = cluster.blocks[rank];
    block.index = {index.x * size.x + rank % size.x, index.y * size.y + rank / size.x % size.y,
                   index.z * size.z + rank / (size.x * size.y)};
    prepare_block(block);
  }
}

inline void check_shared_end(const Block& block) {
  for (unsigned i = block.shared_bytes; i < block.shared_bytes + kWatchedBytes; ++i) {
    if (block.dynamic_shared()[i] == kPoison) continue;
    worker->failed = true;
    Text& text = worker->report;
    text.add("block ");
    text.add(block.index);
    add_rank(text, block);
    text.add(" of %s wrote to byte %u of %u bytes of dynamic shared memory. Launch it with more",
             worker->kernel, i, block.shared_bytes);
    return;
  }
}

unsigned char* static_shared(unsigned bytes) {
  Block& block = this_block();
  if (block.static_bytes < bytes) {
    memset(block.shared + block.static_bytes, kPoison, bytes - block.static_bytes);
    check_shared_begins(block.shared + block.static_bytes, bytes - block.static_bytes);
    block.static_bytes = bytes;
  }
  return block.shared;
}

/*! What must be in order once a cluster's threads have exited. */
inline bool finish_cluster(Cluster& cluster) {
  cluster.running = false;
  finish_operations(cluster);
  for (unsigned rank = 0; rank < worker->cluster_blocks && !worker->failed; ++rank) {
    check_shared_end(cluster.blocks[rank]);
  }
  end_notes(cluster);
  if (!worker->failed) check_cluster_ends(cluster);
  return !worker->failed;
}

/*! Gives the worker's i-th cluster its part of the arrays and of the memory. */
inline void place_cluster(unsigned i) {
  Cluster& cluster = worker->clusters[i];
  cluster.blocks = worker->blocks + i * worker->cluster_blocks;
  for (unsigned rank = 0; rank < worker->cluster_blocks; ++rank) {
    Block& block = cluster.blocks[rank];
    const unsigned number = i * worker->cluster_blocks + rank;
    block.rank = rank;
    block.cluster = &cluster;
    block.fibers = worker->fibers + number * worker->block_threads;
    block.threads = worker->block_threads;
    block.shared = worker->shared + number * kSharedStride;
    block.shared_bytes = worker->shared_bytes;
    memset(block.dynamic_shared() + block.shared_bytes, kPoison, kWatchedBytes);
  }
}

/*! Memory for one more cluster at the same time; nullptr where there is none. */
inline Cluster* find_room() {
  const unsigned started = worker->cluster_count();
  for (unsigned i = 0; i < started; ++i) {
    Cluster& cluster = worker->clusters[i];
    if (cluster.running && cluster.barrier.live > 0) continue;
    if (cluster.running && !finish_cluster(cluster)) return nullptr;
    return &cluster;
  }
  const unsigned threads = (worker->block_count + worker->cluster_blocks) * worker->block_threads;
  if (started == worker->cluster_capacity || !worker->memory->use_stacks(threads)) return nullptr;
  worker->block_count += worker->cluster_blocks;
  place_cluster(started);
  return &worker->clusters[started];
}

/*! Makes the threads of cluster `number` ready. */
inline void start_cluster(Cluster& cluster, unsigned long number) {
  const unsigned long columns = gridDim.x / worker->cluster.x, rows = gridDim.y / worker->cluster.y;
  const ClusterPlace place = place_of(*worker, number);
  cluster.running = true;
  cluster.gpu = place.rank;
  worker->running = nullptr;  // a block there may have had another index
  worker->schedule.add_roles(worker->block_count);
  number = place.number;
  prepare_cluster(cluster, {unsigned(number % columns), unsigned(number / columns % rows),
                            unsigned(number / (columns * rows))});
  begin_notes(cluster);
}

/*! Starts one more cluster beside those whose threads poll. */
inline bool start_another() {
  Cluster* const room = find_room();
  const unsigned long number = room ? take_clusters(*worker->grid, 1) : kNone;
  if (number == kNone) return false;
  start_cluster(*room, number);
  worker->fruitless = 0;
  worker->patience = short_patience();
  return true;
}

inline unsigned live_threads() {
  unsigned live = 0;
  for (unsigned i = 0; i < worker->cluster_count(); ++i) live += worker->clusters[i].barrier.live;
  return live;
}

/*! Runs the threads that have been made ready to their ends. */
inline void run_threads() {
  for (;;) {
    if (Fiber* next = next_ready()) {
      select(next);
      ++worker->turns;
      switch_context(worker->scheduler, next->context);
      worker->current = nullptr;
    }
    if (worker->failed || live_threads() == 0) break;
    const bool polls = worker->fruitless > worker->patience;
    if (polls && start_another()) continue;
    if (worker->failed) break;
    const Outlook outlook = polls ? look_around() : Outlook::kDeadlock;
    if (outlook == Outlook::kGoOn) continue;
    if (outlook == Outlook::kDeadlock) report_deadlock();
    return;
  }
  for (unsigned i = 0; i < worker->cluster_count() && !worker->failed; ++i) {
    if (worker->clusters[i].running) finish_cluster(worker->clusters[i]);
  }
}

inline void report_no_memory() {
  worker->failed = true;
  Text& text = worker->report;
  text.add("%s: no memory for the threads that run at the same time", worker->kernel);
}

/*! Runs `count` clusters at the same time, `first` and following; whether all came to their ends.
 */
inline bool run_clusters(unsigned long first, unsigned long count) {
  worker->ready = {};
  worker->running = nullptr;
  worker->first_cluster = first;
  for (unsigned r = 0; r < worker->ranks; ++r) {
    PhaseBarrier& barrier = worker->grid_barriers[r];
    barrier = {};
    barrier.describe = describe_grid_barrier;
    barrier.scope = Scope::kGrid;
    barrier.live = unsigned(count) / worker->ranks * worker->cluster_blocks * worker->block_threads;
  }
  worker->schedule.begin(first);
  for (unsigned long i = 0; i < count; ++i) {
    Cluster* const room = find_room();
    if (!room) {
      report_no_memory();
      return false;
    }
    start_cluster(*room, first + i);
  }
  worker->fruitless = 0;
  worker->patience = short_patience();
  run_threads();
  return !worker->failed && live_threads() == 0;
}

}  // namespace emu
}  // namespace tl
