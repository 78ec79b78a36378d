"""What holds for real numbers and not for floats is not used: a program that has x - x, x == x,
not x < 1 or (x + a) - a computes that, of infinities, NaN, signed zeros and large numbers, too.
"""

import math

import torch

import tilelang
import tilelang.language as T

VALUES = [1.0, -1.0, 0.0, -0.0, 3.0e38, 1.0e-3, float("inf"), -float("inf"), float("nan"), 2.5]
WANTED = {
    "x - x": lambda x: x - x,
    "x * 0": lambda x: x * 0.0,
    "0 / x": lambda x: 0.0 / x,
    "x + 0": lambda x: x + 0.0,
    "x + x - x - x": lambda x: x + x - x - x,
    "(x + a) - a": lambda x: (x + 1e8) - 1e8,
    "x == x": lambda x: x == x,
    "x != x": lambda x: x != x,
    "x <= x": lambda x: x <= x,
    "not x < 1": lambda x: ~(x < 1),
    "not x >= 1": lambda x: ~(x >= 1),
    "x - x == 0": lambda x: x - x == 0,
    "x < x + 1": lambda x: x < x + 1,
    "x >= 1 unless x < 1": lambda x: ~(x < 1) & (x >= 1),
}


@T.prim_func
def identities(X: T.Tensor((10,), T.float32), Y: T.Tensor((14, 10), T.float32)):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(10):
            x = X[i]
            Y[0, i] = x - x
            Y[1, i] = x * 0.0
            Y[2, i] = 0.0 / x
            Y[3, i] = x + 0.0
            Y[4, i] = x + x - x - x
            Y[5, i] = (x + 1e8) - 1e8
            Y[6, i] = T.if_then_else(x == x, 1.0, 0.0)
            Y[7, i] = T.if_then_else(x != x, 1.0, 0.0)
            Y[8, i] = T.if_then_else(x <= x, 1.0, 0.0)
            Y[9, i] = T.if_then_else(not x < 1.0, 1.0, 0.0)
            Y[10, i] = T.if_then_else(not x >= 1.0, 1.0, 0.0)
            Y[11, i] = T.if_then_else(x - x == 0.0, 1.0, 0.0)
            Y[12, i] = T.if_then_else(x < x + 1.0, 1.0, 0.0)
            Y[13, i] = 0.0
            if x < 1.0:
                Y[13, i] = 0.0
            else:
                if x >= 1.0:
                    Y[13, i] = 1.0


def test_each_is_computed(device):
    x = torch.tensor(VALUES)
    found = torch.empty(14, 10, device=device)
    tilelang.compile(identities)(x.to(device), found)
    wanted = torch.stack([f(x).float() for f in WANTED.values()])
    # Bits, since 0 == -0; NaN has many.
    bits = [y.cpu().nan_to_num(7.0).view(torch.int32) for y in (found, wanted)]
    different = [n for n, a, b in zip(WANTED, *bits, strict=True) if not torch.equal(a, b)]
    assert not different
    assert torch.equal(found.cpu().isnan(), wanted.isnan())


@T.prim_func
def constants(X: T.Tensor((4,), T.float32), Y: T.Tensor((18, 4), T.float32)):
    """Of typed constants, which TVM computes as real numbers."""
    with T.Kernel(1, threads=32):
        nan, zero, minus = T.float32(math.nan), T.float32(0), T.float32(-0.0)
        for i in T.Parallel(4):
            x = X[i]
            Y[0, i] = x - minus
            Y[1, i] = T.max(nan, T.float32(2.0))
            Y[2, i] = T.min(zero, minus)
            Y[3, i] = zero / zero
            Y[4, i] = 0.0 / minus
            Y[5, i] = T.cast(T.cast(0.1, T.bfloat16), T.float32)
            Y[6, i] = T.cast(T.float16(0.1), T.float64) * 2.0
            Y[7, i] = T.cast(T.float8_e4m3fn(0.1), T.float32)
            Y[8, i] = T.float16(0.1) * x
            Y[9, i] = T.if_then_else(T.float16(0.1) == 0.1, 1.0, 0.0)
            Y[10, i] = T.if_then_else(T.float32(0.1) == 0.1, 1.0, 0.0)
            Y[11, i] = T.float16(65504.0) * T.float16(2.0)
            Y[12, i] = T.float16(1.0) + T.float16(2**-11)
            Y[13, i] = -T.cast(0.0, T.bfloat16)
            Y[14, i] = T.cast(T.cast(T.int32(16777217), T.float32), T.float64) - 16777216.0
            Y[15, i] = T.cast(T.cast(T.int32(2049), T.float16), T.float32)
            Y[16, i] = x / zero
            Y[17, i] = x / minus


def test_constants_are_of_their_types(device):
    x = torch.tensor([1.0, -0.0, 0.0, math.inf])
    found = torch.empty(18, 4, device=device)
    constants.script()  # as caches of kernels have it
    tilelang.compile(constants)(x.to(device), found)
    tenth = torch.tensor(0.1, dtype=torch.float64)
    half, narrow = tenth.half().float(), tenth.to(torch.bfloat16).float()
    eight = tenth.float().to(torch.float8_e4m3fn).float()
    rows = [2.0, -0.0, math.nan, math.nan, narrow, 2 * half.double(), eight]
    rows = [*rows, half * x, 0.0, 1.0, math.inf, 1.0, -0.0, 0.0, 2048.0]
    wanted = torch.stack(
        [x + 0.0, *(torch.as_tensor(r).float().expand(4) for r in rows), x / 0.0, x / -0.0]
    )
    wanted[0] = x - torch.tensor(-0.0)
    bits = [y.cpu().nan_to_num(7.0).view(torch.int32) for y in (found, wanted)]
    different = [n for n, (a, b) in enumerate(zip(*bits, strict=True)) if not torch.equal(a, b)]
    assert not different
    assert torch.equal(found.cpu().isnan(), wanted.isnan())


def test_scalars_beside_vectors_are_in_all_lanes(device):
    @T.prim_func
    def main(
        X: T.Tensor((4,), T.float32), H: T.Tensor((2,), T.float16), Y: T.Tensor((6,), T.float32)
    ):
        with T.Kernel(1, threads=32):
            v = T.float32x2(X[0], X[1])
            h = T.float16x2(H[0], H[1])
            total = X[2] - v * X[3] + h * X[2] / 2.0
            most = T.max(T.max(v, X[2]), 2.5)
            for i in T.unroll(2, explicit=True):
                Y[i] = T.extract_lane(total, i)
                Y[2 + i] = T.extract_lane(most, i)
                Y[4 + i] = T.cast(T.extract_lane(h * T.float16(2) + H[0], i), T.float32)

    x, h = torch.tensor([1.0, 3.0, 2.0, 0.5]), torch.tensor([4.0, 6.0]).half()
    found = torch.empty(6, device=device)
    tilelang.compile(main)(x.to(device), h.to(device), found)
    assert found.tolist() == [2 - 0.5 + 4, 2 - 1.5 + 6, 2.5, 3.0, 12.0, 16.0]
