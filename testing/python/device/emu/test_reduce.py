"""Collectives of values in the emulator: whole warps, and the last one of a block that is not."""

import numpy as np
import pytest

SOURCE = """#include <tl/common.h>
#include <tl/reduce.h>
extern "C" __global__ void reduce(const int* x, int* y) {
  const int t = threadIdx.x;
  y[t] = tl::AllReduce<tl::SumOp, 4, 2>(x[t]);
  y[48 + t] = tl::warp_scan<tl::MaxOp, 32>(x[t]);
  y[96 + t] = tl::warp_broadcast<3>(x[t]);
}
extern "C" __global__ void partial(const float* x, float* y) {
  y[threadIdx.x] = tl::AllReduceIfWhole<tl::SumOp, 32, 1>(x[threadIdx.x]);
}
extern "C" __global__ void missing(const float* x, float* y) {
#line 5 "user.py"
  y[threadIdx.x] = tl::AllReduce<tl::SumOp, 32, 1>(x[threadIdx.x]);
}
extern "C" __global__ void divergent(const float* x, float* y) {
#line 7 "user.py"
  if (threadIdx.x < 16) y[threadIdx.x] = tl::AllReduce<tl::SumOp, 16, 1>(x[threadIdx.x]);
}
"""


def test_lanes(run):
    x = np.random.default_rng(0).integers(-9, 9, 48).astype(np.int32)
    y = np.zeros(144, np.int32)
    run(SOURCE, "reduce", [x, y], block=48)
    pairs = x.reshape(6, 4, 2).sum(1)  # lanes two apart, four of them
    np.testing.assert_array_equal(y[:48].reshape(6, 4, 2), pairs[:, None, :].repeat(4, 1))
    for warp in (slice(0, 32), slice(32, 48)):
        np.testing.assert_array_equal(y[48:96][warp], np.maximum.accumulate(x[warp]))
        assert (y[96:][warp] == x[warp][3]).all()


def test_a_lane_that_does_not_exist_is_reported(run):
    x, y = np.ones(48, np.float32), np.zeros(48, np.float32)
    with pytest.raises(RuntimeError, match=r"user.py:5.*does not exist: the block has 48 threads"):
        run(SOURCE, "missing", [x, y], block=48)


def test_a_group_without_all_its_lanes_has_no_number(run):
    x, y = np.ones(48, np.float32), np.zeros(48, np.float32)
    run(SOURCE, "partial", [x, y], block=48)
    assert (y[:32] == 32).all()
    assert np.isnan(y[32:]).all()


def test_lanes_that_stay_away_are_reported(run):
    unused = np.zeros(32, np.float32)
    with pytest.raises(RuntimeError, match=r"user.py:7 for AllReduce: 16 of 32 lanes"):
        run(SOURCE, "divergent", [unused, unused])
