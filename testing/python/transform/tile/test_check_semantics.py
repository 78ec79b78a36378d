"""Tile programs that no thread mapping has are refused with their line."""

import pytest

import tilelang
import tilelang.language as T


def refused(statements, func, told):
    with pytest.raises(ValueError, match=rf"\.py:\d+: \[Tilelang Semantic Check\] .*{told}"):
        statements(func, "CheckSemantics")


def test_tile_operator_in_parallel(statements):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 8), "float32")
            for i in T.Parallel(8):
                T.copy(A, S)
                S[i, 0] = 1.0

    refused(statements, main, "tile operator")


def test_parallel_beside_statements_in_parallel(statements):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                A[i, 0] = 1.0
                for j in T.Parallel(8):
                    A[i, j] = 2.0

    refused(statements, main, "perfect nest")


def test_perfect_nest_of_parallels_is_one_nest(statements):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                for j in T.Parallel(8):
                    A[i, j] = 2.0

    assert "T.parallel(8)" in statements(main, "CheckSemantics")


def test_pipelined_in_parallel(statements):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                for j in T.Pipelined(8, num_stages=2):
                    A[i, j] = 2.0

    refused(statements, main, "Pipelined inside T.Parallel")


def test_dynamic_parallel_over_a_fragment(statements):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((64,), "float32")
            for i in T.Parallel(n):
                F[i] = A[i]

    refused(statements, main, "dynamic range indexing fragment F")


def test_parallel_variable_into_memory_of_a_thread(statements):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            L = T.alloc_local((8,), "float32")
            for i in T.Parallel(8):
                L[i] = A[i]

    refused(statements, main, "variable i indexing L")


@pytest.mark.parametrize(
    ("scope", "shape", "told"),
    [
        ("shared.dyn", (65536, 65536), "8589934592 bytes of S in shared memory, wanted at most"),
        (
            "local.fragment",
            (65536, 65536),
            "in registers and local memory, wanted at most 33554432",
        ),
        ("local", (1 << 18,), "1048576 bytes of S .* wanted at most 524288"),
    ],
)
def test_a_buffer_that_no_block_has_room_for(scope, shape, told):
    """Passes go over the elements of a tile: tables of so many of them took all memory of the
    machine."""

    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=(32, 2)):
            S = T.alloc_buffer(shape, "float32" if scope == "local" else "float16", scope)
            A[0] = S[(0,) * len(shape)]

    with pytest.raises(ValueError, match=rf"\.py:\d+: \[Tilelang Semantic Check\] .*{told}"):
        tilelang.lower(main, target="cuda -arch=sm_90a")
