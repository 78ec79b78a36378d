// Neighbours are added twice, with the whole grid's barrier between the two.
#include <tl/common.h>
#include <tl/grid.h>

extern "C" __global__ void two_phases(const float* __restrict__ A, float* __restrict__ sums, float* __restrict__ B) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  sums[i] = A[i] + A[(i + 1) % 96];  // first
  tl::sync_grid();
  B[i] = sums[i] + sums[(i + 1) % 96];  // second
}
