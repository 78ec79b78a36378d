"""Constants that TVM computes wider than their type: what it cannot prove stays unproved."""

import pytest
import torch

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "hip -mcpu=gfx942"])
def test_quotients_of_an_index_without_an_upper_bound(target):
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
    out = torch.zeros(21, 50, dtype=torch.int32)
    kernel(out)
    assert (out == 5).all()
