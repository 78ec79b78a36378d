/*! Running a kernel: all clusters in order, or all blocks at once where they wait for each other.
 */
#pragma once

#include <tl/blocks.h>
#include <tl/fault.h>
#include <tl/launch.h>

namespace tl {
namespace emu {

constexpr unsigned kMaxClusterBlocks = 16;  // CUDA C++ Programming Guide, Thread Block Clusters
// Each stack and each page that guards one is a mapping, of which Linux gives a process 65530.
constexpr unsigned long kMaxThreadsAtOnce = 30000;

inline unsigned long volume(dim3 d) { return static_cast<unsigned long>(d.x) * d.y * d.z; }

/*! How many clusters run at the same time. */
inline unsigned long clusters_at_once(const Launch& launch) {
  return launch.cooperative ? volume(launch.grid) / volume(launch.cluster) : 1;
}

inline bool check_cluster(const Launch& launch, Text& text) {
  const dim3 g = launch.grid, c = launch.cluster;
  const unsigned long blocks = volume(c);
  if (blocks == 0 || blocks > kMaxClusterBlocks) {
    text.add("%s: the cluster is (%u, %u, %u). Use 1 to %u blocks", launch.kernel, c.x, c.y, c.z,
             kMaxClusterBlocks);
  } else if (g.x % c.x != 0 || g.y % c.y != 0 || g.z % c.z != 0) {
    text.add(
        "%s: the grid (%u, %u, %u) does not divide into clusters of (%u, %u, %u). Use multiples",
        launch.kernel, g.x, g.y, g.z, c.x, c.y, c.z);
  } else if (launch.static_arrays && clusters_at_once(launch) * blocks > 1) {
    text.add(
        "%s: the emulator runs blocks of a cluster or of a cooperative launch at the same time, "
        "which __shared__ arrays do not allow. Take the memory from tl::static_shared<bytes>() or "
        "tl::dynamic_shared()",
        launch.kernel);
  } else if (clusters_at_once(launch) * blocks > kMaxThreadsAtOnce / volume(launch.block)) {
    text.add(
        "%s: %lu blocks of %lu threads at the same time. The emulator runs at most %lu threads; "
        "launch fewer blocks",
        launch.kernel, clusters_at_once(launch) * blocks, volume(launch.block), kMaxThreadsAtOnce);
  } else {
    return true;
  }
  return false;
}

/*! What a GPU refuses to launch (CUDA C++ Programming Guide, Technical Specifications per Compute
 * Capability). */
inline bool check_launch(const Launch& launch, Text& text) {
  const dim3 g = launch.grid, b = launch.block;
  const unsigned long threads = volume(b);
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT32_MAX || g.y > 65535 || g.z > 65535) {
    text.add("%s: the grid is (%u, %u, %u). Use 1 to (2147483647, 65535, 65535)", launch.kernel,
             g.x, g.y, g.z);
  } else if (threads == 0 || threads > kMaxThreads || b.x > kMaxThreads || b.y > kMaxThreads ||
             b.z > 64) {
    text.add("%s: the block is (%u, %u, %u). Use 1 to %u threads, 64 along z", launch.kernel, b.x,
             b.y, b.z, kMaxThreads);
  } else if (launch.shared_bytes > kMaxSharedBytes) {
    text.add("%s: %u bytes of dynamic shared memory. Use at most %u", launch.kernel,
             launch.shared_bytes, kMaxSharedBytes);
  } else {
    return check_cluster(launch, text);
  }
  return false;
}

inline void run_grid(const Launch& launch) {
  gridDim = launch.grid;
  blockDim = launch.block;
  const unsigned long clusters = volume(launch.grid) / volume(launch.cluster);
  const unsigned long step = clusters_at_once(launch);
  for (unsigned long first = 0; first < clusters && !worker->failed; first += step) {
    run_clusters(first);
  }
}

/*! Runs the worker's blocks with fault handlers that have a stack to run on. */
inline void run_guarded(const Launch& launch) {
  stack_t own = {}, previous = {};
  own.ss_sp = worker->stacks + worker->threads() * stack_stride() + page_bytes();
  own.ss_size = kStackBytes;
  sigaltstack(&own, &previous);
  install_fault_handlers();
  run_grid(launch);
  remove_fault_handlers();
  sigaltstack(&previous, nullptr);
}

int run(const Launch& launch) {
  Text text{launch.error, launch.error_size};
  text.add("%s", "");
  if (!check_launch(launch, text)) return 1;
  const unsigned threads = unsigned(volume(launch.block));
  Worker* mine =
      make_worker(unsigned(clusters_at_once(launch)), launch.cluster, threads, launch.shared_bytes);
  if (!mine) {
    text.add("%s: no memory for the threads that run at the same time", launch.kernel);
    return 1;
  }
  mine->cooperative = launch.cooperative;
  mine->invoke = launch.invoke;
  mine->closure = launch.closure;
  mine->kernel = launch.kernel;
  mine->error = launch.error;
  mine->error_size = launch.error_size;
  worker = mine;
  if (check_launch_begins(*mine, *launch.arguments)) {
    run_guarded(launch);
  } else {
    mine->failed = true;
    text.add("%s: no memory for the emulator's checks of its arguments", launch.kernel);
  }
  const unsigned long used = strlen(launch.error);
  Text reports{launch.error + used, launch.error_size - used};
  check_launch_ends(*mine, reports);
  worker = nullptr;
  const bool failed = mine->failed;
  release_worker(mine);
  return failed;
}

}  // namespace emu
}  // namespace tl
