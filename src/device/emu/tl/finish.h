/*! The end of a cluster: what must not be in flight any more. */
#pragma once

#include <tl/mbarrier_state.h>
#include <tl/ranks.h>

namespace tl {
namespace emu {

inline bool finish_bulk_copies(const Block& block, Text& text) {
  for (unsigned i = 0; i < block.threads; ++i) {
    ThreadQueues& queues = block.fibers[i].queues;
    if (!queues.bulk_reads.empty()) {
      const Location where = queues.bulk_reads.front().where;
      text.add(
          "%s:%d: the block ends while this copy reads its shared memory. Commit its group, and "
          "wait for it in the same thread",
          where.file, where.line);
      return false;
    }
    queues.bulk_writes.perform_all();
  }
  return true;
}

inline bool finish_products(const Block& block, Text& text) {
  constexpr unsigned kWarpsInGroup = 4;
  for (unsigned i = 0; i < block.threads / kWarpSize; ++i) {
    const unsigned first = i / kWarpsInGroup * kWarpsInGroup;
    const Warp &warp = block.warps[i], &leader = block.warps[first];
    if (!warp.products.empty()) {
      const Location where = warp.products.front().where;
      text.add(
          "%s:%d: warp %u ends while this wgmma is in flight. Commit its group, and wait for it",
          where.file, where.line, i);
      return false;
    }
    if (warp.product_checksum == leader.product_checksum) continue;
    const Warp& longer = warp.product_count > leader.product_count ? warp : leader;
    text.add(
        "%s:%d: warps of one warp group differ in their wgmma: warp %u issued %u, warp %u issued "
        "%u. All four warps have to issue the same ones, with the same descriptors",
        longer.product_where.file, longer.product_where.line, i, warp.product_count, first,
        leader.product_count);
    return false;
  }
  return true;
}

/*! Completes what may still be in flight, and reports what may not. */
inline void finish_operations(const Cluster& cluster) {
  Text& text = worker->report;
  for (unsigned rank = 0; rank < worker->cluster_blocks; ++rank) {
    const Block& block = cluster.blocks[rank];
    if (finish_products(block, text) && finish_bulk_copies(block, text)) continue;
    worker->failed = true;
    text.add(" (block ");
    text.add(block.index);
    add_rank(text, block);
    text.add(" of %s)", worker->kernel);
    return;
  }
  worker->failed = !finish_mbarriers(cluster, text);
}

}  // namespace emu
}  // namespace tl
