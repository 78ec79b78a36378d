"""Bounds that TVM computes beyond a type, or lets wrap: what follows from them is not proved."""

import pytest
import torch

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "hip -mcpu=gfx942"])
def test_quotients_of_an_index_without_an_upper_bound(device, target):
    """Of ``wave // 21 * 23`` the bound is beyond int32: TVM raised where blocks' tiles of the next
    iteration were compared with those of this one."""
    n = T.dynamic("n")

    @T.prim_func
    def main(Out: T.Tensor((21, n), "int32")):
        with T.Kernel(1, threads=64) as bx:
            tile = T.alloc_fragment((1, 23), "int32")
            for y, x in T.Persistent([21, T.ceildiv(n, 23)], 1, bx, group_size=1):
                T.fill(tile, 5)
                T.copy(tile, Out[y, x * 23])

    kernel = tilelang.compile(main, target=target, execution_backend="auto")
    out = torch.zeros(21, 50, dtype=torch.int32, device="cpu" if "hip" in target else device)
    kernel(out)
    assert (out == 5).all()


def run(program, device, *numbers):
    tensors = [torch.tensor(each, dtype=torch.int32, device=device) for each in numbers]
    tilelang.compile(program, execution_backend="auto")(*tensors)
    return tensors[-1].tolist()


def test_a_name_that_is_at_least_one_has_branches(device):
    """Its range would end at 2^31, which wraps: TVM took it for empty and proved everything."""

    @T.prim_func
    def main(A: T.Tensor((6,), "int32"), C: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(6):
                x = T.max(A[i], 1)
                C[i] = 0
                if x < 100:
                    C[i] = 1
                if x > 5:
                    C[i] += 2

    assert run(main, device, [1, 3, 50, 200, 1000, 2], [-1] * 6) == [1, 1, 3, 2, 2, 1]


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        (lambda v: T.max(v, 1), [1, 1, 63, None]),
        (lambda v: T.max(v, 1) * 2, [2, 2, None, None]),
        (lambda v: (v & 0x3FFFFFFF) * 3, [0, 3, None, None]),
        (lambda v: T.min(T.max(v, 0), 2000000000) // 3 * 4, [0, 0, None, None]),
        (lambda v: (T.cast(v, "int16") & T.int16(0x3FFF)) * T.int16(3), [0, 3, None, None]),
    ],
)
def test_an_index_whose_bound_wraps_has_a_guard(device, at, wanted):
    """Of (v & 0x3fffffff) * 3 the largest int32 would be negative; loads behind the end are 0."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), B: T.Tensor((n,), "int32"), C: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                x = at(A[i])
                C[i] = B[x]

    found = run(main, device, [0, 1, 63, 1000000], [*range(100, 164)], [-1] * 4)
    assert found == [0 if place is None else 100 + place for place in wanted]
