"""A @ B^T for up to 256 rows of A, where rows of B are no multiples of 16 bytes: B is read once, by
TMA, and not copied before.

The rows of B are those of a block's product, so that they can be shifted on their way to registers,
which its first operand may be in. Blocks share K; what they leave is added up by a second kernel.
Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.macros import OddRows, add_shares, copy_rows, load_odd_rows, shift_odd_rows

HEIGHT = 128
"""Rows of B of a block, 8 for each byte of 16."""
LINE = 128
"""Bytes of a line of L2."""


@T.macro
def multiply_odd_rows(A, B, C, block_N=48, block_K=128, stages=6, threads=256, split=2):
    """C (M, N) of A (M, K) and B (N, K), M up to block_N: kernels of their own. `split` blocks
    share K."""
    (M, N), K, dtype = (int(n) for n in C.shape), int(B.shape[1]), B.dtype
    odd, multiple = OddRows(K, dtype, HEIGHT), 8 * LINE // T.dtype(dtype).bits
    tiles, share = -(-N // HEIGHT), -(-K // (block_K * split))
    A_wide = T.alloc_global((M, -(-K // multiple) * multiple), dtype)
    copy_rows((A, A_wide))
    if split > 1:  # whole tiles of `add_shares`
        partial = T.alloc_global((split, -(-M // 8) * 8, tiles * HEIGHT), T.float32)
    with T.Kernel(tiles * split, threads=threads) as block:
        rows = odd.view(B)
        raw = odd.alloc(block_K)
        B_local = T.alloc_fragment((HEIGHT, block_K), dtype)
        A_shared = T.alloc_shared((block_N, block_K), dtype)
        local = T.alloc_fragment((HEIGHT, block_N), T.float32)
        sums = T.alloc_shared((block_N, HEIGHT), T.float32 if split > 1 else C.dtype)
        tile, part = block // split, block % split
        T.clear(local)
        for k in T.Pipelined(share, num_stages=stages):
            column = (part * share + k) * block_K
            load_odd_rows(odd, rows, tile * odd.of_phase, column, raw)
            T.copy(A_wide[0, column], A_shared)
            shift_odd_rows(odd, raw, column, B_local)
            by_rows = T.GemmWarpPolicy.FullRow
            T.gemm(B_local, A_shared, local, transpose_B=True, policy=by_rows)
        for i, j in T.Parallel(HEIGHT, block_N):
            sums[j, odd.place(i)] = local[i, j]
        if split > 1:
            T.copy(sums, partial[part, 0, tile * HEIGHT])
        else:
            T.copy(sums, C[0, tile * HEIGHT])
    if split > 1:
        add_shares(partial, C)


@tilelang.jit
def matmul_odd_rows(M, N, K, dtype=T.bfloat16, out_dtype=None, **schedule):
    """C (M, N) of A (M, K) and B (N, K), by the parameters of `multiply_odd_rows`."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype)):
        C = T.empty((M, N), out_dtype or dtype)
        multiply_odd_rows(A, B, C, **schedule)
        return C

    return main


def relative_error(M, N, K, dtype=T.bfloat16, device="cpu", **schedule):
    """||ours - float64|| / ||float64||"""
    torch.manual_seed(0)
    a, b = (torch.randn(rows, K, device=device).to(dtype.as_torch()) for rows in (M, N))
    found = matmul_odd_rows(M, N, K, dtype, T.bfloat16, **schedule)(a, b).double()
    wanted = a.double() @ b.double().T
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    size = [36, 8256, 31103] if gpu else [5, 144, 519]
    parser.add_argument("--size", type=int, nargs=3, default=size, help="M, N and K")
    M, N, K = parser.parse_args().size
    for dtype, block_K in ((T.bfloat16, 64), (T.float8_e4m3fn, 128)):
        device = "cuda" if gpu else "cpu"
        error = relative_error(M, N, K, dtype, device, block_N=-(-M // 8) * 8, block_K=block_K)
        # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
        bound = 1e-2 if dtype == T.float8_e4m3fn else torch.finfo(torch.bfloat16).eps
        assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
        print(f"{M} x {N} x {K} {dtype}: relative error {error:.1e}")
