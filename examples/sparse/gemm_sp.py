"""A @ B where two of every four elements of A are zeros, which are left out: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.utils.sparse import compress


@tilelang.jit(out_idx=[-1])
def matmul_sp(M, N, K, block_M=128, block_N=128, block_K=64, num_stages=3, threads=256):
    """C (M, N) of B (K, N) and A (M, K), given as `compress` makes it."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K // 2), T.float16),
        E: T.Tensor((M, K // 16), T.int16),
        B: T.Tensor((K, N), T.float16),
        C: T.Tensor((M, N), T.float16),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K // 2), T.float16)
            E_shared = T.alloc_shared((block_M, block_K // 16), T.int16)
            B_shared = T.alloc_shared((block_K, block_N), T.float16)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)

            T.use_swizzle(8)
            # Rows that A does not have: metadata is never zero, its two numbers ascend.
            T.annotate_safe_value({E: 0x4444})
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K // 2], A_shared)
                T.copy(E[by * block_M, k * block_K // 16], E_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm_sp(A_shared, E_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def prune(matrix):
    """The matrix with the two smaller of every four elements of a row set to zero."""
    groups = matrix.view(*matrix.shape[:-1], -1, 4)
    small = groups.abs().argsort(-1)[..., :2]
    return groups.scatter(-1, small, 0).view(matrix.shape)


def relative_error(M, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64||"""
    torch.manual_seed(0)
    a = prune(torch.randn(M, K, device=device, dtype=torch.float16))
    b = torch.randn(K, N, device=device, dtype=torch.float16)
    found = matmul_sp(M, N, K, **tile)(*compress(a, torch.int16), b).double()
    wanted = a.double() @ b.double()
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    error = relative_error(M, N, K, "cuda" if gpu else "cpu")
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"{M} x {N} x {K}: relative error {error:.1e}")
