// Tiles of 8 rows of 16, transformed in place between a TMA load and a TMA store.
#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/mbarrier.h>
#include <tl/tma.h>

extern "C" __global__ void tiles(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<8>();
  auto tile = tl::shared<float, 128>(buf_dyn_shmem + 0);
  auto full = tl::shared<uint64_t, 1>(buf_shmem + 0);
  const int tx = threadIdx.x;
  if (tx == 0) {
    tl::mbarrier_init(full, 1);
    tl::fence_barrier_init();
  }
  __syncthreads();  // the mbarrier is there
  for (int k = 0; k < 4; ++k) {
    if (tx == 0) {
      tl::mbarrier_arrive_expect_tx(full, 512);  // expect
      tl::tma_load(A, full, tile, 0, k * 8);  // load
    }
    tl::mbarrier_wait(full, k & 1);  // wait until it is loaded
    tile[tx] = tile[tx] + 1.0f;  // change
    tl::fence_proxy_async();
    __syncthreads();  // the tile is changed
    if (tx == 0) {
      tl::tma_store(B, tile, 0, k * 8);  // store
      tl::tma_store_arrive();
      tl::tma_store_wait<0>();
    }
  }
}
