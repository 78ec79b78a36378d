// Sums of 20 rows of 24 elements by a wavefront, a row and a half for each lane's vectors of eight:
// lane l has vector l of 60, and the range of the tensor is the predicate of the lanes behind.
#include <tl/common.h>
#include <tl/vmem.h>

extern "C" __global__ void ragged_rows(const half_t* __restrict__ x, float* __restrict__ y) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto sums = tl::shared<float, 64>(buf_dyn_shmem + 0);
  const int tx = threadIdx.x;
  const tl::vec<half_t, 8> words = tl::buffer_load_if<8>(x, 960u, tx * 8, 0, tx < 60);  // load
  float sum = 0.0f;
  for (int i = 0; i < 8; ++i) {
    sum += float(words[i]);
  }
  sums[tx] = sum;
  __syncthreads();
  if (tx < 20) {
    y[tx] = sums[tx * 3] + sums[tx * 3 + 1] + sums[tx * 3 + 2];
    const tl::vec<half_t, 8> first = tl::buffer_load<8>(x, 960u, tx * 24, 0);  // first
    y[20 + tx] = float(first[0]);
  }
}
