"""Panels of tiles of matrix products, whose blocks share operands in L2."""

import re

import pytest

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def product(size=(8192, 8192, 8192), tile=(128, 256), place="", batch=1, threads=256):
    (M, N, K), (rows, width) = size, tile

    @T.prim_func
    def main(
        A: T.Tensor((batch, M, K), "float16"),
        B: T.Tensor((batch, N, K), "float16"),
        C: T.Tensor((batch, M, N), "float32"),
        seen: T.Tensor((4,), "int32"),
    ):
        with T.Kernel(N // width, M // rows, batch, threads=threads) as (bx, by, bz):
            a = T.alloc_shared((rows, 64), "float16")
            b = T.alloc_shared((width, 64), "float16")
            c = T.alloc_fragment((rows, width), "float32")
            if place == "own":
                T.use_swizzle(3)
            if place == "counts":
                seen[T.atomic_add(seen[1], 1, return_prev=True) % 2] = by
            column = T.if_then_else(bx == 1, 0, bx) if place == "named" else bx
            T.clear(c)
            for k in T.Pipelined(by + 1 if place == "causal" else K // 64, num_stages=3):
                T.copy(A[bz, 0 if place == "one row" else by * rows, k * 64], a)
                T.copy(B[bz, column * width, k * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[bz, by * rows, bx * width])

    return main


@pytest.mark.parametrize(
    ("function", "panel"),
    [
        (product(), ["16"]),
        (product(batch=2), ["16"]),
        (product(place="named"), ["16"]),
        (product(tile=(256, 128)), ["8"]),
        (product(size=(5120, 5120, 5120)), ["14"]),  # three panels of 40 rows
        (product(tile=(128, 128), threads=128), ["16"]),  # a wave of two blocks each
        (product(size=(8192, 8192, 512)), []),  # L2 has room for the operands
        (product(size=(65536, 1024, 8192)), []),  # a wave has few columns as it is
        (product(place="own"), ["3"]),
        (product(place="counts"), []),
        (product(place="causal"), []),
        (product(place="one row"), []),  # no operand is a row's
    ],
)
def test_panels(tile_passes, function, panel):
    text = tile_passes(function, "SelectInstructions", "OrderBlocks", arch="sm_90a")[
        "main"
    ].script()
    assert re.findall(r"rasterization2DRow<(\d+)>", text) == panel


def test_explained():
    text = tilelang.compile(product(), target=HOPPER, execution_backend="emulate").explain()
    assert "panels of 16 rows: those that run at the same time load 68 MB, not 142" in text
