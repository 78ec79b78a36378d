// Block 0 of a cluster writes rows into the shared memory of block 1, which says when it has used them.
#include <tl/common.h>
#include <tl/grid.h>
#include <tl/mbarrier.h>

extern "C" __global__ void remote_ring(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<16>();
  auto row = tl::shared<float, 64>(buf_dyn_shmem + 0);
  auto full = tl::shared<uint64_t, 1>(buf_shmem + 0);
  auto empty = tl::shared<uint64_t, 1>(buf_shmem + 8);
  const int tx = threadIdx.x, rank = tl::block_rank_in_cluster();
  if (tx == 0) {
    tl::mbarrier_init(full, 64);
    tl::mbarrier_init(empty, 64);
    tl::fence_barrier_init();
  }
  tl::cluster_sync();  // the mbarriers are there
  for (int k = 0; k < 4; ++k) {
    if (rank == 0) {
      if (k > 0) tl::mbarrier_wait_cluster(empty, (k - 1) & 1);  // wait until it is empty
      tl::map_shared_rank(row, 1)[tx] = A[k * 64 + tx];  // fill
      tl::mbarrier_arrive_remote(full, 1);  // it is full
    } else {
      tl::mbarrier_wait_cluster(full, k & 1);  // wait until it is full
      B[k * 64 + tx] = row[63 - tx];  // use
      tl::mbarrier_arrive_remote(empty, 0);  // it is empty
    }
  }
  tl::cluster_sync();  // all have arrived
}
