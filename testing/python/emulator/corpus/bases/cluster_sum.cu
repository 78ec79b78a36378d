// Two blocks of a cluster exchange rows through each other's shared memory.
#include <tl/common.h>
#include <tl/grid.h>

extern "C" __global__ void cluster_sum(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto mine = tl::shared<float, 64>(buf_dyn_shmem + 0);
  auto theirs = tl::shared<float, 64>(buf_dyn_shmem + 256);
  const int tx = threadIdx.x, rank = tl::block_rank_in_cluster();
  mine[tx] = A[rank * 64 + tx];  // fill
  tl::cluster_sync();  // rows are there
  theirs[tx] = tl::map_shared_rank(mine, rank ^ 1)[63 - tx];  // read the other row
  tl::cluster_sync();  // rows are read
  B[rank * 64 + tx] = mine[tx] + theirs[tx];
}
