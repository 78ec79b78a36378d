// Rows of eight, scaled by their sums, one row for each thread.
#include <tl/common.h>

extern "C" __global__ void vectors(const float* __restrict__ A, float* __restrict__ B) {
  alignas(16) tl::local<float, 8> row;
  tl::local<float, 1> sum;
  const int tx = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    tl::store(row + i * 4, tl::load<float, 4>(A + tx * 8 + i * 4));  // load
  }
  sum[0] = 0.0f;
  for (int i = 0; i < 8; ++i) {
    sum[0] += row[i];  // add
  }
  for (int i = 0; i < 8; ++i) {
    row[i] = row[i] * sum[0];  // scale
  }
  for (int i = 0; i < 2; ++i) {
    tl::store(B + tx * 8 + i * 4, tl::load<float, 4>(row + i * 4));  // store
  }
}
