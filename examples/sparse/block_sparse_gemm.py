"""A @ B that leaves out the products of tiles that a mask excludes: check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def block_sparse_matmul(
    M, N, K, block_M=128, block_N=128, block_K=64, num_stages=2, threads=256, dtype=T.float16
):
    """C (M, N) of A (M, K) and B (K, N); mask (tiles of M, of N, of K) says which to multiply."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        mask: T.Tensor(
            (T.ceildiv(M, block_M), T.ceildiv(N, block_N), T.ceildiv(K, block_K)), T.bool
        ),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)

            T.use_swizzle(8)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if mask[by, bx, k]:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def relative_error(M, N, K, density=0.5, device="cpu", **tile):
    """||ours - float64|| / ||float64|| where a share `density` of the products is wanted."""
    torch.manual_seed(0)
    blocks = [tile.setdefault(name, size) for name, size in BLOCKS.items()]
    a = torch.randn(M, K, device=device, dtype=torch.float16)
    b = torch.randn(K, N, device=device, dtype=torch.float16)
    shape = [-(-extent // block) for extent, block in zip((M, N, K), blocks, strict=True)]
    mask = torch.rand(shape, device=device) < density
    found = block_sparse_matmul(M, N, K, **tile)(a, b, mask).double()
    wanted = torch.zeros_like(found)
    for k, (x, y) in enumerate(
        zip(a.double().split(blocks[2], 1), b.double().split(blocks[2]), strict=True)
    ):
        rows = mask[:, :, k].repeat_interleave(blocks[0], 0)[:M]
        wanted += (x @ y) * rows.repeat_interleave(blocks[1], 1)[:, :N]
    return float((found - wanted).norm() / wanted.norm())


BLOCKS = {"block_M": 128, "block_N": 128, "block_K": 64}


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    parser.add_argument("--density", type=float, default=0.5, help="share of tiles multiplied")
    arguments = parser.parse_args()
    M, N, K = arguments.size
    error = relative_error(M, N, K, arguments.density, "cuda" if gpu else "cpu")
    assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
    print(f"{M} x {N} x {K}: relative error {error:.1e}")
