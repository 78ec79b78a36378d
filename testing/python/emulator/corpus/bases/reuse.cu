// Rows that go through shared memory twice: by elements into a small buffer, and by vectors into a
// large one that begins at the same place.
#include <tl/common.h>

extern "C" __global__ void reuse(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto firsts = tl::shared<float, 2>(buf_dyn_shmem + 0);
  auto rows = tl::shared<float, 256>(buf_dyn_shmem + 0);
  const int tx = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    if (tx < 2) firsts[tx] = A[i * 256 + tx];  // first fill
    __syncthreads();  // the firsts are there
    const float sum = firsts[0] + firsts[1];  // first use
    __syncthreads();  // the firsts are read
    tl::store(rows + tx * 4, tl::load<float, 4>(A + i * 256 + tx * 4));  // fill
    __syncthreads();  // the rows are there
    for (int j = 0; j < 4; ++j) {
      B[i * 256 + j * 64 + (tx ^ 33)] = sum * rows[j * 64 + (tx ^ 33)];  // use
    }
    __syncthreads();  // the rows are read
  }
}
