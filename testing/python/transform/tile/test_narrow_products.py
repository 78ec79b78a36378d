"""Products of fewer columns, where the registers of wide ones keep a block off a multiprocessor."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def attention(dim, stages=1, grid=None, steps=2):
    """The sum of (Q K^T) V of tiles of 64 rows, whose scores are in registers; in `grid` blocks, or
    in as many as the call says."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, dim), "float16"),
        K: T.Tensor((64 * steps, dim), "float16"),
        V: T.Tensor((64 * steps, dim), "float16"),
        Out: T.Tensor((64, dim), "float32"),
        blocks: T.int32,
    ):
        with T.Kernel(grid or blocks, threads=128):
            q, k, v = (T.alloc_shared((64, dim), "float16") for _ in range(3))
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, dim), "float32")
            T.copy(Q, q)
            T.clear(o)
            for i in T.Pipelined(steps, num_stages=stages):
                T.copy(K[i * 64, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.copy(s, p)
                T.copy(V[i * 64, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Out)

    return main


def product(rows, columns, stages, threads, grid=1024):
    @T.prim_func
    def main(
        A: T.Tensor((rows, 1024), "float16"),
        B: T.Tensor((columns, 1024), "float16"),
        C: T.Tensor((grid, rows, columns), "float32"),
    ):
        with T.Kernel(grid, threads=threads) as bx:
            a = T.alloc_shared((rows, 64), "float16")
            b = T.alloc_shared((columns, 64), "float16")
            c = T.alloc_fragment((rows, columns), "float32")
            T.clear(c)
            for k in T.Pipelined(16, num_stages=stages):
                T.copy(A[0, k * 64], a)
                T.copy(B[0, k * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[bx, 0, 0])

    return main


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        (attention(256), [64, 128]),
        (attention(256, stages=2), [64, 256]),  # shared memory has room for one block
        (attention(256, grid=100), [64, 256]),  # a multiprocessor gets one
        (attention(224), [64, 224]),  # a part of 112 would begin inside of V's swizzle
        (attention(128), [64, 128]),  # two blocks have the registers
        (product(64, 256, 2, 128), [256]),  # two would read A twice
    ],
)
def test_columns_of_an_instruction(tile_passes, function, columns):
    passes = ("SelectInstructions", "NarrowProducts")
    text = tile_passes(function, *passes, arch="sm_90a")["main"].script()
    assert [int(n) for n in re.findall(r"wgmma\.m64n(\d+)", text)] == columns


def test_two_blocks_have_the_registers_and_compute_the_same():
    kernel = tilelang.compile(attention(256, steps=3), target=HOPPER)
    assert "__launch_bounds__(256, 2)" in kernel.get_kernel_source()
    q, k, v = (torch.randint(-1, 2, (n, 256)).half() for n in (64, 192, 192))
    out = torch.full((64, 256), -1.0)
    kernel(q, k, v, out, 1)
    assert torch.equal(out.double(), (q.double() @ k.double().T) @ v.double())
