/*! Running the blocks of a worker: their shared memory, their threads as fibers, one set of blocks
 * after the other. */
#pragma once

#include <tl/barrier.h>
#include <tl/deadlock.h>
#include <tl/finish.h>
#include <tl/launch.h>
#include <tl/stacks.h>

namespace tl {
namespace emu {

// Unwritten shared memory reads as NaN, and what is written behind its end shows.
constexpr unsigned char kPoison = 0xff;
constexpr unsigned kWatchedBytes = 4096;
// A page behind the largest block, so that the next block's memory is never the one behind it.
constexpr size_t kSharedStride = kMaxStaticSharedBytes + kMaxSharedBytes + kWatchedBytes;

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
    warp.meeting.expected = rest < kWarpSize ? rest : kWarpSize;
  }
}

inline void prepare_block(Block& block) {
  block.live = block.threads;
  block.static_bytes = 0;
  block.votes = 0;
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
    fiber.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    char* top = stack_top(worker->stacks, unsigned(&fiber - worker->fibers));
    make_context(fiber.context, top, kStackBytes / 2, fiber_main);
    worker->ready.push(&fiber);
  }
}

inline void prepare_cluster(Cluster& cluster, uint3 index) {
  const dim3 size = worker->cluster;
  cluster.index = index;
  cluster.barrier = {};
  cluster.barrier.describe = describe_cluster_barrier;
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
    Text text{worker->error, worker->error_size};
    text.add("block ");
    text.add(block.index);
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

/*! Runs the threads that have been made ready to their ends. */
inline void run_threads() {
  Fiber* first = worker->ready.pop();
  select(first);
  switch_context(worker->scheduler, first->context);
  worker->current = nullptr;
  unsigned live = 0;
  for (unsigned b = 0; b < worker->block_count; ++b) live += worker->blocks[b].live;
  if (!worker->failed && live > 0) report_deadlock();
  if (!worker->failed) finish_blocks();
  for (unsigned b = 0; b < worker->block_count && !worker->failed; ++b) {
    check_shared_end(worker->blocks[b]);
  }
}

/*! Prepares clusters `first` and following, as many as run at the same time, and runs them. */
inline void run_clusters(unsigned long first) {
  const dim3 size = worker->cluster;
  const unsigned long columns = gridDim.x / size.x, rows = gridDim.y / size.y;
  const unsigned count = worker->block_count / worker->cluster_blocks;
  worker->ready = {};
  worker->running = nullptr;
  worker->fruitless = 0;
  worker->grid_barrier = {};
  worker->grid_barrier.describe = describe_grid_barrier;
  worker->grid_barrier.live = worker->threads();
  for (unsigned i = 0; i < count; ++i) {
    const unsigned long at = first + i;
    prepare_cluster(worker->clusters[i], {unsigned(at % columns), unsigned(at / columns % rows),
                                          unsigned(at / (columns * rows))});
  }
  run_threads();
}

inline void release_worker(Worker* mine) {
  if (!mine) return;
  if (mine->fibers) {
    for (unsigned i = 0; i < mine->threads(); ++i) mine->fibers[i].queues.free_items();
  }
  for (unsigned b = 0; mine->blocks && b < mine->block_count; ++b) {
    for (Warp& warp : mine->blocks[b].warps) warp.products.free_items();
  }
  free_mbarriers(*mine);
  if (mine->stacks) unmap_stacks(mine->stacks, mine->threads() + 1);
  if (mine->shared) munmap(mine->shared, mine->block_count * kSharedStride);
  free(mine->fibers);
  free(mine->clusters);
  free(mine->blocks);
  free(mine);
}

/*! A worker for `clusters` clusters of `size` blocks of `threads` threads at a time, or nullptr
 * where there is no memory. */
inline Worker* make_worker(unsigned clusters, dim3 size, unsigned threads, unsigned shared_bytes) {
  Worker* made = static_cast<Worker*>(calloc(1, sizeof(Worker)));
  if (!made) return nullptr;
  made->cluster = size;
  made->cluster_blocks = size.x * size.y * size.z;
  made->block_count = clusters * made->cluster_blocks;
  made->block_threads = threads;
  made->blocks = static_cast<Block*>(calloc(made->block_count, sizeof(Block)));
  made->clusters = static_cast<Cluster*>(calloc(clusters, sizeof(Cluster)));
  made->fibers = static_cast<Fiber*>(calloc(made->threads(), sizeof(Fiber)));
  // One more than the threads: the stack of the fault handlers.
  made->stacks = map_stacks(made->threads() + 1);
  void* shared = mmap(nullptr, made->block_count * kSharedStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  made->shared = shared == MAP_FAILED ? nullptr : static_cast<unsigned char*>(shared);
  if (!made->blocks || !made->clusters || !made->fibers || !made->stacks || !made->shared) {
    release_worker(made);
    return nullptr;
  }
  for (unsigned b = 0; b < made->block_count; ++b) {
    Block& block = made->blocks[b];
    block.rank = b % made->cluster_blocks;
    block.cluster = &made->clusters[b / made->cluster_blocks];
    if (block.rank == 0) block.cluster->blocks = &block;
    block.fibers = made->fibers + b * threads;
    block.threads = threads;
    block.shared = made->shared + b * kSharedStride;
    block.shared_bytes = shared_bytes;
    memset(block.dynamic_shared() + shared_bytes, kPoison, kWatchedBytes);
  }
  return made;
}

}  // namespace emu
}  // namespace tl
