// The sum of each row of 128, for which rows go through shared memory backwards.
#include <tl/common.h>
#include <tl/warp.h>

extern "C" __global__ void row_sums(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto A_shared = tl::shared<float, 128>(buf_dyn_shmem + 0);
  auto sums = tl::shared<float, 4>(buf_dyn_shmem + 512);
  tl::local<float, 2> total;
  const int tx = threadIdx.x, lane = tx % 32, warp = tx / 32;
  for (int row = 0; row < 3; ++row) {
    A_shared[tx] = A[row * 128 + tx];  // fill
    __syncthreads();  // the row is there
    total[0] = A_shared[127 - tx];  // use
    for (int step = 16; step > 0; step /= 2) {
      total[0] += tl::shfl_xor_sync(0xffffffffu, total[0], step, 32);  // shuffle
    }
    if (lane == 0) sums[warp] = total[0];  // partial sum
    __syncthreads();  // the sums are there
    if (tx == 0) B[row] = sums[0] + sums[1] + sums[2] + sums[3];  // whole sum
  }
}
