"""Programs as people write them. Type checkers read this file; test_types.py runs it too."""

from __future__ import annotations

from typing import no_type_check

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def matmul(
    M: int,
    N: int,
    K: int,
    block: int = 64,
    dtype: T.dtype = T.float16,
    accum_dtype: T.dtype = T.float32,
):
    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block, 32), dtype)
            B_shared = T.alloc_shared((32, block), dtype)
            C_local = T.alloc_fragment((block, block), accum_dtype)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=2):
                T.copy(A[by * block, k * 32], A_shared)
                T.copy(B[k * 32, bx * block], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block, block):
                C_local[i, j] = relu(C_local[i, j])
            T.copy(C_local, C[by * block, bx * block])

    return main


@T.macro
def relu(x):
    return T.max(x, 0)


@T.macro
def increase(count: T.Ref, by: T.int32 = 1):
    count += by


def histogram(n: int, bins: int):
    size = T.dynamic("size")

    @T.prim_func
    def main(
        values: T.Tensor((size,), T.int32),
        counts: T.Tensor[[bins], T.int32],
        strided: T.StridedTensor((n, n), (2 * n, 2), T.float32),
        scale: T.float32,
    ):
        with T.Kernel(1, threads=1):
            total: T.int32 = 0
            pair: T.float32x2 = T.float32x2(scale, scale)
            for i in range(size):
                increase(counts[values[i] % bins])
            strided[0, 0] = T.extract_lane(pair, 0) + total

    return main


# A function whose body is the kernel declares its parameters there; type checkers are told so.
@no_type_check
def add(A, B, block: int = 256):
    A: T.Tensor((block,), T.float32)
    B: T.Tensor[[block], T.float32]
    with T.Kernel(1, threads=128):
        for i in T.Parallel(block):
            B[i] += A[i]


class Sizes:
    rows = 8

    @T.macro
    def clear(self, tile: T.Tensor((8, 8), "float32")):
        T.clear(tile)


compiled = tilelang.compile(histogram(4, 8), execution_backend="emulate")
source: str = compiled.get_kernel_source()
