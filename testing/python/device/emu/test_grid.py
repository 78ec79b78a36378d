"""Several blocks at a time: clusters, their barriers and memory, the whole grid."""

import numpy as np
import pytest

SOURCE = """#include <tl/common.h>
#include <tl/atomic.h>
#include <tl/grid.h>
#line 1 "user.py"
extern "C" __global__ void places(int* out) {
  const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const uint3 c = tl::cluster_id(), i = tl::block_id_in_cluster(), n = tl::clusters_in_grid();
  const dim3 d = tl::cluster_dim();
  const int values[] = {tl::block_rank_in_cluster(), tl::cluster_size(), c.x, c.y, c.z,
                        i.x, i.y, i.z, n.x, n.y, n.z, d.x, d.y, d.z};
  for (int k = 0; k < 14; ++k) out[b * 14 + k] = values[k];
}
extern "C" __global__ void neighbour(int* out, int rounds) {
  int* s = (int*)tl::dynamic_shared();
  int* fixed = (int*)tl::static_shared<256>();
  const int size = tl::cluster_size(), rank = tl::block_rank_in_cluster();
  const int peer = (rank + 1) % size, t = threadIdx.x;
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    s[t] = blockIdx.x * 100 + t + i;
    fixed[t] = 1000 * rank;
    tl::cluster_arrive();
    tl::cluster_wait();
    sum += tl::map_shared_rank(s, peer)[t] + tl::map_shared_rank(fixed + t, peer)[0];
    tl::cluster_sync();
  }
  out[blockIdx.x * blockDim.x + t] = sum;
}
extern "C" __global__ void early_exit(int* out) {
  if (threadIdx.x >= 32) tl::cluster_arrive_relaxed();
  if (threadIdx.x >= 32) return;
  tl::cluster_sync();
  out[blockIdx.x] = 1;
}
extern "C" __global__ void lost_arrival(int* out) {
  if (blockIdx.x == 3 && threadIdx.x >= 32) tl::sync_threads_partial(2, 64);
  tl::cluster_sync();
}
extern "C" __global__ void arrives_twice(int* out) {
  tl::cluster_arrive();
  tl::cluster_arrive();
}
extern "C" __global__ void waits_only(int* out) { tl::cluster_wait(); }
extern "C" __global__ void diverging(int* out) {
  if (threadIdx.x < 16)
    tl::cluster_arrive();
  else
    tl::cluster_arrive_relaxed();
}
extern "C" __global__ void not_shared(int* out) { tl::map_shared_rank(out, 0)[0] = 1; }
extern "C" __global__ void no_such_rank(int* out) {
  *tl::map_shared_rank(tl::dynamic_shared(), 2) = 1;
}
extern "C" __global__ void prefix(int* data, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (int step = 1; step < 1 << steps; step *= 2) {
    const int value = data[i] + (i >= step ? data[i - step] : 0);
    tl::sync_grid();
    data[i] = value;
    tl::sync_grid();
  }
}
extern "C" __global__ void some_leave(int* out) {
  if (blockIdx.x == 1) return;
  tl::sync_grid();
}
extern "C" __global__ void hand_off(int* out, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x < 32) {
      tl::sync_threads_partial(1, 64);
      out[threadIdx.x] += out[32 + threadIdx.x];
      tl::named_barrier_arrive(2, 64);
    } else {
      out[threadIdx.x] = i;
      tl::named_barrier_arrive(1, 64);
      tl::sync_threads_partial(2, 64);
    }
  }
}
extern "C" __global__ void arrives_for_none(int* out) { tl::named_barrier_arrive(1, 0); }
extern "C" __global__ void waits_for_a_flag(int* out) {
  int* flag = (int*)tl::dynamic_shared();
  if (threadIdx.x == 0) *flag = 0;
  tl::sync_threads();
  if (threadIdx.x == 63) tl::atomic_store<tl::release>(flag, 5);
  while (tl::atomic_load<tl::acquire>(flag) != 5) {}
  while (tl::fetch_or<tl::acquire>(flag, 0) != 5) {}
  out[threadIdx.x] = tl::atomic_load<tl::relaxed>(flag);
}
extern "C" __global__ void polls_for_ever(int* out) {
  if (threadIdx.x < 3) return;
  while (tl::atomic_load<tl::acquire>(out) == 0) {}
}
"""
# How threads poll in vain: nobody arrives at `b`, nobody writes `flags`.
VAIN = {
    "polls_alone": "if (threadIdx.x == 3) while (!tl::mbarrier_test_wait(b, 0)) {}",
    "polls_mbarriers": "for (int k = 0; !tl::mbarrier_try_wait(b + k % 2, 0); ++k) {}",
    "polls_flags": "for (int k = 0; !tl::atomic_load<tl::acquire>(flags + k % 20); ++k) {}",
    "meets_its_warp": "while (!tl::mbarrier_test_wait(b, 0)) tl::sync_warp(~0u);",
    "meets_the_block": "while (!tl::mbarrier_test_wait(b, 0)) tl::sync_threads();",
    "one_lane_polls": """
  for (bool ended = false; !ended;) {
    if (threadIdx.x == 0) ended = tl::mbarrier_test_wait(b, 0);
    ended = tl::any_sync(~0u, ended);
  }""",
}
POLLS = """#include <tl/common.h>
#include <tl/atomic.h>
#include <tl/warp.h>
#include <tl/mbarrier.h>
""" + "".join(
    f"""
extern "C" __global__ void {name}(int* flags) {{
  auto b = tl::shared<uint64_t, 2>(tl::static_shared<16>());
  if (threadIdx.x == 0) {{
    tl::mbarrier_init(b, 1);
    tl::mbarrier_init(b + 1, 1);
  }}
  tl::sync_threads();
#line 1 "user.py"
  {body}
}}
"""
    for name, body in VAIN.items()
)
OWN_ARRAY = """#include <tl/common.h>
extern "C" __global__ void own_array(int* out) {
  __shared__ int s[1];
  s[0] = 1;
  out[0] = s[0];
}
"""


