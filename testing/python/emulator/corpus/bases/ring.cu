// Tiles of 32, doubled by two warps: another warp stores them into a ring of two stages; each warp
// arrives once for its lanes.
#include <tl/common.h>
#include <tl/mbarrier.h>

extern "C" __global__ void ring(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<32>();
  auto A_shared = tl::shared<float, 64>(buf_dyn_shmem + 0);
  auto full = tl::shared<uint64_t, 2>(buf_shmem + 0);
  auto empty = tl::shared<uint64_t, 2>(buf_shmem + 16);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      tl::mbarrier_init(full + i, 1);
      tl::mbarrier_init(empty + i, 2);
    }
    tl::fence_barrier_init();
  }
  __syncthreads();
  if (warp == 0) {
    for (int k = 0; k < 6; ++k) {
      tl::mbarrier_wait(empty + k % 2, (k / 2 & 1) ^ 1);  // wait until it is empty
      A_shared[k % 2 * 32 + lane] = A[k * 32 + lane];  // fill
      tl::mbarrier_arrive_warp(full + k % 2);
    }
  } else {
    for (int k = 0; k < 6; ++k) {
      tl::mbarrier_wait(full + k % 2, k / 2 & 1);
      B[(k * 2 + warp - 1) * 32 + lane] = 2.0f * A_shared[k % 2 * 32 + (lane ^ 17)];  // use
      tl::mbarrier_arrive_warp(empty + k % 2);
    }
  }
}
