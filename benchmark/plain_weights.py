"""Weights as they are written for the first time: few rows of A, and weights of 4 and 8 bits."""

import torch
from plain_case import Plain, Problem, named, normal, steps

import tilelang.language as T

SIZE, LONG = 4096, 16384
GROUP = 64
"""Weights along K that share a scale."""


def gemv_by_threads(N, K, block_N, block_K, stages, dtype="float16"):
    """y = W x, a row a thread."""

    @T.prim_func
    def main(
        x: T.Tensor((K,), dtype),
        W: T.Tensor((N, K), dtype),
        y: T.Tensor((N,), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=block_N) as bx:
            x_shared = T.alloc_shared((block_K,), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            total = T.alloc_fragment((block_N,), T.float32)
            T.clear(total)
            for k in steps(T.ceildiv(K, block_K), stages):
                T.copy(x[k * block_K], x_shared)
                T.copy(W[bx * block_N, k * block_K], W_shared)
                for i in T.Parallel(block_N):
                    for j in T.serial(block_K):
                        total[i] += T.cast(W_shared[i, j], T.float32) * x_shared[j]
            T.copy(total, y[bx * block_N])

    return main


def gemv_by_warps(N, K, block_N, block_K, threads, dtype="float16"):
    """y = W x, rows summed by several threads."""

    @T.prim_func
    def main(
        x: T.Tensor((K,), dtype),
        W: T.Tensor((N, K), dtype),
        y: T.Tensor((N,), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            W_local = T.alloc_fragment((block_N, block_K), dtype)
            x_local = T.alloc_fragment((block_K,), dtype)
            partial = T.alloc_fragment((block_N, block_K), T.float32)
            total = T.alloc_fragment((block_N,), T.float32)
            T.clear(partial)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(W[bx * block_N, k * block_K], W_local)
                T.copy(x[k * block_K], x_local)
                for i, j in T.Parallel(block_N, block_K):
                    partial[i, j] += T.cast(W_local[i, j], T.float32) * x_local[j]
            T.reduce_sum(partial, total, dim=1)
            T.copy(total, y[bx * block_N])

    return main


def gemv_cases():
    """Weights of 16384 x 16384."""
    problem = Problem(
        lambda device: [normal(LONG, device=device), normal(LONG, LONG, device=device)],
        lambda x, w: w @ x,
        2.0 * LONG**2,
    )
    sizes = {"N": LONG, "K": LONG}
    for stages in (None, 0, 1, 2, 3):
        options = {**sizes, "block_N": 128, "block_K": 128, "stages": stages}
        name = named("GEMV, a row a thread", (128, 128), stages, 128)
        yield Plain(name, problem, gemv_by_threads, options)
    for block_N, block_K, threads in [(4, 1024, 128), (8, 512, 256)]:
        options = {**sizes, "block_N": block_N, "block_K": block_K, "threads": threads}
        name = named("GEMV, by warps", (block_N, block_K), None, threads)
        yield Plain(name, problem, gemv_by_warps, options)


def unpacked(byte, j):
    """Nibble j of a byte, as a number of -8 to 7."""
    return T.cast((byte >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15), "int32") - 8


def int4_by_shared(M, N, K, tile, stages, threads, group=GROUP, dtype="float16"):
    """C = A W^T, weights unpacked to a shared tile."""
    block_M, block_N, block_K = tile

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W4: T.Tensor((N, K // 2), T.uint8),
        S: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            packed = T.alloc_shared((block_N, block_K // 2), T.uint8)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in steps(T.ceildiv(K, block_K), stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W4[bx * block_N, k * block_K // 2], packed)
                for i, j in T.Parallel(block_N, block_K):
                    scale = S[bx * block_N + i, (k * block_K + j) // group]
                    W_shared[i, j] = unpacked(packed[i, j // 2], j) * scale
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def int4_by_fragment(M, N, K, tile, stages, threads, group=GROUP, dtype="float16"):
    """C = A W^T, weights unpacked in registers and copied to a shared tile."""
    block_M, block_N, block_K = tile

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W4: T.Tensor((N, K // 2), T.uint8),
        S: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            packed = T.alloc_shared((block_N, block_K // 2), T.uint8)
            packed_local = T.alloc_fragment((block_N, block_K // 2), T.uint8)
            W_local = T.alloc_fragment((block_N, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in steps(T.ceildiv(K, block_K), stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W4[bx * block_N, k * block_K // 2], packed)
                T.copy(packed, packed_local)
                for i, j in T.Parallel(block_N, block_K):
                    scale = S[bx * block_N + i, (k * block_K + j) // group]
                    W_local[i, j] = unpacked(packed_local[i, j // 2], j) * scale
                T.copy(W_local, W_shared)
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def int8_by_shared(M, N, K, tile, stages, threads, group=GROUP, dtype="float16"):
    """C = A W^T, weights of 8 bits made float in a shared tile."""
    block_M, block_N, block_K = tile

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W8: T.Tensor((N, K), T.int8),
        S: T.Tensor((N, K // group), dtype),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            W8_shared = T.alloc_shared((block_N, block_K), T.int8)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for k in steps(T.ceildiv(K, block_K), stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(W8[bx * block_N, k * block_K], W8_shared)
                for i, j in T.Parallel(block_N, block_K):
                    scale = S[bx * block_N + i, (k * block_K + j) // group]
                    W_shared[i, j] = W8_shared[i, j] * scale
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def weights(rows, bits):
    """Weights of 4096 x 4096 numbers of so many bits, times `rows`; torch has them in 16."""

    def inputs(device):
        a = normal(rows, SIZE, device=device)
        scales = torch.rand(SIZE, SIZE // GROUP, device=device).half()
        if bits == 4:
            return [
                a,
                torch.randint(0, 256, (SIZE, SIZE // 2), device=device, dtype=torch.uint8),
                scales,
            ]
        return [
            a,
            torch.randint(-128, 128, (SIZE, SIZE), device=device, dtype=torch.int8),
            scales,
        ]

    def others(a, packed, scales):
        numbers = packed
        if bits == 4:
            numbers = torch.stack([packed & 15, packed >> 4], -1).view(SIZE, SIZE).half() - 8
        return [a, numbers.half() * scales.repeat_interleave(GROUP, 1)]

    return Problem(inputs, lambda a, w: a @ w.T, 2.0 * rows * SIZE**2, others=others)


def weight_cases():
    """4096^3, and 16 rows."""
    for name, program, bits, rows, tile, stages, threads in [
        ("int4, shared", int4_by_shared, 4, 4096, (128, 128, 64), 2, 128),
        ("int4, shared", int4_by_shared, 4, 4096, (128, 128, 64), 3, 256),
        ("int4, shared", int4_by_shared, 4, 4096, (128, 256, 64), 2, 256),
        ("int4, shared", int4_by_shared, 4, 4096, (128, 128, 64), 0, 128),
        ("int4, fragment", int4_by_fragment, 4, 4096, (128, 128, 64), 2, 128),
        ("int4, fragment", int4_by_fragment, 4, 4096, (256, 128, 64), 2, 256),
        ("int8, shared", int8_by_shared, 8, 4096, (128, 128, 64), 2, 128),
        ("int8, shared", int8_by_shared, 8, 4096, (128, 128, 64), 0, 128),
        ("int4, shared", int4_by_shared, 4, 16, (16, 128, 128), 3, 128),
        ("int4, fragment", int4_by_fragment, 4, 16, (16, 128, 128), 3, 128),
        ("int8, shared", int8_by_shared, 8, 16, (16, 128, 128), 3, 128),
        ("int4, shared", int4_by_shared, 4, 16, (16, 128, 128), 0, 128),
    ]:
        options = {"M": rows, "N": SIZE, "K": SIZE}
        options |= {"tile": tile, "stages": stages, "threads": threads}
        label = named(name, tile, stages, threads, f"{rows} rows")
        yield Plain(label, weights(rows, bits), program, options)


def cases():
    """All of them."""
    yield from gemv_cases()
    yield from weight_cases()