def report(run, kernel, **how):
    with pytest.raises(RuntimeError) as error:
        run(SOURCE, kernel, [np.zeros(256, np.int32)], shared=64, **how)
    return str(error.value)


def test_where_a_block_is_in_its_cluster(run):
    out = np.zeros((2, 6, 4, 14), np.int32)
    run(SOURCE, "places", [out], grid=(4, 6, 2), block=1, cluster=(2, 3, 1))
    z, y, x = np.indices(out.shape[:3])
    same = np.zeros_like(x)
    inside = [x % 2, y % 3, same]
    clusters, extents = [same + 2, same + 2, same + 2], [same + 2, same + 3, same + 1]
    rank = x % 2 + 2 * (y % 3)
    wanted = [rank, same + 6, x // 2, y // 3, z, *inside, *clusters, *extents]
    np.testing.assert_array_equal(out, np.stack(wanted, axis=-1))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_blocks_of_a_cluster_read_each_others_memory(run, size):
    out = np.zeros((4, 40), np.int32)
    run(SOURCE, "neighbour", [out, 3], grid=4, block=40, shared=160, cluster=(size, 1, 1))
    b, t = np.indices(out.shape)
    peer = b // size * size + (b + 1) % size
    np.testing.assert_array_equal(out, 3 * (peer * 100 + t + 1000 * (peer % size)) + 3)


def test_the_barrier_of_a_cluster_does_not_wait_for_threads_that_exited(run):
    out = np.zeros(4, np.int32)
    run(SOURCE, "early_exit", [out], grid=4, block=64, cluster=(2, 1, 1))
    assert out.tolist() == [1] * 4


def test_a_lost_arrival_names_block_and_threads(run):
    lines = report(run, "lost_arrival", grid=4, block=64, cluster=(2, 1, 1)).splitlines()
    waiting = "for the barrier of the cluster: 96 of 128 threads have arrived"
    assert lines == [
        "deadlock in cluster (1, 0, 0) of lost_arrival: 128 of 128 threads wait and none is left "
        "to release them. Let all of them reach the same barrier",
        " block (2, 0, 0)",
        f"  threads 0..63 wait at user.py:33 {waiting}; threads of block (3, 0, 0) could still "
        "arrive",
        " block (3, 0, 0)",
        f"  threads 0..31 wait at user.py:33 {waiting}; threads 32..63 could still arrive",
        "  threads 32..63 wait at user.py:32 for barrier 2: 32 of 64 threads have arrived; threads "
        "0..31 could still arrive",
    ]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("arrives_twice", "user.py:37: thread (30, 0, 0) of block (0, 0, 0) of arrives_twice: a s"),
        ("waits_only", "tl::cluster_wait without tl::cluster_arrive before it"),
        ("diverging", "the lanes of a warp diverge: this one is at cluster_arrive_relaxed"),
        ("not_shared", "is not in the shared memory of this block"),
        ("no_such_rank", "block 2 of a cluster of 2 blocks. Use 0 to 1"),
        ("some_leave", "tl::sync_grid in a launch that is not cooperative"),
        ("arrives_for_none", "barrier 1 is to wait for no threads"),
    ],
)
def test_misuse(run, kernel, message):
    assert message in report(run, kernel, grid=2, cluster=(2, 1, 1))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"grid": 3}, r"the grid \(3, 1, 1\) does not divide into clusters of \(2, 1, 1\)"),
        ({"grid": 34, "cluster": (17, 1, 1)}, r"the cluster is \(17, 1, 1\). Use 1 to 16 blocks"),
        ({"grid": 2000, "cooperative": True}, "2000 blocks of 32 threads at the same time"),
    ],
)
def test_limits_of_a_launch(run, limits, message):
    with pytest.raises(RuntimeError, match=message):
        run(SOURCE, "waits_only", [np.zeros(1, np.int32)], **{"cluster": (2, 1, 1), **limits})


