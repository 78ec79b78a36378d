// Two wavefronts of 64 lanes, each with a row: the lanes vote, exchange and sum; then both add.
#include <tl/common.h>
#include <tl/reduce.h>
#include <tl/warp.h>

extern "C" __global__ void wave_sums(const int* __restrict__ A, int* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto sums = tl::shared<int, 2>(buf_dyn_shmem + 0);
  auto row = tl::shared<int, 128>(buf_dyn_shmem + 128);
  const int tx = threadIdx.x, lane = tx % 64, wave = tx / 64;
  int sum = A[tx];
  for (int step = 32; step > 0; step /= 2) {
    sum += tl::shfl_xor_sync(0xffffffffffffffffull, sum, step, 64);  // sum
  }
  if (tl::ballot_sync(0xffffffffffffffffull, lane == 40) == 1ull << 40) sum += 1;  // vote
  if (lane == 0) sums[wave] = sum;  // keep
  row[tx] = tl::AllReduce<tl::MaxOp, 2, 32>(A[tx]);  // fill
  tl::sync_warp(0xffffffffffffffffull);  // the row is there
  B[128 + tx] = row[tx ^ 63];  // neighbour
  __syncthreads();  // the sums are there
  B[tx] = sums[0] + sums[1];  // use
}
