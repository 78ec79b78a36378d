"""Schedules by name and seed, and blocks on several cores."""

import numpy as np
import pytest

from tilelang.emulator import Schedule, current_schedule, schedule
from tilelang.env import env


@pytest.fixture(autouse=True)
def no_checks(monkeypatch):
    """Programs that race on purpose, and on several workers, which the checks do not have."""
    monkeypatch.setenv("TILELANG_EMULATE_CHECKS", "0")


SOURCE = """#include <tl/common.h>
#include <tl/atomic.h>
#include <tl/copy.h>
#line 1 "user.py"
extern "C" __global__ void tickets(int* order, int* counter, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    order[tl::fetch_add<tl::relaxed>(counter + blockIdx.x, 1) + blockIdx.x * blockDim.x] =
        threadIdx.x;
    if (rounds > 1) tl::sync_warp(0xffffffff);
  }
}
extern "C" __global__ void overwrites(float* data, float* out) {
  float* s = (float*)tl::dynamic_shared();
  for (int i = 0; i < 4; ++i) s[threadIdx.x * 4 + i] = -1;
  for (int i = 0; i < 16; ++i) {
    tl::cp_async_gs<16>(s + threadIdx.x * 4, data);
    tl::cp_async_commit();
    out[i * 32 + threadIdx.x] = s[threadIdx.x * 4];
    tl::cp_async_wait<0>();
    s[threadIdx.x * 4] = -1;
  }
}
extern "C" __global__ void half_waits(int* out) {
  if (threadIdx.x < 32) tl::sync_threads_partial(1, 64);
}
extern "C" __global__ void next_block(int* flags, int last) {
  if (blockIdx.x < last)
    while (tl::atomic_load<tl::acquire>(flags + blockIdx.x + 1) == 0) {}
  tl::sync_threads();
  if (threadIdx.x == 0) tl::atomic_store<tl::release>(flags + blockIdx.x, 1);
}
extern "C" __global__ void tries(int* flag) {
  if (blockIdx.x == 0)
    for (int i = 0; i < 100000 && tl::atomic_load<tl::acquire>(flag) != 77; ++i) {}
  if (threadIdx.x == 0) tl::atomic_store<tl::release>(flag, 5);
  while (tl::atomic_load<tl::acquire>(flag) == 0) {}
}
extern "C" __global__ void histogram(int* counts, int bins) {
  for (int i = 0; i < 100; ++i) tl::atomic_add<tl::relaxed>(counts + (threadIdx.x + i) % bins, 1);
}
extern "C" __global__ void halves(half_t* sum) {
  for (int i = 0; i < 8; ++i) tl::atomic_add<tl::relaxed>(sum + threadIdx.x, half_t(1.0f));
}
extern "C" __global__ void some_fail(int* out, int from) {
  out[blockIdx.x] = blockIdx.x;
  if (blockIdx.x >= from) tl::sync_threads_partial(16, 32);
}
"""
PLAIN = """#include <tl/common.h>
extern "C" __global__ void own_array(int* out, int rounds) {
  __shared__ int s[64];
  for (int i = 0; i < rounds; ++i) {
    s[threadIdx.x] = blockIdx.x + i;
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
    __syncthreads();
  }
}
"""


def order(run, block=64, rounds=1, grid=1, **how):
    out, counter = np.zeros((grid, block * rounds), np.int32), np.zeros(grid, np.int32)
    with schedule(**how):
        run(SOURCE, "tickets", [out, counter, rounds], grid=grid, block=block)
    assert (np.sort(out) == np.repeat(np.arange(block), rounds)).all()
    return out.tolist()


def test_round_robin_takes_threads_as_they_became_ready(run):
    assert order(run, grid=2) == [list(range(64))] * 2


def test_a_random_order_is_that_of_its_seed(run):
    orders = [order(run, seed=seed) for seed in range(4)]
    assert len({str(o) for o in orders}) == 4
    assert orders[3] == order(run, order="random", seed=3)
    first, second = order(run, seed=3, grid=2)
    assert first == orders[3][0]
    assert second != first


def roles(run, threads, **how):
    """Which role takes each ticket; consecutive ones of one role count once."""
    taken = np.array(order(run, 256, 4, **how)[0]) // threads
    return taken[np.flatnonzero(np.diff(taken, prepend=-1))].tolist()


def test_an_adversarial_order_lets_one_role_go_as_far_as_it_can(run):
    assert len(roles(run, 32, order="round_robin")) > 8
    warps = [roles(run, 32, order="adversarial", seed=seed) for seed in (0, 2, 4)]
    assert all(sorted(w) == list(range(8)) for w in warps)
    assert warps[0] != warps[1]
    groups = [roles(run, 128, order="adversarial", seed=seed) for seed in range(1, 12, 2)]
    assert {tuple(g) for g in groups} == {(0, 1), (1, 0)}


