/*! The workers of a launch, one for each OS thread: their memory, and the clusters they take. */
#pragma once

#include <time.h>
#include <tl/blocks.h>
#include <tl/fault.h>
#include <tl/ranks.h>

namespace tl {
namespace emu {

// Each stack and each page that guards one is a mapping, of which Linux gives a process 65530.
constexpr unsigned long kMaxThreadsAtOnce = 30000;

inline unsigned long volume(dim3 d) { return static_cast<unsigned long>(d.x) * d.y * d.z; }

/*! The clusters of all ranks. */
inline unsigned long all_clusters(const Launch& launch) {
  return volume(launch.grid) / volume(launch.cluster) * launch.ranks;
}

/*! How many clusters run at the same time. */
inline unsigned long clusters_at_once(const Launch& launch) {
  if (launch.cooperative) return all_clusters(launch);
  return take_turns(launch.machine, launch.ranks) ? launch.ranks : 1;
}

/*! How many clusters a worker has room for: those that run at the same time anyway, and those that
 * it starts because the threads of others poll. */
inline unsigned cluster_capacity(const Launch& launch) {
  const unsigned long least = clusters_at_once(launch);
  if (!ordered_blocks || launch.static_arrays) return unsigned(least);
  const unsigned long room = kMaxThreadsAtOnce / (volume(launch.cluster) * volume(launch.block));
  const unsigned long all = all_clusters(launch);
  const unsigned long most = room < all ? room : all;
  return unsigned(most < least ? least : most);
}

/*! Where the arrays of a worker are, behind it. */
struct Layout {
  size_t bytes;

