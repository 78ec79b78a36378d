// How often each of 32 values occurs, counted in shared memory first.
#include <tl/atomic.h>
#include <tl/common.h>

extern "C" __global__ void histogram(const int* __restrict__ A, int* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto counts = tl::shared<int, 32>(buf_dyn_shmem + 0);
  const int tx = threadIdx.x;
  if (tx < 32) counts[tx] = 0;  // zero
  __syncthreads();  // zeros are there
  tl::atomic_add<tl::relaxed>(counts + A[blockIdx.x * 64 + tx], 1);  // count
  __syncthreads();  // counts are there
  if (tx < 32) tl::atomic_add<tl::relaxed>(B + tx, counts[31 - tx]);  // add
}
