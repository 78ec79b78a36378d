"""A @ B^T with weights of 4 bits, integers or MXFP4, made float again on the way: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout


@tilelang.jit(out_idx=[-1])
def matmul_int4(
    M, N, K, group=128, block_M=128, block_N=128, block_K=64, num_stages=3, threads=256
):
    """C (M, N) of A (M, K) and B (N, K), which is int4 with a scale for `group` elements of K."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float16),
        B: T.Tensor((N, K), T.int4),
        scale: T.Tensor((N, T.ceildiv(K, group)), T.float16),
        C: T.Tensor((M, N), T.float16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.float16)
            B_shared = T.alloc_shared((block_N, block_K), T.int4)
            B_local = T.alloc_fragment((block_N, block_K), T.int4)
            weight = T.alloc_fragment((block_N, block_K), T.float16)
            weight_shared = T.alloc_shared((block_N, block_K), T.float16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.copy(B_shared, B_local)
                for i, j in T.Parallel(block_N, block_K):
                    weight[i, j] = (
                        T.cast(B_local[i, j], T.float16)
                        * scale[bx * block_N + i, (k * block_K + j) // group]
                    )
                T.copy(weight, weight_shared)
                T.gemm(A_shared, weight_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[-1])
def matmul_mxfp4(M, N, K, block_M=128, block_N=128, block_K=128, num_stages=2, threads=256):
    """C (M, N) of A (M, K) and B (N, K), which is MXFP4: E2M1 elements, for each 32 along K a
    power of two as biased exponent (OCP Microscaling Formats specification 1.0, 5.3)."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.bfloat16),
        B: T.Tensor((N, K), T.float4_e2m1fn),
        scale: T.Tensor((N, T.ceildiv(K, 32)), T.uint8),
        C: T.Tensor((M, N), T.bfloat16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.bfloat16)
            B_shared = T.alloc_shared((block_N, block_K), T.float4_e2m1fn)
            B_local = T.alloc_fragment((block_N, block_K), T.float4_e2m1fn)
            scale_shared = T.alloc_shared((block_N, block_K // 32), T.uint8)
            weight = T.alloc_fragment((block_N, block_K), T.bfloat16)
            weight_shared = T.alloc_shared((block_N, block_K), T.bfloat16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)

            T.annotate_layout(
                {
                    A_shared: make_swizzled_layout(A_shared),
                    weight_shared: make_swizzled_layout(weight_shared),
                }
            )
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.copy(scale[bx * block_N, k * (block_K // 32)], scale_shared)
                T.copy(B_shared, B_local)
                for i, j in T.Parallel(block_N, block_K):
                    # The exponent's bits are those of the bfloat16 2 ** (scale - 127).
                    bits = T.cast(scale_shared[i, j // 32], T.uint16) << 7
                    weight[i, j] = T.cast(B_local[i, j], T.bfloat16) * T.reinterpret(
                        bits, T.bfloat16
                    )
                T.copy(weight, weight_shared)
                T.gemm(A_shared, weight_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def unpack(pairs, values):
    """The elements of bytes that have two each, the first in the low half."""
    table = torch.tensor(values, dtype=torch.float64, device=pairs.device)
    halves = torch.stack([pairs & 15, pairs >> 4], -1).view(pairs.shape[0], -1)
    return table[halves.int()]


def relative_error(form, M, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64|| for weights in `form`, int4 or mxfp4."""
    torch.manual_seed(0)
    pairs = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, device=device)
    if form == "int4":
        group = tile.get("group", 128)
        a = torch.randn(M, K, device=device, dtype=torch.float16)
        scale = torch.rand(N, -(-K // group), device=device).half()
        weight = unpack(pairs, [*range(8), *range(-8, 0)])
        weight *= scale.double().repeat_interleave(group, 1)[:, :K]
        found = matmul_int4(M, N, K, **tile)(a, pairs.view(torch.int8), scale)
    else:
        a = torch.randn(M, K, device=device, dtype=torch.bfloat16)
        scale = torch.randint(120, 134, (N, -(-K // 32)), dtype=torch.uint8, device=device)
        weight = unpack(pairs, [*E2M1, *(-x for x in E2M1)])
        weight *= torch.exp2(scale.double() - 127).repeat_interleave(32, 1)[:, :K]
        found = matmul_mxfp4(M, N, K, **tile)(a, pairs, scale)
    wanted = a.double() @ weight.T
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    for form, bound in (("int4", 1e-3), ("mxfp4", 8e-3)):
        error = relative_error(form, M, N, K, "cuda" if gpu else "cpu")
        assert error < bound, f"{form}: relative error {error:.1e}, wanted under {bound:.0e}"
        print(f"{M} x {N} x {K} {form}: relative error {error:.1e}")
