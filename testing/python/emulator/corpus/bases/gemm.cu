// C = A * B^T of 64 x 64: one thread loads tiles by TMA into a ring of two stages, a warp group
// multiplies, and the result leaves by TMA.
#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/mbarrier.h>
#include <tl/sync.h>
#include <tl/tma.h>
#include <tl/warp_group.h>
#include <tl/wgmma_ss.h>

extern "C" __global__ void __launch_bounds__(256, 1) gemm(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, const __grid_constant__ CUtensorMap C) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<32>();
  auto A_shared = tl::shared<half_t, 8192>(buf_dyn_shmem + 0);
  auto B_shared = tl::shared<half_t, 8192>(buf_dyn_shmem + 16384);
  auto C_shared = tl::shared<half_t, 4096>(buf_dyn_shmem + 32768);
  auto full = tl::shared<uint64_t, 2>(buf_shmem + 0);
  auto empty = tl::shared<uint64_t, 2>(buf_shmem + 16);
  const int tx = threadIdx.x;
  if (tx == 0) {
    for (int i = 0; i < 2; ++i) {
      tl::mbarrier_init(full + i, 1);  // full mbarrier
      tl::mbarrier_init(empty + i, 128);  // empty mbarrier
    }
    tl::fence_barrier_init();
  }
  __syncthreads();  // the mbarriers are there
  if (tx < 128) {
    tl::warpgroup_reg_dealloc<24>();
    if (tx == 0) {
      for (int k = 0; k < 6; ++k) {
        tl::mbarrier_wait(empty + k % 2, (k / 2 & 1) ^ 1);  // wait until it is empty
        tl::mbarrier_arrive_expect_tx(full + k % 2, 16384);  // expect
        tl::tma_load(A, full + k % 2, A_shared + k % 2 * 4096, k * 64, 0);  // load A
        tl::tma_load(B, full + k % 2, B_shared + k % 2 * 4096, k * 64, 0);  // load B
      }
    }
  } else {
    tl::warpgroup_reg_alloc<240>();
    const int lane = tx % 32, warp = tx / 32 - 4;
    alignas(16) tl::local<float, 32> C_local;
    for (int k = 0; k < 6; ++k) {
      const uint64_t a = tl::wgmma_descriptor<128>(A_shared + k % 2 * 4096, 16, 1024);  // describe A
      const uint64_t b = tl::wgmma_descriptor<128>(B_shared + k % 2 * 4096, 16, 1024);  // describe B
      tl::mbarrier_wait(full + k % 2, k / 2 & 1);  // wait until it is full
      tl::warpgroup_arrive();
      for (int i = 0; i < 4; ++i) {
        tl::wgmma_ss<64, 64, 16, half_t, half_t, float>(C_local, tl::wgmma_descriptor_advance(a, i * 32), tl::wgmma_descriptor_advance(b, i * 32), (k | i) != 0);  // multiply
      }
      tl::warpgroup_commit_batch();
      tl::warpgroup_wait<0>();
      tl::mbarrier_arrive(empty + k % 2);  // it is empty
    }
    for (int i = 0; i < 32; ++i) {
      C_shared[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = half_t(C_local[i]);  // result
    }
    tl::fence_proxy_async();
    tl::sync_threads_partial(1, 128);  // the result is there
    if (tx == 128) {
      tl::tma_store(C, C_shared, 0, 0);  // store
      tl::tma_store_arrive();
      tl::tma_store_wait<0>();
    }
  }
}
