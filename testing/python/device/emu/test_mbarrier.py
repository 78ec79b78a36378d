"""mbarriers in the emulator: phases, transactions, and what is reported."""

from functools import partial

import numpy as np
import pytest

HEADERS = """#include <tl/common.h>
#include <tl/bulk_copy.h>
#include <tl/copy.h>
#include <tl/mbarrier.h>
"""
# A ring of two stages: warp 0 fills them, warp 1 empties them.
RING = HEADERS + "".join(
    f"""
extern "C" __global__ void {name}(const float* x, float* y, int steps) {{
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  float* ring = (float*)buf_dyn_shmem;
  __shared__ uint64_t full[2], empty[2];
  const int t = threadIdx.x % 32;
  if (threadIdx.x == 0) {{
    for (int i = 0; i < 2; ++i) {{
      tl::mbarrier_init(full + i, {arrivals});
      tl::mbarrier_init(empty + i, 32);
    }}
    tl::fence_barrier_init();
  }}
  tl::sync_threads();
  if (threadIdx.x < 32) {{
    for (int k = 0; k < steps; ++k) {{
      tl::mbarrier_wait(empty + k % 2, (k / 2 & 1) ^ 1);
      {fill}
    }}
  }} else {{
    for (int k = 0; k < steps; ++k) {{
      {wait};
      y[k * 32 + t] = ring[k % 2 * 32 + 31 - t];
      tl::fence_proxy_async();
      tl::mbarrier_arrive(empty + k % 2);
    }}
  }}
}}
"""
    for name, arrivals, fill, wait in [
        (
            "stores",
            32,
            "ring[k % 2 * 32 + t] = x[k * 32 + t]; tl::mbarrier_arrive(full + k % 2);",
            "tl::mbarrier_wait(full + k % 2, k / 2 & 1)",
        ),
        (
            "bulk",
            1,
            """if (t == 0) {
        tl::bulk_load(ring + k % 2 * 32, x + k * 32, 64, full + k % 2);
        tl::bulk_load(ring + k % 2 * 32 + 16, x + k * 32 + 16, 64, full + k % 2);
        tl::mbarrier_arrive_expect_tx(full + k % 2, 128);
      }""",
            "while (!tl::mbarrier_try_wait(full + k % 2, k / 2 & 1)) {}",
        ),
        (
            "bulk_in_two_calls",
            3,
            """if (t == 0) {
        tl::mbarrier_expect_tx(full + k % 2, 128);
        tl::bulk_load(ring + k % 2 * 32, x + k * 32, 128, full + k % 2);
        tl::mbarrier_arrive(full + k % 2, 3);
      }""",
            "while (!tl::mbarrier_test_wait(full + k % 2, k / 2 & 1)) {}",
        ),
        (
            "copies",
            32,
            """tl::cp_async_gs<4>(ring + k % 2 * 32 + t, x + k * 32 + t);
      tl::cp_async_mbarrier_arrive_noinc(full + k % 2);""",
            "tl::mbarrier_wait(full + k % 2, k / 2 & 1)",
        ),
        (
            "copies_and_arrivals",
            32,
            """tl::cp_async_gs<4>(ring + k % 2 * 32 + t, x + k * 32 + t);
      tl::cp_async_mbarrier_arrive(full + k % 2);
      tl::mbarrier_arrive(full + k % 2);""",
            "tl::mbarrier_wait(full + k % 2, k / 2 & 1)",
        ),
        (
            "signals_itself",
            1,
            """ring[k % 2 * 32 + t] = x[k * 32 + t];
      tl::sync_warp(0xffffffff);
      if (t == 0) {
        tl::mbarrier_arrive_expect_tx(full + k % 2, 16);
        tl::mbarrier_complete_tx(full + k % 2, 16);
      }""",
            "tl::mbarrier_wait(full + k % 2, k / 2 & 1)",
        ),
    ]
)
BULK = (
    HEADERS
    + """
extern "C" __global__ void there_and_back(const int* x, int* y, int* sum) {
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  int* tile = (int*)buf_dyn_shmem;
  __shared__ uint64_t barrier[1];
  if (threadIdx.x == 0) {
    tl::mbarrier_init(barrier, 1);
    tl::fence_barrier_init();
    tl::bulk_prefetch(x, 256);
    tl::mbarrier_arrive_expect_tx(barrier, 256);
    tl::bulk_load(tile, x, 256, barrier);
  }
  tl::sync_threads();
  tl::mbarrier_wait(barrier, 0);
  tile[threadIdx.x] *= 2;
  tl::fence_proxy_async();
  tl::sync_threads();
  if (threadIdx.x == 0) {
    tl::bulk_store(y, tile, 256);
    tl::tma_store_arrive();
    tl::bulk_reduce_add(sum, tile, 256);
    tl::tma_store_arrive();
    tl::tma_store_wait<1, false>();
    sum[64] = y[5];
    tl::tma_store_wait<0>();
    for (int i = 0; i < 64; ++i) tile[i] = 0;
  }
}
"""
)
# Each body runs in a block of 64 threads with an mbarrier for one arrival.
WRONG = {
    "arrives_twice": (
        "tl::mbarrier_expect_tx(b, 16); tl::mbarrier_arrive(b); tl::mbarrier_arrive(b);",
        r"1 arrivals at an mbarrier where 0 of 1 are missing in phase 0",
    ),
    "arrives_by_too_many": (
        "tl::mbarrier_arrive(b, 2);",
        "2 arrivals at an mbarrier where 1 of 1 are missing",
    ),
    "not_initialised": ("tl::mbarrier_arrive(b + 1);", "arrival of an mbarrier that is not"),
    "overwritten": ("*(int*)b = 0; tl::mbarrier_wait(b, 0);", "wait of an mbarrier that is not"),
    "after_inval": (
        "tl::mbarrier_inval(b); tl::mbarrier_test_wait(b, 0);",
        "test_wait of an mbarrier that is not initialised",
    ),
    "initialised_twice": ("tl::mbarrier_init(b, 1);", r"was initialised at user.py:\d+ and not"),
    "no_arrivals": ("tl::mbarrier_init(b + 1, 0);", "expects 0 arrivals. Use 1 to 1048575"),
    "misaligned": ("tl::mbarrier_init((uint64_t*)((char*)b + 12), 1);", "misaligned address of an"),
    "too_many_bytes": (
        "tl::mbarrier_expect_tx(b, 1000000); tl::mbarrier_expect_tx(b, 100000);",
        "100000 more bytes of transactions at an mbarrier that waits for 1000000",
    ),
    "bytes_left": (
        "tl::mbarrier_arrive_expect_tx(b, 64);",
        "the block ends while this mbarrier expects 64 bytes",
    ),
    "load_left": (
        "tl::mbarrier_expect_tx(b, 64); tl::bulk_load(buf_dyn_shmem, x, 64, b);",
        "the block ends while this operation is in flight. Wait for phase 0",
    ),
    "store_left": (
        "tl::bulk_store(x, buf_dyn_shmem, 64); tl::tma_store_arrive();",
        "the block ends while this copy reads its shared memory",
    ),
    "odd_size": ("tl::bulk_load(buf_dyn_shmem, x, 24, b);", "a bulk copy of 24 bytes"),
    "outside": (
        "tl::bulk_load(buf_dyn_shmem + 227 * 1024 - 16, x, 32, b);",
        "this end of a bulk copy is not in the block's shared memory",
    ),
    "waits_for_ever": (
        "tl::mbarrier_arrive_expect_tx(b, 64); tl::mbarrier_wait(b, 0);",
        r"threads 0 wait at user.py:\d+ for the end of phase 0 \(parity 0\) of the mbarrier "
        r"initialised at user.py:\d+: 1 of 1 arrivals, 64 bytes of transactions to come",
    ),
}
ERRORS = (
    HEADERS
    + "".join(
        f"""
extern "C" __global__ void {name}(float* x) {{
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  __shared__ __align__(16) uint64_t b[2];
  if (threadIdx.x == 0) b[0] = b[1] = 0;
#line 1 "user.py"
  if (threadIdx.x == 0) tl::mbarrier_init(b, 1);
  tl::sync_threads();
  if (threadIdx.x == 0) {{ {body} }}
}}
"""
        for name, (body, _) in WRONG.items()
    )
    + """
extern "C" __global__ void two_phases_behind(float* x) {
  __shared__ uint64_t b[1];
#line 1 "user.py"
  if (threadIdx.x == 0) tl::mbarrier_init(b, 1);
  tl::sync_threads();
  if (threadIdx.x < 32) {
    tl::mbarrier_wait(b, 0);
  } else if (threadIdx.x == 32) {
    tl::mbarrier_arrive(b);
    tl::mbarrier_arrive(b);
  }
}
"""
)


