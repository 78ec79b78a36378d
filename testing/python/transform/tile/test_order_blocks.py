"""Blocks with most iterations start first."""

import pytest
import torch

import tilelang
import tilelang.language as T

BLOCKS, ROWS = 6, 32

# Iterations of a block's loop, by its index along x and the index of another dimension.
UP = {
    "x": lambda x, y: x + 1,
    "tiles up to the diagonal": lambda x, y: T.min(T.ceildiv((x + 1) * 48, ROWS), BLOCKS),
    "times y": lambda x, y: T.max(x * (y + 1) // 2, 1),
    "behind what all skip": lambda x, y: x * 2 - y + 2,
    "a choice": lambda x, y: T.if_then_else(y > 0, x, 2 * x + 1),
}
OTHERS = {
    "fewer": lambda x, y: BLOCKS - x,
    "a window": lambda x, y: (x + 4) // 2 - x // 2,
    "to and fro": lambda x, y: x % 2 + 1,
    "by products of two signs": lambda x, y: T.max((x - 2) * (x - 1), 1),
}


def sums(extent, extra=None):
    """Sums of the first rows of A."""

    @T.prim_func
    def main(A: T.Tensor((16, ROWS), "float32"), Out: T.Tensor((2, BLOCKS, ROWS), "float32")):
        with T.Kernel(BLOCKS, 2, threads=32) as (x, y):
            total = T.alloc_fragment((ROWS,), "float32")
            T.clear(total)
            if extra is not None:
                extra(x, A, Out)
            for k in T.serial(extent(x, y)):
                for i in T.Parallel(ROWS):
                    total[i] += A[k, i]
            T.copy(total, Out[y, x, :])

    return main


@pytest.mark.parametrize("name", [*UP, *OTHERS])
def test_loops(device, name):
    extent = {**UP, **OTHERS}[name]
    kernel = tilelang.compile(sums(extent), target="cuda", execution_backend="auto")
    assert ("tl::last_first<1, " in kernel.get_kernel_source()) == (name in UP)
    assert ("blocks start from the last blockIdx.x" in kernel.explain()) == (name in UP)
    a = torch.randint(-9, 10, (16, ROWS), device=device).float()
    out = torch.full((2, BLOCKS, ROWS), torch.nan, device=device)
    kernel(a, out)
    for y in range(2):
        for x in range(BLOCKS):
            assert torch.equal(out[y, x], a[: int(extent(x, y))].sum(0)), (x, y)


@T.macro
def atomics(x, A, Out):
    T.atomic_add(Out[0, 0, 0], A[0, x])


@T.macro
def own_order(x, A, Out):
    T.use_swizzle(2)


@T.macro
def until_memory_says_so(x, A, Out):
    while A[x, 0] < 0:
        T.evaluate(0)


@pytest.mark.parametrize("extra", [atomics, own_order, until_memory_says_so])
def test_left_alone(extra):
    kernel = tilelang.compile(sums(UP["x"], extra), target="cuda -arch=sm_90a")
    assert "last_first" not in kernel.get_kernel_source()


def test_other_dimensions():
    """Of a dimension alone that is so, and of each loop that is so."""
    kernel = tilelang.compile(sums(lambda x, y: y + 1), target="cuda -arch=sm_90a")
    assert "tl::last_first<0, 1, 0>()" in kernel.get_kernel_source()
    kernel = tilelang.compile(sums(lambda x, y: x + y + 1), target="cuda -arch=sm_90a")
    assert "tl::last_first<1, 1, 0>()" in kernel.get_kernel_source()
