// Functions of the user's that get pointers into buffers which lie side by side.
#include <tl/buffer.h>
#include <tl/common.h>
#include <tl/sync.h>

extern "C" __global__ void helper(const float* __restrict__ A, float* __restrict__ B) {
  auto sum_of = [](const float* p, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += p[i];  // sum
    return sum;
  };
  auto scale = [](float* p, int i, float factor) { p[i] *= factor; };  // scale
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto left = tl::shared<float, 64>(buf_dyn_shmem + 0);
  auto right = tl::shared<float, 64>(buf_dyn_shmem + 256);
  tl::local<float, 2> pair;
  const int tx = threadIdx.x;
  left[tx] = A[tx];
  right[tx] = A[64 + tx];  // fill
  __syncthreads();
  scale(tl::raw(left + (0)), tx, 2.0f);
  __syncthreads();  // it is scaled
  pair[0] = sum_of(tl::raw(left + (8)), 8);
  pair[1] = right[63 - tx];
  scale(tl::raw(pair + (0)), 0, 2.0f);
  scale(tl::raw(pair + (0)), 1, 2.0f);
  B[tx] = pair[0] + pair[1];
}
