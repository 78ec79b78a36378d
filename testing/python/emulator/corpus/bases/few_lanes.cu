// A block of 48 threads: 16 lanes of the second warp exist, and sum among themselves.
#include <tl/common.h>
#include <tl/reduce.h>
#include <tl/sync.h>
#include <tl/warp.h>

extern "C" __global__ void few_lanes(const int* __restrict__ A, int* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto sums = tl::shared<int, 3>(buf_dyn_shmem + 0);
  const int tx = threadIdx.x, lane = tx % 32;
  int sum = A[tx];
  for (int step = 8; step > 0; step /= 2) {
    sum += tl::shfl_xor_sync(0xffffffffu, sum, step, 16);  // exchange
  }
  const int largest = tl::AllReduce<tl::MaxOp, 16, 1>(A[tx]);  // largest
  const int first = tl::shfl_sync(0xffffffffu, A[tx], lane / 16 * 16, 32);  // first
  const int next = tl::shfl_up_sync(0xffffffffu, A[tx], 1, 16);  // next
  if (tx % 16 == 0) sums[tx / 16] = sum;
  if (tx == 47) return;
  const int votes = tl::all_sync(0xffffffffu, sum != 0);  // vote
  __syncthreads();
  B[tx] = sums[0] + sums[1] + sums[2] + largest + first + next + votes;
}
