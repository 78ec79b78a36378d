// The two blocks of a cluster load one half of each tile, for both of them. Who waits until tiles are
// read tells who loads. Then they exchange rows through each other's shared memory.
#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/grid.h>
#include <tl/mbarrier.h>

extern "C" __global__ void cluster_mbarriers(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto A_shared = tl::shared<float, 128>(buf_dyn_shmem + 0);
  auto sums = tl::shared<float, 64>(buf_dyn_shmem + 512);
  auto full = tl::shared<uint64_t, 1>(buf_dyn_shmem + 768);
  auto empty = tl::shared<uint64_t, 1>(buf_dyn_shmem + 776);
  auto room = tl::shared<uint64_t, 1>(buf_dyn_shmem + 784);
  auto there = tl::shared<uint64_t, 1>(buf_dyn_shmem + 792);
  const int tx = threadIdx.x, rank = tl::block_rank_in_cluster();
  if (tx == 0) {
    tl::mbarrier_init(full, 1);
    tl::mbarrier_init(empty, 128);
    tl::mbarrier_init(room, 1);
    tl::mbarrier_init(there, 64);
    tl::fence_barrier_init();
  }
  tl::cluster_sync();
  sums[tx] = 0;
  for (int k = 0; k < 4; ++k) {
    if (tx == 32) {
      tl::mbarrier_wait(empty, (k & 1) ^ 1);
      tl::mbarrier_arrive(room);
    }
    if (tx == 0) {
      tl::mbarrier_wait(room, k & 1);  // wait until there is room
      tl::mbarrier_arrive_expect_tx(full, 512);
      tl::bulk_load_multicast(A_shared + rank * 64, A + k * 128 + rank * 64, 256, full, 3);  // fill
    }
    tl::mbarrier_wait(full, k & 1);
    sums[tx] += A_shared[tx] + A_shared[127 - tx];  // use
    tl::fence_proxy_async();  // what was read may be overwritten
    for (int other = 0; other < 2; ++other) tl::mbarrier_arrive_remote_cta(empty, other);
  }
  tl::mbarrier_arrive_remote(there, rank ^ 1);  // sums are there
  tl::mbarrier_wait_cluster(there, 0);
  B[rank * 64 + tx] = tl::map_shared_rank(sums, rank ^ 1)[63 - tx];  // read the other sums
  tl::cluster_sync();  // all have read
}
