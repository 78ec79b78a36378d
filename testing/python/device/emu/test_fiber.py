"""Threads that wait for each other: barriers, deadlocks, divergence."""

import shlex

import numpy as np
import pytest

from tilelang.emulator.compiler import find_compiler

SOURCE = """#include <tl/common.h>
#include <tl/mma.h>
#line 1 "user.py"
extern "C" __global__ void early_exit(int* out) {
  __shared__ int value;
  if (threadIdx.x >= 40) return;
  if (threadIdx.x == 7) value = 5;
  __syncthreads();
  out[threadIdx.x] = value;
}
extern "C" __global__ void indices(int* out) {
  const int i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[b * 24 + i] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * b;
}
extern "C" __global__ void halves(int* out) {
  __shared__ int value[2];
  const int half = threadIdx.x / 64;
  for (int i = 0; i < 3; ++i) {
    if (threadIdx.x % 64 == i * 20) value[half] = i + 10 * half;
    tl::sync_threads_partial(1 + half, 64);
    out[i * 128 + threadIdx.x] = value[half];
    tl::sync_threads_partial(1 + half, 64);
  }
}
extern "C" __global__ void lost_arrival(int* out) {
  if (threadIdx.x < 32) return;
  if (threadIdx.x < 64)
    tl::sync_threads_partial(3, 64);
  else
    tl::sync_threads();
  out[threadIdx.x] = 1;
}
extern "C" __global__ void lane_missing(int* out) {
  alignas(16) half_t row[8], registers[8];
  if (threadIdx.x % 32 == 31) tl::sync_threads();
  tl::ptx_ldmatrix_x4(row, registers);
}
extern "C" __global__ void diverging(int* out) {
  alignas(16) half_t row[8], registers[8];
  if (threadIdx.x < 16)
    tl::ptx_ldmatrix_x4(row, registers);
  else
    tl::ptx_ldmatrix_x2(row, registers);
}
extern "C" __global__ void bad_barrier(int* out) { tl::sync_threads_partial(16, 32); }
extern "C" __global__ void bad_count(int* out) { tl::sync_threads_partial(1, 20); }
extern "C" __global__ void two_counts(int* out) {
  tl::sync_threads_partial(1, threadIdx.x < 32 ? 64 : 96);
}
"""


def report(run, kernel, block):
    with pytest.raises(RuntimeError) as error:
        run(SOURCE, kernel, [np.zeros(1024, np.int32)], block=block)
    return str(error.value)


def test_threads_that_exited_are_not_waited_for(run):
    out = np.zeros(64, np.int32)
    run(SOURCE, "early_exit", [out], block=64)
    assert out.tolist() == [5] * 40 + [0] * 24


def test_indices_in_three_dimensions(run):
    out = np.zeros((12, 4, 3, 2), np.int32)
    run(SOURCE, "indices", [out], grid=(3, 2, 2), block=(2, 3, 4))
    b, z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, x + 10 * y + 100 * z + 1000 * b)


def test_named_barriers_are_apart(run):
    out = np.zeros((3, 2, 64), np.int32)
    run(SOURCE, "halves", [out], block=128)
    np.testing.assert_array_equal(out, np.indices(out.shape)[0] + 10 * np.indices(out.shape)[1])


def test_a_lost_arrival_says_who_waits_where(run):
    assert report(run, "lost_arrival", 128).splitlines() == [
        "deadlock in block (0, 0, 0) of lost_arrival: 96 of 128 threads wait and none is left to "
        "release them. Let all of them reach the same barrier",
        "  threads 0..31 have exited",
        "  threads 32..63 wait at user.py:26 for barrier 3: 32 of 64 threads have arrived; "
        "threads 64..127 could still arrive",
        "  threads 64..127 wait at user.py:28 for barrier 0: 64 of 96 threads have arrived; "
        "threads 32..63 could still arrive",
    ]


def test_a_missing_lane_says_which_collective_waits(run):
    lines = report(run, "lane_missing", 64).splitlines()[1:]
    assert lines == [
        "  threads 0..30, 32..62 wait at user.py:34 for ptx_ldmatrix_x4: 31 of 32 lanes of the "
        "warp have arrived; threads 31, 63 could still arrive",
        "  threads 31, 63 wait at user.py:33 for barrier 0: 2 of 64 threads have arrived; "
        "threads 0..30, 32..62 could still arrive",
    ]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            "diverging",
            "user.py:41: thread (16, 0, 0) of block (0, 0, 0) of diverging: the lanes of a warp",
        ),
        ("bad_barrier", "barrier 16 does not exist. Use 0 to 15"),
        ("bad_count", "barrier 1 is to wait for 20 threads. Use a multiple of 32"),
        ("two_counts", "barrier 1 is to wait for 96 threads, but threads wait there for 64"),
    ],
)
def test_misuse(run, kernel, message):
    assert message in report(run, kernel, 96)


def test_the_runtime_works_after_an_error(run):
    report(run, "lost_arrival", 128)
    test_named_barriers_are_apart(run)


def test_machines_without_assembly_use_ucontext(run, monkeypatch):
    monkeypatch.setenv("CXX", f"{shlex.join(find_compiler())} -DTL_EMU_UCONTEXT")
    out = np.zeros((3, 2, 64), np.int32)
    run(SOURCE, "halves", [out], block=128)
    assert (out[2] == [[2], [12]]).all()
    with pytest.raises(RuntimeError, match=r"threads 32..63 wait at user.py:26 for barrier 3"):
        run(SOURCE, "lost_arrival", [out], block=128)
