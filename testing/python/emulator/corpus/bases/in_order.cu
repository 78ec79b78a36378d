// A tensor written and read back inside of a block, and a counter that one thread changes. Neither is
// __restrict__: a compiler may then take loads for what this thread alone could have changed.
#include <tl/common.h>
#include <tl/sync.h>

extern "C" __global__ void in_order(const float* __restrict__ A, float* B, float* C) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto state = tl::shared<float, 1>(buf_dyn_shmem + 0);
  const int tx = threadIdx.x;
  if (tx == 0) state[0] = 1.0f;  // begin
  B[tx] = A[tx];  // write
  __syncthreads();  // the row is written
  const float other = B[63 - tx];  // read back
  __syncthreads();  // the row is read
  B[tx] = other + 1.0f;  // write again
  if (tx == 0) C[0] = C[0] * 3.0f + 1.0f;  // count
  if (tx == 0) state[0] = state[0] * 3.0f + 1.0f;  // change
  __syncthreads();  // all is changed
  C[1 + tx] = B[tx ^ 1] + C[0] + state[0];  // use
}
