"""Loops that transpose from tensor to tensor go through shared memory."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = "cuda -arch=sm_90a"


def transposed(kind="stored by rows", M=128, N=192, b=64, dtype="float16", threads=128):
    """B = A^T + D."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((N, M), dtype), D: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, b), T.ceildiv(M, b), threads=threads) as (bx, by):
            if kind == "read by rows":
                for j, i in T.Parallel(b, b):
                    B[bx * b + i, by * b + j] = (
                        A[by * b + j, bx * b + i] + D[bx * b + i, by * b + j]
                    )
            elif kind == "written":
                for i, j in T.Parallel(b, b):
                    B[bx * b + i, by * b + j] = A[by * b + j, bx * b + i]
                A[0, 0] = 0
            elif kind == "conditional":
                for i, j in T.Parallel(b, b):
                    B[bx * b + i, by * b + j] = T.if_then_else(
                        i < j, A[by * b + j, bx * b + i], D[bx * b + i, by * b + j]
                    )
            elif kind == "strided":
                for i, j in T.Parallel(b, b // 2):
                    B[bx * b + i, by * b + j] = A[by * b + j, (bx * b + i) * 2 % N]
            else:
                for i, j in T.Parallel(b, b):
                    B[bx * b + i, by * b + j] = (
                        A[by * b + j, bx * b + i] + D[bx * b + i, by * b + j]
                    )

    return main


def source(program):
    """Its kernel, as CUDA."""
    return tilelang.lower(program, target=HOPPER).kernel_source


@pytest.mark.parametrize("kind", ["stored by rows", "read by rows"])
def test_rows_are_read_by_vectors_and_stored_by_neighbours(kind):
    text = source(transposed(kind))
    assert "tl::store(A_tile" in text
    assert "tl::load<half_t, 8>(A + " in text
    store = text[text.index("    B[") :].partition("\n")[0]
    assert "tx % 64] = A_tile[" in store
    assert "+ D[" in store


@pytest.mark.parametrize("kind", ["written", "conditional", "strided"])
def test_other_reads_stay(kind):
    """Of what the kernel writes, of what may not exist, of what is no row."""
    assert "_tile" not in source(transposed(kind))


def test_a_tile_that_leaves_room_for_few_threads_is_none():
    assert "A_tile" in source(transposed(b=128, dtype="float32", M=128, N=128, threads=256))
    assert "_tile" not in source(transposed(b=128, dtype="float32", M=128, N=128, threads=128))


@pytest.mark.parametrize("kind", ["stored by rows", "read by rows"])
@pytest.mark.parametrize("size", [(128, 192), (100, 77)])
def test_results_are_those_of_the_loop(kind, size):
    kernel = tilelang.compile(transposed(kind, *size), execution_backend="emulate")
    a, d = torch.randn(*size).half(), torch.randn(*size[::-1]).half()
    b = torch.empty_like(d)
    kernel(a, b, d)
    torch.testing.assert_close(b, a.T + d, atol=0, rtol=0)
