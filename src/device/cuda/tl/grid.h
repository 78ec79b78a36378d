/*! Clusters of blocks (sm_90) and the grid: where a block is in them, their barriers, shared memory
 * of other blocks. */
#pragma once

#include <tl/platform.h>

namespace tl {
namespace detail {

#define TL_SPECIAL_REGISTER(name)                           \
  TL_DEVICE unsigned name() {                               \
    unsigned value;                                         \
    asm volatile("mov.u32 %0, %%" #name ";" : "=r"(value)); \
    return value;                                           \
  }
#define TL_SPECIAL_REGISTERS(name)                              \
  TL_DEVICE uint3 name() {                                      \
    uint3 value;                                                \
    asm volatile("mov.u32 %0, %%" #name ".x;" : "=r"(value.x)); \
    asm volatile("mov.u32 %0, %%" #name ".y;" : "=r"(value.y)); \
    asm volatile("mov.u32 %0, %%" #name ".z;" : "=r"(value.z)); \
    return value;                                               \
  }
TL_SPECIAL_REGISTER(envreg1)
TL_SPECIAL_REGISTER(envreg2)
TL_SPECIAL_REGISTER(cluster_ctarank)
TL_SPECIAL_REGISTER(cluster_nctarank)
TL_SPECIAL_REGISTERS(clusterid)
TL_SPECIAL_REGISTERS(nclusterid)
TL_SPECIAL_REGISTERS(cluster_ctaid)
TL_SPECIAL_REGISTERS(cluster_nctaid)
#undef TL_SPECIAL_REGISTER
#undef TL_SPECIAL_REGISTERS

}  // namespace detail

/*! Index of this cluster among those of the grid, and their number. PTX ISA, %clusterid. */
TL_DEVICE uint3 cluster_id() { return detail::clusterid(); }
TL_DEVICE uint3 clusters_in_grid() { return detail::nclusterid(); }

/*! Numbers of blocks of a cluster along x, y and z, and in all. PTX ISA, %cluster_nctaid. */
TL_DEVICE dim3 cluster_dim() { return dim3(detail::cluster_nctaid()); }
TL_DEVICE int cluster_size() { return int(detail::cluster_nctarank()); }

/*! Index of this block in its cluster, and its rank: x first. PTX ISA, %cluster_ctarank. */
TL_DEVICE uint3 block_id_in_cluster() { return detail::cluster_ctaid(); }
TL_DEVICE int block_rank_in_cluster() { return int(detail::cluster_ctarank()); }

/*!
 * The barrier of the cluster: each of its threads that has not exited arrives, then waits, all
 * lanes of a warp together. PTX ISA, barrier.cluster: an arrival releases, a wait acquires.
 */
TL_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/*! Orders no memory accesses. */
TL_DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

TL_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

TL_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

/*! The address in the shared memory of the cluster's block of rank `rank` that `mine` is in this
 * block's. PTX ISA, mapa. */
template <typename T>
TL_DEVICE T* map_shared_rank(T* mine, int rank) {
  T* theirs;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(mine), "r"(rank));
  return theirs;
}

/*!
 * Waits for all threads of the grid, in a cooperative launch, and orders their accesses of global
 * memory.
 *
 * The driver gives such a launch a workspace: its address is in %envreg1 (high half) and %envreg2,
 * its second word is a counter (CUDA Toolkit, cooperative_groups/details/driver_abi.h). All blocks
 * together add 2^31, so that the top bit changes when the last one arrives, and other bits are back
 * where they were.
 */
TL_DEVICE void sync_grid() {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    constexpr unsigned kPhase = 0x80000000u;
    const uint64_t workspace = uint64_t(detail::envreg1()) << 32 | detail::envreg2();
    const uint64_t counter = workspace + sizeof(unsigned);
    const unsigned others = gridDim.x * gridDim.y * gridDim.z - 1;
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    const unsigned mine = first ? kPhase - others : 1;
    unsigned before, now;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(mine)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (((before ^ now) & kPhase) == 0);
  }
  __syncthreads();
}

}  // namespace tl
