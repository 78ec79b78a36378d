// Two warps take turns with one piece of shared memory.
#include <tl/common.h>
#include <tl/sync.h>

extern "C" __global__ void ping_pong(const float* __restrict__ A, float* __restrict__ B) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto scratch = tl::shared<float, 32>(buf_dyn_shmem + 0);
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  for (int i = 0; i < 3; ++i) {
    if (i > 0 || group == 1) tl::sync_threads_partial(1 + group, 64);  // wait for the turn
    scratch[lane] = A[(i * 2 + group) * 32 + lane];  // fill
    tl::sync_warp(0xffffffffu);
    B[(i * 2 + group) * 32 + lane] = scratch[31 - lane];  // use
    if (i < 2 || group == 0) tl::named_barrier_arrive(2 - group, 64);  // give the turn
  }
}
