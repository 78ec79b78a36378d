/*! Running a kernel, from its configuration to its report. */
#pragma once

#include <tl/fault.h>
#include <tl/workers.h>

namespace tl {
namespace emu {

constexpr unsigned kMaxClusterBlocks = 16;  // CUDA C++ Programming Guide, Thread Block Clusters
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
  } else if (launch.ranks == 0 || launch.ranks > kMaxRanks) {
    text.add("%s: %u ranks. The emulator runs 1 to %u", launch.kernel, launch.ranks, kMaxRanks);
  } else {
    return check_cluster(launch, text);
  }
  return false;
}

/*! Says how to have the same schedule again, in Python. */
inline void add_schedule(Text& text, const tl_machine& machine) {
  if (machine.order == 0 && machine.moment == 0) return;
  constexpr const char* kOrders[] = {"round_robin", "random", "adversarial"};
  constexpr const char* kMoments[] = {"late", "early", "random"};
  text.add("\nschedule: tilelang.emulator.schedule(\"%s\", seed=%lu, asynchronous=\"%s\")",
           kOrders[machine.order], machine.seed, kMoments[machine.moment]);
}

int run(Launch launch, char** report) {
  Text text = {};
  bool failed = !check_launch(launch, text);
  if (!failed && run_grid(launch, &text)) {
    failed = true;
    add_schedule(text, launch.machine);
  }
  *report = text.characters;
  return failed;
}

}  // namespace emu
}  // namespace tl
