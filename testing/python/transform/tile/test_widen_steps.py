"""Steps of a product along K become one where rows of a tile are shorter than 128 bytes."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def product(
    depth=32,
    steps=8,
    stages=3,
    rows=64,
    columns=64,
    dtype="float16",
    place="",
    trans=(0, 1),
    **loop,
):
    """C = A B, in steps of `depth`; `trans`: A and B are stored (K, M) and (N, K)."""
    K = depth * steps
    of_a, of_b = (rows, depth), (depth, columns)
    of_a, of_b = (of_a[::-1] if trans[0] else of_a), (of_b[::-1] if trans[1] else of_b)
    total = {"float16": "float32", "int8": "int32"}[dtype]

    @T.prim_func
    def main(
        A: T.Tensor((K, rows) if trans[0] else (rows, K), dtype),
        B: T.Tensor((columns, K) if trans[1] else (K, columns), dtype),
        C: T.Tensor((rows, columns), total),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared(of_a, dtype)
            b = T.alloc_shared(of_b, dtype)
            c = T.alloc_fragment((rows, columns), total)
            if place == "layout":
                T.annotate_layout({a: make_swizzled_layout(a)})
            T.clear(c)
            for k in T.Pipelined(steps, num_stages=stages, **loop):
                T.copy(A[k * depth, 0] if trans[0] else A[0, k * depth], a)
                other = 0 if place == "stays" else k * depth
                T.copy(B[0, other] if trans[1] else B[other, 0], b)
                T.gemm(a, b, c, transpose_A=bool(trans[0]), transpose_B=bool(trans[1]))
                if place == "more":
                    for i, j in T.Parallel(rows, columns):
                        c[i, j] = c[i, j] * 2
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("function", "steps", "stages"),
    [
        (product(), 4, 2),
        (product(stages=2), 4, 2),
        (product(stages=1), 4, 1),
        (product(stages=5), 4, 3),
        (product(depth=16, stages=4), 2, 2),
        (product(depth=16, steps=6), 3, 2),  # rows of 64 bytes
        (product(depth=64, dtype="int8"), 4, 2),
        (product(trans=(0, 0)), 4, 2),
        (product(trans=(1, 0)), 8, 3),  # no rows along K
        (product(depth=64), 8, 3),  # rows of 128 bytes
        (product(steps=7), 7, 3),
        (product(place="more"), 8, 3),
        (product(place="layout"), 8, 3),
        (product(place="stays"), 8, 3),
        (product(order=[0, 1, 2], stage=[0, 0, 2]), 8, 3),
        (product(columns=256, stages=2), 4, 2),
        (product(columns=256, stages=5), 8, 5),  # three of twice the bytes: one block, not two
    ],
)
def test_steps(tile_passes, function, steps, stages):
    text = tile_passes(function, "WidenSteps", arch="sm_90a")["main"].script()
    (loop,) = re.findall(r"T\.(?:serial|range)\((\d+).*\"num_stages\": (?:T\.int32\()?(\d+)", text)
    assert tuple(map(int, loop)) == (steps, stages)


def test_only_where_warp_groups_multiply(tile_passes):
    text = tile_passes(product(), "WidenSteps", arch="sm_80")["main"].script()
    assert re.search(r"T\.(?:serial|range)\(8", text)


@pytest.mark.parametrize(
    ("depth", "dtype", "trans"),
    [
        (32, "float16", (0, 0)),
        (32, "float16", (0, 1)),
        (16, "float16", (0, 1)),
        (32, "int8", (0, 1)),
    ],
)
def test_it_computes_the_same(depth, dtype, trans):
    kernel = tilelang.compile(product(depth, dtype=dtype, trans=trans), target=HOPPER)
    a, b = (torch.randint(-4, 5, (64, 8 * depth)).to(getattr(torch, dtype)) for _ in "ab")
    c = torch.full((64, 64), -1).to(torch.int32 if dtype == "int8" else torch.float32)
    kernel(a, b if trans[1] else b.T.contiguous(), c)
    assert torch.equal(c.double(), a.double() @ b.double().T)


def test_explained():
    text = tilelang.compile(product(), target=HOPPER, execution_backend="emulate").explain()
    assert "T.Pipelined: 2 steps along K are one, whose rows have 128 bytes" in text