@pytest.mark.parametrize(
    "kernel",
    ["stores", "bulk", "bulk_in_two_calls", "copies", "copies_and_arrivals", "signals_itself"],
)
def test_ring(run, aligned, kernel):
    x = aligned(np.random.default_rng(0).standard_normal((7, 32)).astype(np.float32))
    y = np.zeros_like(x)
    run(RING, kernel, [x, y, 7], block=64, shared=256)
    np.testing.assert_array_equal(y, x[:, ::-1])


@pytest.mark.parametrize("kernel", ["bulk", "copies"])
def test_loads_may_be_late_for_a_bulk_copy(run, aligned, kernel):
    """A generic read that an arrival follows is over for other threads, but not for the engine."""
    x = aligned(np.ones((7, 32), np.float32))
    source = RING.replace("tl::fence_proxy_async();", "")
    launch = partial(run, source, kernel, [x, np.zeros_like(x), 7], block=64, shared=256)
    if kernel == "copies":
        launch()
        return
    with pytest.raises(RuntimeError, match=r"bulk load .*\n?.* read it .*\n?.*fence\.proxy\.async"):
        launch()


def test_bulk_copies_there_and_back(run, aligned):
    x, y = (aligned(np.arange(64, dtype=np.int32)) for _ in range(2))
    old = aligned(np.arange(100, 168, dtype=np.int32))
    total = old.copy()
    total = aligned(total)
    run(BULK, "there_and_back", [x, y, total], block=64, shared=256)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(total[:64], old[:64] + 2 * x)
    assert total[64] == 10


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_reported(run, aligned, name):
    with pytest.raises(RuntimeError, match=WRONG[name][1]):
        run(ERRORS, name, [aligned(np.zeros(64, np.float32))], block=64, shared=227 * 1024)


def test_a_phase_that_is_missed(run):
    message = "ended phase 0 and 1 more while this thread waited for the first"
    with pytest.raises(RuntimeError, match=message):
        run(ERRORS, "two_phases_behind", [np.zeros(1, np.float32)], block=64)
