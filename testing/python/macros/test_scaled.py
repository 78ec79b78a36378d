"""A step of a product of 8-bit floats with scales: parts of a tile, scales of squares or rows."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.macros import add_scaled_products

HEIGHT, DEPTH, STEPS = 64, 128, 2


@tilelang.jit
def scaled(width, parts, shared, skipped):
    """C (HEIGHT, parts * width), whose scales of B are in registers, or one a row in memory."""
    columns, rows = parts * width, HEIGHT + skipped
    dtype = T.float8_e4m3fn

    @T.prim_func
    def main(
        A: T.Tensor((HEIGHT, STEPS * DEPTH), dtype),
        B: T.Tensor((columns, STEPS * DEPTH), dtype),
        scale_A: T.Tensor((STEPS, rows), T.float32),
        scale_B: T.Tensor((STEPS, columns // shared), T.float32),
    ):
        C = T.empty((HEIGHT, columns), T.float32)
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((HEIGHT, DEPTH), dtype)
            b = T.alloc_shared((columns, DEPTH), dtype)
            of_A = T.alloc_shared((rows,), T.float32)
            of_B = T.alloc_shared((columns,), T.float32)
            square = T.alloc_local((columns // shared,), T.float32)
            row = T.alloc_fragment((HEIGHT,), T.float32)
            product = T.alloc_fragment((HEIGHT, width), T.float32)
            sums = [T.alloc_fragment((HEIGHT, width), T.float32) for _ in range(parts)]
            for part in sums:
                T.clear(part)
            for k in T.Pipelined(STEPS, num_stages=2):
                T.copy(A[0, k * DEPTH], a)
                T.copy(B[0, k * DEPTH], b)
                T.copy(scale_A[k, :], of_A)
                if shared == 1:
                    T.copy(scale_B[k, :], of_B)
                else:
                    for p in T.unroll(columns // shared):
                        square[p] = scale_B[k, p]
                add_scaled_products(
                    *(a, b, sums, product, row, of_A, skipped),
                    *(of_B if shared == 1 else square, shared, T.GemmWarpPolicy.FullRow),
                )
            for n, part in enumerate(sums):
                T.copy(part, C[0, n * width])
        return C

    return main


@pytest.mark.parametrize(
    ("width", "parts", "shared", "skipped"),
    [
        pytest.param(128, 1, 128, 0, id="a square a part"),
        pytest.param(64, 3, 64, 32, id="three parts, scales behind others"),
        pytest.param(96, 2, 32, 0, id="squares that divide a part"),
        pytest.param(64, 2, 1, 32, id="a scale for each row of B"),
        pytest.param(64, 4, 128, 0, id="a square for two parts"),
        pytest.param(192, 2, 128, 0, id="a square and a half"),
    ],
)
def test_products_are_scaled_and_added(device, monkeypatch, width, parts, shared, skipped):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    torch.manual_seed(0)
    columns = width * parts
    a, b = (
        torch.randn(rows, STEPS * DEPTH, device=device).to(torch.float8_e4m3fn)
        for rows in (HEIGHT, columns)
    )
    of_a = torch.rand(STEPS, HEIGHT + skipped, device=device) + 0.5
    of_b = torch.rand(STEPS, columns // shared, device=device) + 0.5
    x, y = (t.double().reshape(len(t), STEPS, DEPTH) for t in (a, b))
    x = x * of_a[:, skipped:].double().T[:, :, None]
    y = y * of_b.double().repeat_interleave(shared, 1).T[:, :, None]
    wanted = x.flatten(1) @ y.flatten(1).T
    program = scaled(width, parts, shared, skipped)
    source = program.get_kernel_source()
    # Scales come with A and B, whose slot is free when the products are there.
    assert "of_A_full" not in source
    assert source.rindex("warpgroup_wait<0>") < source.index("mbarrier_arrive_warp(a_empty")
    found = program(a, b, of_a, of_b)
    assert float((found.double() - wanted).norm() / wanted.norm()) < 1e-3
