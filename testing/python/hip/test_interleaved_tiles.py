"""Operands that are not K-major, where no instruction transposes them: vectors of neighbouring rows
or columns, one for each of several MMAs of a warp."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import memory_accesses

TARGET = "hip -mcpu=gfx942"


def product(m, n, k, dtype, accumulator, trans_a, trans_b, threads=128):
    """op(A) @ op(B), one tile."""
    of_a, of_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(A: T.Tensor(of_a, dtype), B: T.Tensor(of_b, dtype), C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=threads):
            a, b = T.alloc_shared(of_a, dtype), T.alloc_shared(of_b, dtype)
            c = T.alloc_fragment((m, n), accumulator)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, trans_a, trans_b)
            T.copy(c, C)

    return main


def check_product(target, m, n, k, dtype, accumulator, trans_a, trans_b, threads=128):
    program = product(m, n, k, dtype, accumulator, trans_a, trans_b, threads)
    kernel = tilelang.compile(program, out_idx=-1, target=target)
    a, b = (
        torch.randint(-4, 5, shape).to(getattr(torch, dtype))
        for shape in ((k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n))
    )
    wanted = (a.double().T if trans_a else a.double()) @ (b.double().T if trans_b else b.double())
    assert torch.equal(kernel(a, b).double(), wanted)
    return kernel.get_kernel_source()


def interleaved(program, target=TARGET):
    """The counts along M and N of each gemm."""
    script = tilelang.transform.selected(program, target)
    return [
        tuple(map(int, re.findall(r"\d+", found))) if found else (1, 1)
        for found in re.findall(r"T\.tl\.gemm\([^\n]*?(?:\"interleaved\": \[([^]]*)\][^\n]*)?\n", script)
    ]


@pytest.mark.parametrize(
    ("target", "dtype", "accumulator", "tile", "vectors"),
    [
        # Of 128 threads two wavefronts share a tile, of 32 x 32 each in front of the last.
        (TARGET, "float16", "float32", (64, 128, 32), (1, 4)),
        ("hip -mcpu=gfx90a", "bfloat16", "float32", (128, 64, 16), (4, 1)),
        (TARGET, "int8", "int32", (64, 128, 32), (1, 4)),
        (TARGET, "float32", "float32", (64, 128, 16), (1, 4)),
        ("hip -mcpu=gfx950", "float32", "float32", (64, 64, 16), (1, 2)),
        ("hip -mcpu=gfx950", "float64", "float64", (32, 64, 16), (2, 2)),
        ("hip -mcpu=gfx1100", "float16", "float32", (64, 64, 32), (2, 4)),
        # Three MMAs of a wavefront: none are interleaved.
        (TARGET, "float16", "float32", (32, 96, 32), (1, 1)),
    ],
)
def test_product(target, dtype, accumulator, tile, vectors):
    """A by columns and B by rows: TN, each alone, and K of which an instruction leaves a part."""
    m, n, k = tile
    source = check_product(target, m, n, k, dtype, accumulator, True, False)
    print(re.findall(r"_vector, tl::load<\w+, (\d+)>\((\w+) ", source))
    print(source)
    check_product(target, m, n, k, dtype, accumulator, True, True)
    check_product(target, m, n, k + 8, dtype, accumulator, False, False)