  /*! The offset of `count` things of `size` bytes each. */
  size_t add(size_t count, size_t size) {
    const size_t at = (bytes + 63) / 64 * 64;
    bytes = at + count * size;
    return at;
  }
};

/*! A worker for `capacity` clusters at the same time, or nullptr where there is no memory. */
inline Worker* make_worker(const Launch& launch, unsigned capacity) {
  const unsigned cluster_blocks = unsigned(volume(launch.cluster));
  const unsigned block_threads = unsigned(volume(launch.block));
  const unsigned blocks = capacity * cluster_blocks, threads = blocks * block_threads;
  Schedule schedule = {};
  schedule.order = Order(launch.machine.order);
  schedule.moment = Moment(launch.machine.moment);
  schedule.seed = launch.machine.seed;
  if (schedule.order == Order::kAdversarial) {
    schedule.roles_block = (block_threads - 1) / schedule.role_threads() + 1;
  }
  const unsigned roles = blocks * schedule.roles_block;
  Layout layout{sizeof(Worker)};
  const size_t fibers_at = layout.add(threads, sizeof(Fiber));
  const size_t blocks_at = layout.add(blocks, sizeof(Block));
  const size_t clusters_at = layout.add(capacity, sizeof(Cluster));
  const size_t roles_at = layout.add(roles, sizeof(Queue));
  const size_t turns_at = layout.add(roles, sizeof(unsigned));
  const size_t pool_at = layout.add(schedule.order == Order::kRandom ? threads : 0, sizeof(Fiber*));
  // One more than the threads: the stack of the fault handlers.
  Memory* const memory = take_memory(launch.machine.kept, threads + 1, blocks);
  char* const base = memory ? static_cast<char*>(map_zeros(layout.bytes)) : nullptr;
  if (!base) {
    if (memory) release_memory(memory);
    return nullptr;
  }
  Worker* const made = reinterpret_cast<Worker*>(base);
  made->bytes = layout.bytes;
  made->fibers = reinterpret_cast<Fiber*>(base + fibers_at);
  made->blocks = reinterpret_cast<Block*>(base + blocks_at);
  made->clusters = reinterpret_cast<Cluster*>(base + clusters_at);
  schedule.roles = reinterpret_cast<Queue*>(base + roles_at);
  schedule.turns = reinterpret_cast<unsigned*>(base + turns_at);
  schedule.pool = reinterpret_cast<Fiber**>(base + pool_at);
  made->schedule = schedule;
  made->memory = memory;
  made->stacks = memory->stacks;
  made->shared = memory->shared;
  made->cluster = launch.cluster;
  made->cluster_blocks = cluster_blocks;
  made->cluster_capacity = capacity;
  made->block_threads = block_threads;
  made->shared_bytes = launch.shared_bytes;
  made->cooperative = launch.cooperative;
  made->invoke = launch.invoke;
  made->closure = launch.closure;
  made->arguments = launch.arguments;
  made->kernel = launch.kernel;
  made->ranks = launch.ranks;
  made->asked = launch.machine.timeline;
  made->issues_late = schedule.moment == Moment::kLate;
  order_ranks(*made, launch.machine);
  return made;
}

/*! The same where there is not memory for more than have to run at the same time. */
inline Worker* make_worker(const Launch& launch) {
  Worker* made = make_worker(launch, cluster_capacity(launch));
  return made ? made : make_worker(launch, unsigned(clusters_at_once(launch)));
}

inline void release_worker(Worker* mine, void** kept) {
  for (unsigned i = 0; i < mine->threads(); ++i) mine->fibers[i].queues.free_items();
  for (unsigned b = 0; b < mine->block_count; ++b) {
    for (Warp& warp : mine->blocks[b].warps) warp.products.free_items();
  }
  free_mbarriers(*mine);
  free(mine->report.characters);
  keep_memory(kept, mine->memory);
  munmap(mine, mine->bytes);
}

/*! A launch while it runs. */
struct Run {
  const Launch& launch;
  Grid grid;
  Text report;
};

/*! An OS thread that helps. */
struct Helper {
  pthread_t thread;
  Run* run;
  Worker* worker;
};

inline unsigned long now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<unsigned long>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

/*! Takes clusters until none is left or one fails; after the first of them calls `then`. */
template <typename Then>
void run_clusters_of(Run& run, Then then) {
  const unsigned long step = clusters_at_once(run.launch);
  for (bool first = true;; first = false) {
    const unsigned long number = take_clusters(run.grid, step), begin = first ? now() : 0;
    if (number == kNone || !run_clusters(number, step)) break;
    if (first) then(now() - begin);
  }
  if (worker->failed) note_failure(run.grid, worker->first_cluster);
  count_workers(run.grid, worker->idle ? 0 : -1, worker->idle ? -1 : 0);
}

/*! Runs clusters in `mine`, with fault handlers that have a stack to run on. */
template <typename Then>
void run_worker(Worker* mine, Run& run, Then then) {
  stack_t own = {}, previous = {};
  own.ss_sp = mine->stacks + (mine->memory->stack_count - 1) * stack_stride() + page_bytes();
  own.ss_size = kStackBytes;
  sigaltstack(&own, &previous);
  mine->grid = &run.grid;
  worker = mine;
  gridDim = run.launch.grid;
  blockDim = run.launch.block;
  if (check_launch_begins(*mine, *run.launch.arguments)) {
    const Watchdog watchdog(run.launch.machine.patience);
    run_clusters_of(run, then);
  } else {
    report_no_memory();
  }
  check_launch_ends(*mine, mine->report);
  if (mine->failed) note_failure(run.grid, mine->first_cluster);
  worker = nullptr;
  sigaltstack(&previous, nullptr);
}

inline void* help(void* argument) {
  Helper& helper = *static_cast<Helper*>(argument);
  run_worker(helper.worker, *helper.run, [](unsigned long) {});
  return nullptr;
}

/*! Starts a helper; false where there is no memory or no thread for it. */
inline bool start_helper(Helper& helper, Run& run) {
  helper = {};
  helper.run = &run;
  helper.worker = make_worker(run.launch);
  if (helper.worker) {
    count_workers(run.grid, 1, 0);
    if (pthread_create(&helper.thread, nullptr, help, &helper) == 0) return true;
    count_workers(run.grid, -1, 0);
    release_worker(helper.worker, run.launch.machine.kept);
  }
  return false;
}

/*! Where the lowest cluster failed in this worker, its report becomes the launch's. */
inline void take_report(Worker& from, Run& run) {
  if (!from.failed || from.first_cluster != run.grid.failed) return;
  run.report = from.report;
  from.report = {};
}

/*! A helper whose OS thread has ended. */
inline void release_helper(Helper& helper, Run& run) {
  take_report(*helper.worker, run);
  release_worker(helper.worker, run.launch.machine.kept);
}

inline unsigned worker_limit(const tl_machine& machine, unsigned ranks) {
#if TL_EMU_CHECKS
  return 1;  // they see the accesses of one worker
#else
  if (ranks > 1) return 1;
  if (machine.workers > 0) return machine.workers;
  return ordered_blocks || machine.cores == 0 ? 1 : machine.cores;
#endif
}

/*! How many helpers are worth it when the clusters of a worker took `nanoseconds`. */
inline unsigned helpers_for(const Run& run, unsigned long nanoseconds) {
  constexpr unsigned long kStart = 50000;  // what a helper takes to start
  const unsigned long next = __atomic_load_n(&run.grid.next, __ATOMIC_RELAXED);
  const unsigned long left = next < run.grid.clusters ? run.grid.clusters - next : 0;
  const unsigned long worth = left * nanoseconds / kStart;
  const unsigned long most = worker_limit(run.launch.machine, run.launch.ranks) - 1;
  const unsigned long count = most < left ? most : left;
  const bool asked_for = run.launch.machine.workers > 0;
  return unsigned(asked_for || count < worth ? count : worth);
}

/*! Runs the grid; whether it failed, with the report of the lowest cluster that did. */
inline bool run_grid(const Launch& launch, Text* report) {
  Run run{launch, {}, {}};
  run.grid.clusters = all_clusters(launch);
  run.grid.failed = kNone;
  run.grid.mutex = PTHREAD_MUTEX_INITIALIZER;
  run.grid.working = 1;
  Worker* const mine = make_worker(launch);
  if (!mine) {
    report->add("%s: no memory for the threads that run at the same time", launch.kernel);
    return true;
  }
  Helper* helpers = nullptr;
  unsigned started = 0;
  install_fault_handlers();
  run_worker(mine, run, [&](unsigned long nanoseconds) {
    const unsigned count = helpers_for(run, nanoseconds);
    if (count == 0) return;
    helpers = static_cast<Helper*>(calloc(count, sizeof(Helper)));
    while (helpers && started < count && start_helper(helpers[started], run)) ++started;
  });
  for (unsigned i = 0; i < started; ++i) pthread_join(helpers[i].thread, nullptr);
  take_report(*mine, run);
  for (unsigned i = 0; i < started; ++i) release_helper(helpers[i], run);
  remove_fault_handlers();
  free(helpers);
  release_worker(mine, launch.machine.kept);
  *report = run.report;
  return run.grid.failed != kNone;
}

}  // namespace emu
}  // namespace tl
