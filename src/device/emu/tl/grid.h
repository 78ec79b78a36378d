/*! Clusters of blocks and the grid: where a block is in them, their barriers, shared memory of
 * other blocks. */
#pragma once

#include <tl/buffer.h>

namespace tl {
namespace emu {

/*! The block of rank `rank` in this thread's cluster. */
TL_RUNTIME Block& block_of(unsigned rank, Location where = here()) {
  if (rank >= worker->cluster_blocks) {
    fail(where, "block %u of a cluster of %u blocks. Use 0 to %u", rank, worker->cluster_blocks,
         worker->cluster_blocks - 1);
  }
  return this_block().cluster->blocks[rank];
}

/*! The address in the shared memory of the block of rank `rank` that `mine` is in this block's. */
TL_RUNTIME void* map_shared(const void* mine, unsigned rank, Location where = here()) {
  const Block& self = this_block();
  const uintptr_t offset =
      reinterpret_cast<uintptr_t>(mine) - reinterpret_cast<uintptr_t>(self.shared);
  if (offset >= kMaxStaticSharedBytes + self.shared_bytes) {
    fail(where, "the address %p is not in the shared memory of this block", mine);
  }
  return block_of(rank, where).shared + offset;
}

/*! map_shared to a block that still runs, for what is done there at once or later. */
inline void* map_shared_alive(const void* mine, unsigned rank, Location where) {
  void* theirs = map_shared(mine, rank, where);
  if (block_of(rank, where).live == 0) {
    fail(where,
         "block %u of the cluster has ended. Let its threads wait, at the barrier of the cluster, "
         "until nobody uses its shared memory",
         rank);
  }
  return theirs;
}

/*! Calls `visit(rank)` for the blocks of the cluster whose bit is set. */
template <typename Visit>
void each_block(uint16_t blocks, Location where, Visit visit) {
  if (blocks == 0 || blocks >> worker->cluster_blocks) {
    fail(where, "a copy into the blocks %#x of a cluster of %u", blocks, worker->cluster_blocks);
  }
  for (unsigned rank = 0; rank < worker->cluster_blocks; ++rank) {
    if (blocks >> rank & 1) visit(rank);
  }
}

// The instructions are .aligned: all lanes of a warp execute the same one together.
inline void meet_warp(const char* name, Location where) {
  collective_sync(name, [](void* const*) {}, nullptr, where, true);
}

}  // namespace emu

TL_DEVICE uint3 cluster_id() { return emu::this_block().cluster->index; }
TL_DEVICE dim3 cluster_dim() { return emu::worker->cluster; }
TL_DEVICE int cluster_size() { return int(emu::worker->cluster_blocks); }
TL_DEVICE int block_rank_in_cluster() { return int(emu::this_block().rank); }

TL_DEVICE uint3 block_id_in_cluster() {
  const dim3 dims = emu::worker->cluster;
  const unsigned rank = emu::this_block().rank;
  return {rank % dims.x, rank / dims.x % dims.y, rank / (dims.x * dims.y)};
}

TL_DEVICE uint3 clusters_in_grid() {
  const dim3 dims = emu::worker->cluster;
  return {gridDim.x / dims.x, gridDim.y / dims.y, gridDim.z / dims.z};
}

inline void cluster_arrive(emu::Location where = emu::here()) {
  emu::meet_warp("cluster_arrive", where);
  emu::cluster_barrier_arrive(true, where);
}

/*! Orders no memory accesses. */
inline void cluster_arrive_relaxed(emu::Location where = emu::here()) {
  emu::meet_warp("cluster_arrive_relaxed", where);
  emu::cluster_barrier_arrive(false, where);
}

inline void cluster_wait(emu::Location where = emu::here()) {
  emu::meet_warp("cluster_wait", where);
  emu::cluster_barrier_wait(where);
}

inline void cluster_sync(emu::Location where = emu::here()) {
  cluster_arrive(where);
  cluster_wait(where);
}

template <typename T>
TL_DEVICE T* map_shared_rank(T* mine, int rank, emu::Location where = emu::here()) {
  return static_cast<T*>(emu::map_shared(mine, unsigned(rank), where));
}

#if TL_EMU_CHECKS
template <typename T>
TL_DEVICE emu::Pointer<T> map_shared_rank(const emu::Pointer<T>& mine, int rank,
                                          emu::Location where = emu::here()) {
  return mine.moved(map_shared_rank(mine.checked(0), rank, where));
}
#endif

inline void sync_grid(emu::Location where = emu::here()) { emu::grid_barrier_sync(where); }

}  // namespace tl
