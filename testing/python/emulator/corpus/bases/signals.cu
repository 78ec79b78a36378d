// One block signals another one by fences and relaxed atomic operations.
#include <tl/atomic.h>
#include <tl/common.h>
#include <tl/sync.h>

extern "C" __global__ void signals(const float* __restrict__ A, float* __restrict__ row, int* __restrict__ ready,
                                   float* __restrict__ B) {
  const int tx = threadIdx.x;
  if (blockIdx.x == 0) {
    row[tx] = A[tx];  // write
    __threadfence();  // what was written is announced
    __syncthreads();  // all have written
    if (tx == 0) {
      __threadfence();  // the block's rows are announced
      tl::atomic_store<tl::relaxed>(ready, 1);  // signal
    }
  } else {
    if (tx == 0) {
      while (tl::atomic_load<tl::relaxed>(ready) == 0) {}  // poll
      __threadfence();  // what was announced is seen
    }
    __syncthreads();  // all may read
    B[tx] = row[63 - tx];  // read
  }
}