def test_arrays_that_blocks_would_have_in_common_are_refused(run):
    out = np.zeros(1, np.int32)
    for how in ({"cluster": (2, 1, 1)}, {"cooperative": True}):
        with pytest.raises(RuntimeError, match="which __shared__ arrays do not allow"):
            run(OWN_ARRAY, "own_array", [out], grid=2, **how)
    assert out[0] == 0
    run(OWN_ARRAY, "own_array", [out], grid=2)
    assert out[0] == 1


@pytest.mark.parametrize("cluster", [1, 2])
def test_all_blocks_of_a_grid_wait_for_each_other(run, cluster):
    data = np.arange(6 * 40, dtype=np.int32)
    wanted = np.cumsum(data)
    how = {"cooperative": True, "cluster": (cluster, 1, 1)}
    run(SOURCE, "prefix", [data, 8], grid=6, block=40, **how)
    np.testing.assert_array_equal(data, wanted)


def test_a_grid_that_some_threads_have_left(run):
    lines = report(run, "some_leave", grid=3, cooperative=True).splitlines()
    assert lines[0].startswith("deadlock in the grid of some_leave: 64 of 96 threads wait")
    waiting = (
        "for the barrier of the grid: 64 of 96 threads have arrived; no thread is left that could "
        "arrive"
    )
    assert lines[1:] == [
        " block (0, 0, 0)",
        f"  threads 0..31 wait at user.py:61 {waiting}",
        " block (2, 0, 0)",
        f"  threads 0..31 wait at user.py:61 {waiting}",
    ]


def test_threads_that_arrive_without_waiting(run):
    out = np.zeros(64, np.int32)
    run(SOURCE, "hand_off", [out, 5], block=64)
    assert out.tolist() == [0 + 1 + 2 + 3 + 4] * 32 + [4] * 32


def test_polling_lets_others_go_on(run):
    out = np.zeros(64, np.int32)
    run(SOURCE, "waits_for_a_flag", [out], block=64, shared=4)
    assert out.tolist() == [5] * 64


@pytest.mark.parametrize("kernel", VAIN)
def test_polling_in_vain_is_a_deadlock(run, kernel):
    """Whatever else such a loop does: all but the first two ran without end before."""
    with pytest.raises(RuntimeError, match=r"(?s)deadlock.*threads poll for at user\.py:\d"):
        run(POLLS, kernel, [np.zeros(32, np.int32)], block=32)


def test_polling_for_ever_is_a_deadlock(run):
    assert report(run, "polls_for_ever", block=40).splitlines()[1:] == [
        "  threads 0..2 have exited",
        "  threads 3..39 poll at user.py:88",
    ]
