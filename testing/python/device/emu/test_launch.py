"""Launching: limits, faults of the kernel, shared memory, threads of the host."""

import ctypes
import threading

import numpy as np
import pytest

SOURCE = """#include <tl/common.h>
#line 1 "user.py"
extern "C" __global__ void wild(int* p, int offset) { p[offset] = 1; }
extern "C" __global__ void divides(int* p, int zero) {
  __syncthreads();
  p[threadIdx.x] = 7 / zero;
}
__attribute__((noinline)) int deep(volatile int* p, int n) {
  volatile int local[1000];
  local[n % 1000] = n;
  return n == 0 ? local[0] : deep(local, n - 1) + local[n % 1000];
}
extern "C" __global__ void overflows(int* p, int n) { p[0] = deep(p, n); }
extern "C" __global__ void wide(int* p, int n) {
  volatile int local[200000];
  local[n] = n;
  p[0] = local[n];
}
extern "C" __global__ void misaligned(float* p, int offset) {
  tl::store(p + offset, tl::load<float, 4>(p));
}
extern "C" __global__ void shared(float* p, int index) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  float* s = (float*)buf_dyn_shmem;
  p[blockIdx.x] = s[threadIdx.x];
  s[index] = 1.0f;
}
struct Pair { int first; float second; };
extern "C" __global__ void types(int* p, int8_t a, uint64_t b, double c, half_t d, Pair e, bool f) {
  p[0] = a; p[1] = b; p[2] = c; p[3] = float(d); p[4] = e.first; p[5] = e.second; p[6] = f;
}
extern "C" __global__ void fill(int* p, int value) {
  __shared__ int common;
  for (int i = 0; i < 200; ++i) {
    if (threadIdx.x == i % 64) common = value + i;
    __syncthreads();
    p[threadIdx.x] = common;
    __syncthreads();
  }
}
"""


def aligned_floats(count):
    memory = np.zeros(count + 4, np.float32)
    return memory[-memory.ctypes.data % 16 // 4 :][:count]


@pytest.mark.parametrize(
    ("kernel", "number", "message"),
    [
        ("wild", 1 << 30, "thread (0, 0, 0) of block (0, 0, 0) of wild: invalid address 0x"),
        (
            "divides",
            0,
            "user.py:3: thread (31, 0, 0) of block (0, 0, 0) of divides: integer division",
        ),
        ("overflows", 100000, "the thread's local variables need more than 256 KiB"),
        # Its one frame ends in the memory in front of the stacks.
        ("wide", 0, "the thread's local variables need more than 256 KiB"),
    ],
)
def test_faults_are_errors_of_the_launch(run, kernel, number, message):
    with pytest.raises(RuntimeError) as error:
        run(SOURCE, kernel, [np.zeros(32, np.int32), number])
    assert message in str(error.value)


def test_misaligned_vectors(run):
    with pytest.raises(RuntimeError, match=r"user.py:18: .*misaligned address of a vector store"):
        run(SOURCE, "misaligned", [aligned_floats(16), 1])
    with pytest.raises(
        RuntimeError, match=r"misaligned address of a vector load.* 4 bytes past .* 16"
    ):
        run(SOURCE, "misaligned", [aligned_floats(16)[1:], 3])


def test_shared_memory_is_poisoned_in_every_block(run):
    out = np.zeros(3, np.float32)
    run(SOURCE, "shared", [out, 0], grid=3, block=1, shared=64, checks=False)
    assert np.isnan(out).all()


def test_writing_behind_shared_memory_is_an_error(run):
    with pytest.raises(RuntimeError, match="wrote to byte 64 of 64 bytes of dynamic shared memory"):
        run(SOURCE, "shared", [np.zeros(1, np.float32), 16], shared=64, checks=False)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"block": 1025}, r"the block is \(1025, 1, 1\). Use 1 to 1024 threads"),
        ({"block": (1, 1, 65)}, r"the block is \(1, 1, 65\)"),
        ({"grid": 0}, r"the grid is \(0, 1, 1\)"),
        ({"grid": (1, 65536)}, r"the grid is \(1, 65536, 1\)"),
        ({"shared": 232449}, "232449 bytes of dynamic shared memory. Use at most 232448"),
    ],
)
def test_limits_of_a_launch(run, limits, message):
    with pytest.raises(RuntimeError, match=message):
        run(SOURCE, "wild", [np.zeros(1, np.int32), 0], **limits)


def test_arguments_of_all_types(run):
    class Pair(ctypes.Structure):
        _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_float))

    out = np.zeros(7, np.int32)
    half = ctypes.c_uint16(np.float16(4).view(np.uint16))
    numbers = [ctypes.c_int8(-1), ctypes.c_uint64(2), ctypes.c_double(3.0), half, Pair(5, 6.0)]
    run(SOURCE, "types", [out, *numbers, ctypes.c_bool(True)], block=1)
    assert out.tolist() == [-1, 2, 3, 4, 5, 6, 1]


def test_host_threads_launch_at_the_same_time(run):
    outs = [np.zeros(64, np.int32) for _ in range(4)]
    jobs = [
        threading.Thread(target=run, args=(SOURCE, "fill", [out, 1000 * i]), kwargs={"block": 64})
        for i, out in enumerate(outs)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [set(out.tolist()) for out in outs] == [{1000 * i + 199} for i in range(4)]
