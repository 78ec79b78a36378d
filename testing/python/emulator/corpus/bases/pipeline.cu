// The sum of six tiles of 256, copied by cp.async two ahead into a ring of three stages.
#include <tl/common.h>
#include <tl/copy.h>

extern "C" __global__ void pipeline(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto A_shared = tl::shared<float, 768>(buf_dyn_shmem + 0);
  tl::local<float, 4> sum;
  const int tx = threadIdx.x;
  for (int i = 0; i < 4; ++i) {
    sum[i] = 0.0f;
  }
  for (int k = 0; k < 2; ++k) {
    tl::cp_async_gs<16>(A_shared + k * 256 + tx * 4, A + k * 256 + tx * 4);  // first fill
    tl::cp_async_commit();
  }
  for (int k = 0; k < 6; ++k) {
    tl::cp_async_wait<1>();
    __syncthreads();  // the stage is there
    for (int i = 0; i < 4; ++i) {
      sum[i] += A_shared[k % 3 * 256 + i * 64 + (tx ^ 33)];  // use
    }
    if (k < 4) tl::cp_async_gs<16>(A_shared + (k + 2) % 3 * 256 + tx * 4, A + (k + 2) * 256 + tx * 4);  // fill
    tl::cp_async_commit();  // filled
  }
  for (int i = 0; i < 4; ++i) {
    B[i * 64 + (tx ^ 33)] = sum[i];
  }
}
