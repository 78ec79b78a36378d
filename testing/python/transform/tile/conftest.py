"""The tile program that most tests of pipelines and roles begin with."""

from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

import tilelang.language as T


@pytest.fixture(scope="session")
def gemm() -> Callable[..., tirx.PrimFunc]:
    """C = A B in `n` steps of `step` along K; other options are those of T.Pipelined."""

    def make(
        num_stages: int = 2, n: Any = 8, step: int = 32, threads: int = 128, **options: Any
    ) -> tirx.PrimFunc:
        @T.prim_func
        def main(
            A: T.Tensor((64, step * n), "float16"),
            B: T.Tensor((step * n, 64), "float16"),
            C: T.Tensor((64, 64), "float32"),
        ):
            with T.Kernel(1, threads=threads):
                S = T.alloc_shared((64, step), "float16")
                W = T.alloc_shared((step, 64), "float16")
                F = T.alloc_fragment((64, 64), "float32")
                T.clear(F)
                for k in T.Pipelined(n, num_stages=num_stages, **options):
                    T.copy(A[0, k * step], S)
                    T.copy(B[k * step, 0], W)
                    T.gemm(S, W, F)
                T.copy(F, C)

        return main

    return make
