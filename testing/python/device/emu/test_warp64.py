"""Collectives of warps of 64 lanes, the wavefronts of CDNA: masks of 64 bits, lanes above 31, and a
last warp that is not whole."""

import numpy as np
import pytest

ALL = "0xffffffffffffffffull"
SOURCE = f"""#include <tl/common.h>
#include <tl/reduce.h>
#include <tl/sync.h>
#include <tl/warp.h>
extern "C" __global__ void shuffles(const int* x, int* y) {{
  const int t = threadIdx.x;
  y[t] = tl::shfl_sync({ALL}, x[t], 40, 64);
  y[64 + t] = tl::shfl_up_sync({ALL}, x[t], 33, 64);
  y[128 + t] = tl::shfl_down_sync({ALL}, x[t], 33, 64);
  y[192 + t] = tl::shfl_xor_sync({ALL}, x[t], 32, 64);
  y[256 + t] = tl::shfl_xor_sync({ALL}, x[t], 16, 32);
  y[320 + t] = tl::shfl_sync({ALL}, x[t], 3, 32);
}}
extern "C" __global__ void votes(const int* x, uint64_t* y) {{
  const int t = threadIdx.x;
  y[320 + t] = tl::activemask();
  y[t] = tl::ballot_sync({ALL}, x[t] > 0);
  y[64 + t] = tl::match_any_sync({ALL}, x[t] % 3);
  y[128 + t] = tl::match_all_sync({ALL}, x[t] / 100);
  y[192 + t] = tl::any_sync({ALL}, t == 63) + 2 * tl::all_sync({ALL}, t < 63);
  if (t >= 32) y[256 + t] = tl::ballot_sync(0xffffffff00000000ull, t % 2);
}}
extern "C" __global__ void reductions(const int* x, int* y) {{
  const int t = threadIdx.x;
  y[t] = tl::AllReduce<tl::SumOp, 64, 1>(x[t]);
  y[128 + t] = tl::AllReduce<tl::MaxOp, 4, 16>(x[t]);
  y[256 + t] = tl::warp_scan<tl::SumOp, 64>(x[t]);
  y[384 + t] = tl::warp_broadcast<45>(x[t]);
  y[512 + t] = t % 64 < 31 ? 0 : tl::reduce_lanes<tl::SumOp>(0xffffffff80000000ull, x[t]);
}}
extern "C" __global__ void partial(const float* x, float* y) {{
  const int t = threadIdx.x;
  y[t] = tl::AllReduceIfWhole<tl::SumOp, 64, 1>(x[t]);
  y[96 + t] = tl::AllReduceIfWhole<tl::SumOp, 32, 1>(x[t]);
}}
extern "C" __global__ void half(const int* x, int* y) {{
#line 5 "user.py"
  if (threadIdx.x < 32) y[threadIdx.x] = tl::AllReduce<tl::SumOp, 32, 1>(x[threadIdx.x]);
}}
extern "C" __global__ void absent(const int* x, int* y) {{
#line 6 "user.py"
  if (threadIdx.x < 32) y[threadIdx.x] = tl::shfl_sync(0xffffffffull, x[threadIdx.x], 32, 64);
}}
extern "C" __global__ void outside(const int* x, int* y) {{
#line 7 "user.py"
  tl::sync_warp(0xffffffffull);
}}
"""


@pytest.fixture
def run64(run):
    """`run` of a kernel of `SOURCE`, for a block of 64 threads where it is not told."""

    def launch(kernel, args, block=64):
        run(SOURCE, kernel, args, block=block, warp_threads=64)

    return launch


def test_shuffles(run64):
    x, y = np.arange(64, dtype=np.int32) + 100, np.zeros((6, 64), np.int32)
    run64("shuffles", [x, y])
    t = np.arange(64)
    wanted = [np.full(64, 40), np.where(t < 33, t, t - 33), np.where(t > 30, t, t + 33)]
    wanted += [t ^ 32, t ^ 16, t // 32 * 32 + 3]
    np.testing.assert_array_equal(y - 100, wanted)


def bits_of(lanes):
    return sum(1 << int(lane) for lane in lanes)


def test_votes(run64):
    x, y = np.random.default_rng(0).integers(-9, 9, 64), np.zeros((6, 64), np.uint64)
    run64("votes", [x.astype(np.int32), y])
    assert set(y[0].tolist()) == {bits_of(np.flatnonzero(x > 0))}
    remainder = np.fmod(x, 3)
    for lane in range(64):
        assert int(y[1, lane]) == bits_of(np.flatnonzero(remainder == remainder[lane]))
    assert (y[2] == 2**64 - 1).all()
    assert (y[3] == 1).all()
    assert set(y[4, 32:].tolist()) == {bits_of(range(33, 64, 2))}
    assert (y[5] == 2**64 - 1).all()


def test_reductions(run64):
    x, y = np.random.default_rng(1).integers(-9, 9, (2, 64)), np.zeros((5, 2, 64), np.int32)
    run64("reductions", [x.astype(np.int32), y], block=128)
    np.testing.assert_array_equal(y[0], x.sum(1, keepdims=True).repeat(64, 1))
    np.testing.assert_array_equal(y[1], np.tile(x.reshape(2, 4, 16).max(1), 4))
    np.testing.assert_array_equal(y[2], x.cumsum(1))
    np.testing.assert_array_equal(y[3], x[:, 45:46].repeat(64, 1))
    np.testing.assert_array_equal(y[4, :, 31:], x[:, 31:].sum(1, keepdims=True).repeat(33, 1))


def test_a_group_without_all_its_lanes_has_no_number(run64):
    x, y = np.ones(96, np.float32), np.zeros((2, 96), np.float32)
    run64("partial", [x, y], block=96)
    assert (y[0, :64] == 64).all()
    assert np.isnan(y[0, 64:]).all()
    assert (y[1] == 32).all()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("half", r"user.py:5 for AllReduce: 32 of 64 lanes"),
        ("absent", r"user.py:6: .* lane 32 of its warp, which the lanes 00000000ffffffff"),
        ("outside", r"user.py:7: .* lane 32 waits for the lanes 00000000ffffffff of its warp"),
    ],
)
def test_reports(run64, kernel, message):
    unused = np.zeros(64, np.int32)
    with pytest.raises(RuntimeError, match=message):
        run64(kernel, [unused, unused])
