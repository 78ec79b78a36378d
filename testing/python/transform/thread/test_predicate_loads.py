"""Loads under a condition whose place is long have a predicate instead of a branch."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HOPPER = "cuda -arch=sm_90a"


def product(sizes, dtype="float16", strides=None, block=(64, 64, 32)):
    """C = A @ B in tiles; A has rows `strides` apart, where that is given."""
    m, n, k = sizes
    rows = T.Tensor((m, k), dtype)
    if strides is not None:
        rows = T.StridedTensor((m, k), (strides, 1), dtype)

    @T.prim_func
    def main(A: rows, B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, block[1]), T.ceildiv(m, block[0]), threads=128) as (bx, by):
            a = T.alloc_shared((block[0], block[2]), dtype)
            b = T.alloc_shared((block[2], block[1]), dtype)
            c = T.alloc_fragment((block[0], block[1]), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, block[2]), num_stages=2):
                T.copy(A[by * block[0], step * block[2]], a)
                T.copy(B[step * block[2], bx * block[1]], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block[0], bx * block[1]])

    return main


def loads(program, target=HOPPER):
    """Names of the tensors that are loaded by predicates, of the program without guards."""
    source = tilelang.lower(program, target=target).kernel_source
    return re.findall(r"tl::load_if<(\d+)>\((\w+) \+", source), source


m, n, k, s = T.dynamic("m, n, k, s")


@pytest.mark.parametrize(
    ("sizes", "strides", "tensors"),
    [
        ((m, n, k), None, {"A", "B"}),
        # Of a number of rows that the call decides, the last may be behind 2^31 elements.
        ((m, 71, 33), None, {"A"}),
        ((65, 71, k), None, {"A", "B"}),
        # Rows of a known number begin at a number times the length of rows.
        ((65, n, 33), None, {"B"}),
        ((65, 71, 33), s, {"A"}),
        ((65, 71, 33), None, set()),
    ],
)
def test_long_places(sizes, strides, tensors):
    found, source = loads(product(sizes, strides=strides))
    assert {name for _, name in found} == tensors
    assert all(f"? {name}[" not in source for name in tensors)


def test_vectors_and_types():
    """Of rows whose beginnings are multiples of 8 bytes, and of each size of an element."""

    def rows(dtype, multiple):
        @T.prim_func
        def main(A: T.Tensor((m, n * multiple), dtype), C: T.Tensor((128, 64), dtype)):
            with T.Kernel(1, threads=128):
                f = T.alloc_fragment((128, 64), dtype)
                T.copy(A[0:128, 0:64], f)
                T.copy(f, C)

        return main

    for dtype, multiple, lanes in (
        ("float16", 4, "4"),
        ("float32", 4, "4"),
        ("int8", 1, "1"),
        ("float64", 1, "1"),
        ("float8_e4m3fn", 2, "2"),
    ):
        found, _ = loads(rows(dtype, multiple))
        assert {width for width, _ in found} == {lanes}, dtype


def test_what_stays_behind_its_branch():
    @T.prim_func
    def written(A: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((128,), "float32")
            T.copy(A[0:128, n - 1], f)
            T.copy(f, A[0:128, 0])

    @T.prim_func
    def dependent(A: T.Tensor((m, n), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((128,), "float32")
            T.pdl_sync()
            T.copy(A[0:128, 0], f)
            T.copy(f, C)

    @T.prim_func
    def divided(A: T.Tensor((m, n), "float32"), C: T.Tensor((128,), "float32"), d: T.int32):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                C[i] = T.if_then_else(d > 0, A[i // d, 0], 0)

    @T.prim_func
    def gathered(
        A: T.Tensor((m, n), "float32"),
        At: T.Tensor((128,), "int32"),
        C: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                C[i] = T.if_then_else(i < m, A[At[i], 0], 0)

    for program in (written, dependent, divided, gathered):
        assert loads(program)[0] == [], program.attrs["global_symbol"]
    assert loads(product((m, n, k)), "hip -mcpu=gfx942")[0] == []


SIZES = [(1, 1, 1), (65, 71, 33), (64, 67, 97), (3, 129, 0), (61, 5, 31)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_size_is_right(dtype):
    kernel = tilelang.compile(
        product((m, n, k), dtype), target=HOPPER, execution_backend="emulate", checks=True
    )
    kind = getattr(torch, dtype)
    for rows, columns, steps in SIZES:
        a, b = torch.randn(rows, steps).to(kind), torch.randn(steps, columns).to(kind)
        c = torch.full((rows, columns), torch.nan)
        kernel(a, b, c)
        torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)


def test_rows_anywhere_are_right():
    kernel = tilelang.compile(
        product((m, 40, k), strides=s), target=HOPPER, execution_backend="emulate", checks=True
    )
    for rows, steps, stride in ((65, 33, 41), (5, 31, 31), (70, 64, 77)):
        a = torch.randn(rows, stride).half()[:, :steps]
        b = torch.randn(steps, 40).half()
        c = torch.full((rows, 40), torch.nan)
        kernel(a, b, c)
        torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)
