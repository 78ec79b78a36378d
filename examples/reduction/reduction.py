"""The mean and the variance of each column of a tall matrix, whose rows blocks share: check them.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def column_sums(N, dtype=T.float32, block_M=64, block_N=64, tiles=8, threads=128):
    """Adds to `sums` (2, N) the sums of the columns of A (M, N) and of their squares; a block goes
    through `tiles` tiles of rows."""
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), sums: T.Tensor((2, N), T.float32)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M * tiles), threads=threads) as (
            bx,
            by,
        ):
            tile = T.alloc_fragment((block_M, block_N), dtype)
            square = T.alloc_fragment((block_M, block_N), T.float32)
            total = T.alloc_fragment((block_N,), T.float32)
            total_square = T.alloc_fragment((block_N,), T.float32)

            T.clear(total)
            T.clear(total_square)
            for t in T.serial(tiles):
                T.copy(A[(by * tiles + t) * block_M, bx * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = T.cast(tile[i, j], T.float32) * tile[i, j]
                T.reduce_sum(tile, total, dim=0, clear=False)
                T.reduce_sum(square, total_square, dim=0, clear=False)
            T.atomic_add(sums[0, bx * block_N : (bx + 1) * block_N], total)
            T.atomic_add(sums[1, bx * block_N : (bx + 1) * block_N], total_square)

    return main


def mean_and_variance(matrix, **tile):
    """Of each column."""
    M, N = matrix.shape
    sums = torch.zeros(2, N, device=matrix.device)
    column_sums(N, **tile)(matrix, sums)
    mean = sums[0] / M
    return mean, sums[1] / M - mean * mean


def error(M, N, device="cpu", **tile):
    """Largest difference from float64."""
    torch.manual_seed(0)
    matrix = torch.randn(M, N, device=device)
    mean, variance = mean_and_variance(matrix, **tile)
    x = matrix.double()
    return max(
        float((mean - x.mean(0)).abs().max()),
        float((variance - x.var(0, correction=0)).abs().max()),
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[100000, 1000] if gpu else [700, 100])
    M, N = parser.parse_args().size
    found = error(M, N, "cuda" if gpu else "cpu")
    assert found < 1e-5, f"{found:.1e} off, wanted under 1e-5"
    print(f"{M} x {N}: {found:.1e} off")
