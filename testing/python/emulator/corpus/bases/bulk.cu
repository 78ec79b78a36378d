// Tiles of 64, doubled: bulk copies into a ring of two stages, and back from another one; then the
// first tile of the result once more, reversed, as read from global memory.
#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/mbarrier.h>

extern "C" __global__ void bulk(const float* __restrict__ A, float* __restrict__ B, float* __restrict__ C) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<16>();
  auto A_shared = tl::shared<float, 128>(buf_dyn_shmem + 0);
  auto B_shared = tl::shared<float, 128>(buf_dyn_shmem + 512);
  auto full = tl::shared<uint64_t, 2>(buf_shmem + 0);
  const int tx = threadIdx.x;
  if (tx == 0) {
    tl::mbarrier_init(full + 0, 1);  // first mbarrier
    tl::mbarrier_init(full + 1, 1);  // second mbarrier
    tl::fence_barrier_init();
  }
  __syncthreads();  // the mbarriers are there
  if (tx == 0) {
    for (int k = 0; k < 2; ++k) {
      tl::mbarrier_arrive_expect_tx(full + k, 256);  // first expect
      tl::bulk_load(A_shared + k * 64, A + k * 64, 256, full + k);  // first fill
    }
  }
  for (int k = 0; k < 6; ++k) {
    tl::mbarrier_wait(full + k % 2, k / 2 & 1);  // wait until it is full
    if (tx == 0) tl::tma_store_wait<1>();
    __syncthreads();  // the result's stage is empty
    B_shared[k % 2 * 64 + tx] = 2.0f * A_shared[k % 2 * 64 + (tx ^ 33)];  // use
    tl::fence_proxy_async();
    __syncthreads();  // the result is there
    if (tx == 0) {
      tl::bulk_store(B + k * 64, B_shared + k % 2 * 64, 256);  // store
      tl::tma_store_arrive();
      if (k < 4) {
        tl::mbarrier_arrive_expect_tx(full + k % 2, 256);  // expect
        tl::bulk_load(A_shared + k % 2 * 64, A + (k + 2) * 64, 256, full + k % 2);  // fill
      }
    }
  }
  if (tx == 0) tl::tma_store_wait<0, false>();
  __syncthreads();  // all is written
  C[tx] = B[63 - tx];  // read back
}
