// One warp fills two buffers in turn for another one, which empties them: named barriers 1 and 2
// say that a buffer is full, 3 and 4 that it is empty.
#include <tl/common.h>
#include <tl/sync.h>

extern "C" __global__ void handoff(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto buffers = tl::shared<float, 64>(buf_dyn_shmem + 0);
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 6; ++i) {
      if (i >= 2) tl::sync_threads_partial(3 + i % 2, 64);  // wait until it is empty
      buffers[i % 2 * 32 + lane] = A[i * 32 + lane];  // fill
      tl::named_barrier_arrive(1 + i % 2, 64);  // it is full
    }
  } else {
    for (int i = 0; i < 6; ++i) {
      tl::sync_threads_partial(1 + i % 2, 64);  // wait until it is full
      B[i * 32 + lane] = buffers[i % 2 * 32 + 31 - lane];  // use
      if (i < 4) tl::named_barrier_arrive(3 + i % 2, 64);  // it is empty
    }
  }
}
