"""cp.async in the emulator: double buffering, predicates, and what happens without the wait."""

import numpy as np
import pytest

# Each thread's chunk goes through one of two buffers, and is read by another thread.
SOURCE = "#include <tl/common.h>\n#include <tl/copy.h>\n" + "".join(
    f"""
extern "C" __global__ void {name}(const float* __restrict__ x, float* y, int steps) {{
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  float* buffer = (float*)buf_dyn_shmem;
  const int t = threadIdx.x;
  tl::cp_async_gs<16>(buffer + t * 4, x + t * 4);
  tl::cp_async_commit();
  for (int k = 0; k < steps; ++k) {{
    float* now = buffer + (k % 2) * 128;
    float* next = buffer + (k + 1) % 2 * 128;
    tl::cp_async_gs_conditional<16>(next + t * 4, x + (k + 1) * 128 + t * 4, k + 1 < steps);
    tl::cp_async_commit();
    {wait}
    tl::sync_threads();
    for (int i = 0; i < 4; ++i) y[k * 128 + i * 32 + t] = now[i * 32 + t];
    tl::sync_threads();
  }}
}}
"""
    for name, wait in [("waits", "tl::cp_async_wait<1>();"), ("forgets", "")]
)
PREDICATE = """#include <tl/common.h>
#include <tl/copy.h>
extern "C" __global__ void predicate(const int* x, int* y) {
  __shared__ __align__(16) int buffer[96];
  const int t = threadIdx.x;
  tl::cp_async_gs_conditional<4>(buffer + t, x + t, t % 2 == 0);
  if (t < 16) tl::cp_async_gs_conditional<8>(buffer + 32 + 2 * t, (const int*)nullptr, false);
  if (t < 16) tl::cp_async_gs<8>(buffer + 64 + 2 * t, x + 2 * t);
  tl::cp_async_commit();
  tl::cp_async_wait<0>();
  tl::sync_threads();
  for (int i = t; i < 96; i += 32) y[i] = buffer[i];
}
"""
MISALIGNED = """#include <tl/common.h>
#include <tl/copy.h>
extern "C" __global__ void misaligned(const half_t* x, int shared, int global) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
#line 33 "user.py"
  tl::cp_async_gs<16>((half_t*)buf_dyn_shmem + shared, x + global);
}
"""


def through_two_buffers(run, kernel, **how):
    x = np.random.default_rng(0).standard_normal(5 * 128).astype(np.float32)
    y = np.zeros_like(x)
    run(SOURCE, kernel, [x, y, 5], block=32, shared=1024, **how)
    return x, y


def test_two_buffers(run):
    x, y = through_two_buffers(run, "waits")
    np.testing.assert_array_equal(x, y)


def test_without_the_wait_shared_memory_stays_poisoned(run):
    _, y = through_two_buffers(run, "forgets", checks=False)
    assert np.isnan(y).all()


def test_a_false_predicate_writes_zeros_and_reads_nothing(run):
    x, y = np.arange(1, 33, dtype=np.int32), np.full(96, -1, np.int32)
    run(PREDICATE, "predicate", [x, y])
    np.testing.assert_array_equal(y[:32], np.where(np.arange(32) % 2 == 0, x, 0))
    np.testing.assert_array_equal(y[32:], [0] * 32 + x.tolist())


@pytest.mark.parametrize(("shared", "kind"), [(1, "shared"), (0, "global")])
def test_misaligned_addresses(run, shared, kind):
    x = np.zeros(64, np.float16)
    x = x[-x.ctypes.data % 16 // 2 :]
    message = (
        rf"user.py:33: thread \(0, 0, 0\) .* misaligned {kind} address of a cp.async.* 2 bytes"
    )
    with pytest.raises(RuntimeError, match=message):
        run(MISALIGNED, "misaligned", [x, shared, 1 - shared], shared=1024)
