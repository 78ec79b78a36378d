"""A @ B^T for a few rows of A: memory bound, summed in registers; check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def gemv(M, N, K, block_N=4, block_K=1024, threads=128, dtype=T.float16):
    """C (M, N) of A (M, K) and B (N, K); a block has all of M and K for `block_N` rows of B."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            weight = T.alloc_fragment((block_N, block_K), dtype)
            rows = T.alloc_fragment((M, block_K), dtype)
            # One sum for each row and thread; threads meet once, at the end.
            partial = T.alloc_fragment((M, block_N, block_K), T.float32)
            total = T.alloc_fragment((M, block_N), T.float32)

            T.clear(partial)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(B[bx * block_N, k * block_K], weight)
                T.copy(A[0, k * block_K], rows)
                for m, n, j in T.Parallel(M, block_N, block_K):
                    partial[m, n, j] += T.cast(rows[m, j], T.float32) * weight[n, j]
            T.reduce_sum(partial, total, dim=2)
            T.copy(total, C[0, bx * block_N])

    return main


def relative_error(M, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64||"""
    torch.manual_seed(0)
    a = torch.randn(M, K, device=device, dtype=torch.float16)
    b = torch.randn(N, K, device=device, dtype=torch.float16)
    found = gemv(M, N, K, **tile)(a, b).double()
    wanted = a.double() @ b.double().T
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[4096 if gpu else 1024] * 2)
    N, K = parser.parse_args().size
    for M in (1, 3):
        error = relative_error(M, N, K, "cuda" if gpu else "cpu")
        assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
        print(f"{M} x {N} x {K}: relative error {error:.1e}")
