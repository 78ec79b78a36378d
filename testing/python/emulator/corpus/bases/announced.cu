// Rows copied by cp.async, of which an mbarrier hears: two stages, each with copies of two kinds.
#include <tl/common.h>
#include <tl/copy.h>
#include <tl/mbarrier.h>

extern "C" __global__ void announced(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  unsigned char* buf_shmem = tl::static_shared<16>();
  auto A_shared = tl::shared<float, 256>(buf_dyn_shmem + 0);
  auto full = tl::shared<uint64_t, 2>(buf_shmem + 0);
  const int tx = threadIdx.x;
  if (tx < 2) tl::mbarrier_init(full + tx, 64);  // mbarriers
  __syncthreads();  // the mbarriers are there
  for (int k = 0; k < 2; ++k) {
    tl::cp_async_gs<4>(A_shared + k * 128 + tx, A + k * 128 + tx);  // first half
    tl::cp_async_gs<4>(A_shared + k * 128 + 64 + tx, A + k * 128 + 64 + tx);  // second half
    tl::cp_async_mbarrier_arrive_noinc(full + k);  // announce
  }
  float sum = 0.0f;
  for (int k = 0; k < 2; ++k) {
    tl::mbarrier_wait(full + k, 0);  // wait until it is full
    sum += A_shared[k * 128 + (tx ^ 33)] + A_shared[k * 128 + 127 - tx];  // use
  }
  B[tx] = sum;
}
