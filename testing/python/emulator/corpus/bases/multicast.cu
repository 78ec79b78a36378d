// The two blocks of a cluster load one half of each tile, for both of them.
#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/grid.h>
#include <tl/mbarrier.h>

extern "C" __global__ void multicast(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<16>();
  auto A_shared = tl::shared<float, 128>(buf_dyn_shmem + 0);
  auto full = tl::shared<uint64_t, 1>(buf_shmem + 0);
  auto empty = tl::shared<uint64_t, 1>(buf_shmem + 8);
  const int tx = threadIdx.x, rank = tl::block_rank_in_cluster();
  if (tx == 0) {
    tl::mbarrier_init(full, 1);
    tl::mbarrier_init(empty, 128);  // empty mbarrier
    tl::fence_barrier_init();
  }
  tl::cluster_sync();  // the mbarriers are there
  for (int k = 0; k < 4; ++k) {
    if (tx == 0) {
      tl::mbarrier_wait(empty, (k & 1) ^ 1);  // wait until it is empty
      tl::mbarrier_arrive_expect_tx(full, 512);  // expect
      tl::bulk_load_multicast(A_shared + rank * 64, A + k * 128 + rank * 64, 256, full, 3);  // fill
    }
    tl::mbarrier_wait(full, k & 1);  // wait until it is full
    B[(rank * 4 + k) * 64 + tx] = A_shared[tx] + A_shared[127 - tx];  // use
    tl::fence_proxy_async();  // what was read may be overwritten
    for (int other = 0; other < 2; ++other) {
      tl::mbarrier_arrive_remote(empty, other);  // it is empty
    }
  }
  tl::cluster_sync();  // all have arrived
}
