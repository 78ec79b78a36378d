"""A @ B with few tiles of C and a long K: blocks share K and add up their parts; check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def matmul_splitk(
    M, N, K, split, block_M=64, block_N=128, block_K=64, num_stages=3, threads=128, dtype=T.float16
):
    """Add A (M, K) @ B (K, N) to C (M, N) in float32; `split` blocks work on each tile of C."""
    steps = -(-K // (block_K * split))

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), T.float32)
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split, threads=threads) as (
            bx,
            by,
            bz,
        ):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_shared = T.alloc_shared((block_M, block_N), T.float32)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)

            T.clear(C_local)
            for k in T.Pipelined(steps, num_stages=num_stages):
                T.copy(A[by * block_M, (bz * steps + k) * block_K], A_shared)
                T.copy(B[(bz * steps + k) * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            # Rows of shared memory make additions of several neighbours at once.
            T.copy(C_local, C_shared)
            T.atomic_add(C[by * block_M, bx * block_N], C_shared)

    return main


def relative_error(M, N, K, split, device="cpu", **tile):
    """||ours - float64|| / ||float64||"""
    torch.manual_seed(0)
    a = torch.randn(M, K, device=device, dtype=torch.float16)
    b = torch.randn(K, N, device=device, dtype=torch.float16)
    found = torch.zeros(M, N, device=device)
    matmul_splitk(M, N, K, split, **tile)(a, b, found)
    wanted = a.double() @ b.double()
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--size", type=int, nargs=3, default=[64, 4096, 4096] if gpu else [64, 128, 1024]
    )
    parser.add_argument("--split", type=int, default=4, help="blocks that share a tile of C")
    arguments = parser.parse_args()
    M, N, K = arguments.size
    error = relative_error(M, N, K, arguments.split, "cuda" if gpu else "cpu")
    assert error < 1e-5, f"relative error {error:.1e}, wanted under 1e-5"
    print(f"{M} x {N} x {K}: relative error {error:.1e}")