def test_when_asynchronous_copies_are_performed(run):
    def seen(**how):
        out = np.zeros((16, 32), np.float32)
        with schedule(**how):
            run(SOURCE, "overwrites", [data, out], shared=512)
        return out

    memory = np.full(8, 3, np.float32)
    data = memory[-memory.ctypes.data % 16 // 4 :][:4]
    assert (seen() == -1).all()
    assert (seen(asynchronous="late", seed=1) == -1).all()
    assert (seen(asynchronous="early") == 3).all()
    some = seen(seed=1)
    assert set(np.unique(some)) == {-1, 3}
    assert (some == seen(seed=1)).all()


def test_a_report_says_how_to_have_the_schedule_again(run):
    def report(**how):
        with pytest.raises(RuntimeError) as error, schedule(**how):
            run(SOURCE, "half_waits", [np.zeros(1, np.int32)], block=64)
        return str(error.value).splitlines()

    lines = [
        "deadlock in block (0, 0, 0) of half_waits: 32 of 64 threads wait and none is left to "
        "release them. Let as many threads come to each named barrier as it counts, as often as "
        "others wait there",
        "  threads 0..31 wait at user.py:20 for barrier 1: 32 of 64 threads have arrived; no "
        "thread is left that could arrive",
        "  threads 32..63 have exited",
    ]
    assert report() == lines
    again = 'schedule: tilelang.emulator.schedule("adversarial", seed=9, asynchronous="random")'
    assert report(order="adversarial", seed=9) == [*lines, again]


def test_the_environment_chooses_a_schedule(monkeypatch):
    assert current_schedule() == Schedule()
    monkeypatch.setenv("TILELANG_EMULATE_SEED", "7")
    assert current_schedule() == Schedule("random", "random", 7)
    monkeypatch.setenv("TILELANG_EMULATE_SCHEDULE", "adversarial")
    monkeypatch.setenv("TILELANG_EMULATE_WORKERS", "3")
    assert current_schedule() == Schedule("adversarial", "random", 7, 3)
    with schedule(workers=1), schedule(asynchronous="early") as inner:
        assert inner == current_schedule() == Schedule("adversarial", "early", 7, 1)
    monkeypatch.setenv("TILELANG_EMULATE_SCHEDULE", "fifo")
    with pytest.raises(ValueError, match="order: expected one of round_robin, random, adversarial"):
        current_schedule()


@pytest.mark.parametrize("wrong", [{"asynchronous": "now"}, {"seed": -1}, {"workers": 9999}])
def test_schedules_that_do_not_exist(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"), schedule(**wrong):
        pass


ORDERS = ["round_robin", "random", "adversarial"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", ORDERS)
def test_a_block_may_wait_for_a_later_one(run, name, workers):
    flags = np.zeros(20, np.int32)
    with schedule(name, workers=workers):
        run(SOURCE, "next_block", [flags, 19], grid=20, block=40)
    assert flags.tolist() == [1] * 20


@pytest.mark.parametrize("workers", [1, 2])
def test_waiting_for_a_block_that_does_not_exist_is_reported(run, workers):
    with pytest.raises(RuntimeError) as error, schedule(workers=workers):
        run(SOURCE, "next_block", [np.zeros(5, np.int32), 4], grid=4)
    # Two workers share the blocks as it comes; the report is that of the worker with the first.
    lines = str(error.value).splitlines()
    assert "block (0, 0, 0)" in str(error.value)
    assert lines[-1] == "  threads 0..31 poll at user.py:24"
    if workers == 1:
        assert lines[0].startswith("deadlock in 4 blocks of next_block: 128 of 128 threads wait")
        assert lines[1::2] == [f" block ({b}, 0, 0)" for b in range(4)]


def test_more_blocks_than_there_is_room_for(run):
    with pytest.raises(RuntimeError, match=r"deadlock in 29 blocks of next_block") as error:
        run(SOURCE, "next_block", [np.zeros(31, np.int32), 30], grid=31, block=1024)
    last = str(error.value).splitlines()[-1]
    assert last == "2 blocks have not started: there is room for 29 at the same time"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loop_that_counts_its_attempts_goes_on(run, workers):
    flag = np.zeros(1, np.int32)
    with schedule(workers=workers):
        run(SOURCE, "tries", [flag], grid=2)
    assert flag[0] == 5


def test_atomic_operations_of_several_workers(run):
    with schedule(workers=4):
        counts = np.zeros(7, np.int32)
        run(SOURCE, "histogram", [counts, 7], grid=100, block=64)
        sums = np.zeros(32, np.float16)
        run(SOURCE, "halves", [sums], grid=100)
    assert counts.sum() == 100 * 64 * 100
    assert (sums == 800).all()


@pytest.mark.parametrize("workers", [1, 4])
def test_the_error_of_the_lowest_block_is_reported(run, workers):
    out = np.full(64, -1, np.int32)
    failed = pytest.raises(RuntimeError, match=r"thread \(0, 0, 0\) of block \(11, 0, 0\)")
    with failed, schedule(workers=workers):
        run(SOURCE, "some_fail", [out, 11], grid=64)
    assert out[:12].tolist() == list(range(12))


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_workers_have_shared_memory_of_their_own(run, workers):
    out = np.zeros((60, 64), np.int32)
    with schedule(workers=workers):
        run(PLAIN, "own_array", [out, 20], grid=60, block=64)
    np.testing.assert_array_equal(out, np.indices(out.shape)[0] + 19)


def test_assigned_variables_count(monkeypatch):
    monkeypatch.setattr(env, "TILELANG_EMULATE_SEED", 4)
    assert current_schedule().seed == 4
