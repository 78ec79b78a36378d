"""The Hadamard transform of rows, which spreads outliers before quantisation: by tensor cores, as
H(a b) = H(a) (x) H(b), so that a row as a matrix (a, b) is multiplied from both sides. Check it
against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@T.macro
def fill_hadamard(H):
    """1 or -1: the parity of the bits that row and column have in common."""
    size, _ = H.shape
    for i, j in T.Parallel(size, size):
        H[i, j] = T.if_then_else(T.popcount(i & j) % 2 == 1, -1, 1)


@tilelang.jit(out_idx=[-1])
def hadamard(a, b, dtype=T.bfloat16, rows_of_block=8, num_stages=2, threads=128):
    """X H / sqrt(a b) of the rows of X (rows, a, b), rows of a * b elements; a and b are powers of
    two. What goes from one product to the other is rounded to `dtype`."""
    rows = T.dynamic("rows")

    @T.prim_func
    def main(X: T.Tensor((rows, a, b), dtype), Y: T.Tensor((rows, a, b), dtype)):
        with T.Kernel(T.ceildiv(rows, rows_of_block), threads=threads) as bx:
            H_a = T.alloc_shared((a, a), dtype)
            H_b = T.alloc_shared((b, b), dtype)
            x = T.alloc_shared((a, b), dtype)
            right = T.alloc_fragment((a, b), T.float32)
            right_shared = T.alloc_shared((a, b), dtype)
            both = T.alloc_fragment((a, b), T.float32)
            y = T.alloc_shared((a, b), dtype)
            fill_hadamard(H_a)
            fill_hadamard(H_b)
            for step in T.Pipelined(
                T.min(rows_of_block, rows - bx * rows_of_block), num_stages=num_stages
            ):
                row = bx * rows_of_block + step
                T.copy(X[row, :, :], x)
                T.gemm(x, H_b, right, clear_accum=True)
                for i, j in T.Parallel(a, b):
                    right[i, j] = right[i, j] * b**-0.5
                T.copy(right, right_shared)
                T.gemm(H_a, right_shared, both, clear_accum=True)
                for i, j in T.Parallel(a, b):
                    both[i, j] = both[i, j] * a**-0.5
                T.copy(both, y)
                T.copy(y, Y[row, :, :])

    return main


def factors(size):
    """a and b, whose product is `size`."""
    b = 2 ** ((size.bit_length() - 1) // 2)
    return size // b, b


def reference(x):
    """The same of rows (rows, size) in float64, by butterflies."""
    rows, size = x.shape
    y, step = x.double(), 1
    while step < size:
        pairs = y.view(rows, -1, 2, step)
        y = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), dim=2)
        y, step = y.reshape(rows, size), 2 * step
    return y * size**-0.5


def relative_error(rows, size, device="cpu"):
    """||ours - reference|| / ||reference||"""
    torch.manual_seed(0)
    x, (a, b) = torch.randn(rows, size, device=device).bfloat16(), factors(size)
    found = hadamard(a, b)(x.view(rows, a, b)).view(rows, size)
    wanted = reference(x)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8192 if gpu else 11)
    parser.add_argument("--size", type=int, nargs="+", default=[4096, 8192] if gpu else [512])
    arguments = parser.parse_args()
    for size in arguments.size:
        error = relative_error(arguments.rows, size, "cuda" if gpu else "cpu")
        assert error < 5e-3, f"relative error {error:.1e}, wanted under 5e-3"
        print(f"{arguments.rows} x {size}: relative error {error:.1e}")
