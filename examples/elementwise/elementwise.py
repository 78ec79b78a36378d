"""A function of each element of two matrices of any size, compiled once: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@T.macro
def gelu(x):
    """x times the normal distribution function at x, by its approximation with tanh."""
    return 0.5 * x * (1 + T.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@tilelang.jit(out_idx=[-1])
def gated(function=gelu, dtype=T.bfloat16, block_M=32, block_N=128, threads=128):
    """function(A) * B of matrices whose shape is known when the kernel is called."""
    M, N = T.dynamic("M, N")

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                if row < M and column < N:
                    x = T.cast(A[row, column], T.float32)
                    C[row, column] = function(x) * B[row, column]

    return main


def error(M, N, device="cpu", **tile):
    """Largest difference from float64, in units of the dtype's rounding of the largest value."""
    torch.manual_seed(0)
    a, b = (torch.randn(M, N, device=device, dtype=torch.bfloat16) for _ in range(2))
    found = gated(**tile)(a, b).double()
    wanted = torch.nn.functional.gelu(a.double(), approximate="tanh") * b.double()
    return float((found - wanted).abs().max() / wanted.abs().max() / torch.finfo(a.dtype).eps)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, help="rows and columns")
    size = parser.parse_args().size
    for M, N in [size] if size else [(4096, 4096), (1000, 77)] if gpu else [(64, 128), (70, 77)]:
        found = error(M, N, "cuda" if gpu else "cpu")
        assert found < 1, f"{M} x {N}: {found:.2f} roundings off, wanted under 1"
        print(f"{M} x {N}: {found:.2f} roundings off")
