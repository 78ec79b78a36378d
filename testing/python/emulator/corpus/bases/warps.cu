// Two warps, each with a row: the lanes vote, compare, exchange and sum; then the warps add theirs.
#include <tl/common.h>
#include <tl/sync.h>
#include <tl/warp.h>

extern "C" __global__ void warps(const int* __restrict__ A, int* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto sums = tl::shared<int, 2>(buf_dyn_shmem + 0);
  auto row = tl::shared<int, 64>(buf_dyn_shmem + 128);
  const int tx = threadIdx.x, lane = tx % 32, warp = tx / 32;
  int sum = A[tx];
  for (int step = 16; step > 0; step /= 2) {
    sum += tl::shfl_down_sync(0xffffffffu, sum, step, 32);  // sum
  }
  sum = tl::shfl_sync(0xffffffffu, sum, 0, 32);  // broadcast
  if (tl::any_sync(0xffffffffu, lane == 7)) sum += 1;  // vote
  const int same = tl::match_any_sync(0xffffffffu, lane % 4);  // match
  if (lane == 0) sums[warp] = sum;
  row[tx] = A[tx];  // fill
  if (warp == 0) {
    tl::sync_threads_partial(1, 32);  // first warp
  } else {
    tl::sync_threads_partial(2, 32);  // second warp
  }
  B[64 + tx] = row[tx ^ 1] + (same != 0);  // neighbour
  __syncthreads();  // the sums are there
  B[tx] = sums[0] + sums[1];  // use
}
