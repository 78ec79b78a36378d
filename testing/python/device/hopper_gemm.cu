// A warp-specialised GEMM: C = A * B^T for M x K A and N x K B of half_t, C in half_t. One warp
// group loads tiles by TMA into a ring of stages, two multiply 64 rows each, and the result leaves
// through shared memory by TMA. The kBlocks blocks of a cluster, along x, load a part of A's tile
// each, for all of them.
#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/grid.h>
#include <tl/mbarrier.h>
#include <tl/stmatrix.h>
#include <tl/tma.h>
#include <tl/warp_group.h>
#include <tl/wgmma_ss.h>

constexpr int kBlocks = 1;
constexpr int kStages = 4, kTile = 128, kStep = 64, kStageBytes = 2 * kTile * kStep * 2;

extern "C" __global__ void __launch_bounds__(384, 1)
    gemm(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
         const __grid_constant__ CUtensorMap C, int steps) {
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  uint64_t* const full = (uint64_t*)tl::static_shared<2 * kStages * 8>();
  uint64_t* const empty = full + kStages;
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      tl::mbarrier_init(full + i, 1);
      tl::mbarrier_init(empty + i, 256 * kBlocks);
    }
    tl::fence_barrier_init();
  }
  kBlocks == 1 ? tl::sync_threads() : tl::cluster_sync();
  if (group == 0) {
    tl::warpgroup_reg_dealloc<24>();
    if (threadIdx.x == 0) {
      tl::prefetch_tma_descriptor(A);
      for (int k = 0; k < steps; ++k) {
        const int stage = k % kStages;
        unsigned char* tile = buf_dyn_shmem + stage * kStageBytes;
        tl::mbarrier_wait(empty + stage, (k / kStages & 1) ^ 1);
        tl::mbarrier_arrive_expect_tx(full + stage, kStageBytes);
        if constexpr (kBlocks == 1) {
          tl::tma_load(A, full + stage, tile, k * kStep, blockIdx.y * kTile);
        } else {
          const int part = tl::block_rank_in_cluster() * (kTile / kBlocks);
          tl::tma_load_multicast(A, full + stage, tile + part * kStep * 2, (1 << kBlocks) - 1,
                                 k * kStep, blockIdx.y * kTile + part);
        }
        tl::tma_load(B, full + stage, tile + kStageBytes / 2, k * kStep, blockIdx.x * kTile);
      }
    }
  } else {
    tl::warpgroup_reg_alloc<240>();
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    float c[64];
    for (int k = 0; k < steps; ++k) {
      const int stage = k % kStages;
      const unsigned char* tile = buf_dyn_shmem + stage * kStageBytes;
      const uint64_t a = tl::wgmma_descriptor<128>(tile + (group - 1) * 64 * 128, 16, 1024);
      const uint64_t b = tl::wgmma_descriptor<128>(tile + kStageBytes / 2, 16, 1024);
      tl::mbarrier_wait(full + stage, k / kStages & 1);
      tl::warpgroup_arrive();
      TL_UNROLL for (int i = 0; i < kStep / 16; ++i) {
        tl::wgmma_ss<64, 128, 16, half_t, half_t, float>(c, tl::wgmma_descriptor_advance(a, i * 32),
                                                         tl::wgmma_descriptor_advance(b, i * 32),
                                                         (k | i) != 0);
      }
      tl::warpgroup_commit_batch();
      tl::warpgroup_wait<0>();
      if constexpr (kBlocks == 1) {
        tl::mbarrier_arrive(empty + stage);
      } else {
        for (int rank = 0; rank < kBlocks; ++rank) tl::mbarrier_arrive_remote(empty + stage, rank);
      }
    }
    // The result's tile: two halves of 64 columns, swizzled, over the ring's first stage.
    tl::sync_threads_partial(1, 256);
    half_t* out = (half_t*)(buf_dyn_shmem + (group - 1) * 64 * 128);
    TL_UNROLL for (int i = 0; i < 8; ++i) {
      alignas(16) half_t registers[8];
      TL_UNROLL for (int j = 0; j < 8; ++j) registers[j] = half_t(c[i * 8 + j]);
      const int row = warp * 16 + lane % 16, column = i % 4 * 2 + lane / 16;
      tl::ptx_stmatrix_x4(out + i / 4 * (128 * 64) + row * 64 + (column ^ row % 8) * 8, registers);
    }
    tl::fence_proxy_async();
    tl::sync_threads_partial(1 + group, 128);
    if (threadIdx.x % 128 == 0) {
      const int row = blockIdx.y * kTile + (group - 1) * 64;
      tl::tma_store(C, out, blockIdx.x * kTile, row);
      tl::tma_store(C, out + 128 * 64, blockIdx.x * kTile + 64, row);
      tl::tma_store_arrive();
      tl::tma_store_wait<0>();
    }
  }
  // Others still arrive at this block's mbarriers.
  if constexpr (kBlocks > 1) tl::cluster_sync();
}
