"""The product that tests of many folders begin with."""

from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

import tilelang.language as T


@pytest.fixture(scope="session")
def tiled_gemm() -> Callable[..., tirx.PrimFunc]:
    """C (M, N) = A B in tiles, a block each, whose extents along M, N and K are `tile`."""

    def make(
        M: Any,
        N: Any,
        K: Any,
        tile: tuple[int, int, int] = (64, 64, 32),
        *,
        transpose_A: bool = False,
        num_stages: int = 2,
        threads: int = 128,
        dtype: str = "float16",
        out_dtype: str = "float32",
    ) -> tirx.PrimFunc:
        rows, columns, step = tile

        @T.prim_func
        def gemm(
            A: T.Tensor((K, M) if transpose_A else (M, K), dtype),
            B: T.Tensor((K, N), dtype),
            C: T.Tensor((M, N), out_dtype),
        ):
            with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, rows), threads=threads) as (bx, by):
                A_shared = T.alloc_shared((step, rows) if transpose_A else (rows, step), dtype)
                B_shared = T.alloc_shared((step, columns), dtype)
                C_local = T.alloc_fragment((rows, columns), "float32")
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, step), num_stages=num_stages):
                    if transpose_A:
                        T.copy(A[k * step, by * rows], A_shared)
                    else:
                        T.copy(A[by * rows, k * step], A_shared)
                    T.copy(B[k * step, bx * columns], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_A=transpose_A)
                T.copy(C_local, C[by * rows, bx * columns])

        return gemm

    return make
