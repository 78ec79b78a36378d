"""A @ B^T for a few rows of A, of any length: each byte of B is read once, by threads.

Rows may begin anywhere in a word, which TMA does not take and where loads of elements would be of a
byte or two. A thread loads the two words of 8 bytes in which its elements lie, and shifts them. It
multiplies them by those of all rows of A, in float32. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

WORD = 8
"""Bytes of what a thread loads."""
SHIFT = 3
"""By which bytes are words."""
THREADS = 128
WARP = 32


@T.macro
def load_words(words, begin, low, high, at):
    """The two words in which 8 bytes lie."""
    # Always the first one of the two numbers: then no condition is in front of the loads.
    word = T.min(begin >> SHIFT, words.shape[0] - 2)
    low[at], high[at] = words[word], words[word + 1]


@T.macro
def shift_words(begin_of_row, low, high, both, at):
    """These bytes. Columns are whole words, so that a row begins at the same byte of all of its."""
    bits = T.cast(begin_of_row & (WORD - 1), T.uint64) * 8
    # In two steps: a shift by all bits of a word is none.
    both[at] = low[at] >> bits | high[at] << 1 << (8 * WORD - 1 - bits)


@T.macro
def add_up(sums, A, B, C, first, block, rows):
    """The sums of all threads, and the products of the elements from `first` on."""
    M, N, K = int(A.shape[0]), int(B.shape[0]), int(A.shape[1])
    thread = T.get_thread_binding()
    part = T.alloc_shared((THREADS // WARP, M, rows), T.float32)
    for m in T.unroll(M):
        for r in T.unroll(rows):
            of_warp = T.warp_reduce_sum(sums[m, r])
            if thread % WARP == 0:
                part[thread // WARP, m, r] = of_warp
    T.sync_threads()
    if thread < M * rows:
        m, r = thread // rows, thread % rows
        n = block * rows + r
        if n < N:
            total = T.alloc_var(T.float32, init=0)
            for warp in T.unroll(THREADS // WARP):
                total += part[warp, m, r]
            for k in T.unroll(first, K):
                total += T.cast(A[m, k], T.float32) * T.cast(B[n, k], T.float32)
            C[m, n] = T.cast(total, C.dtype)


@T.macro
def multiply_rows(A, B, C, rows=4):
    """C (M, N) of A (M, K) and B (N, K), M up to 16: a kernel of its own, of which a block has
    `rows` of B."""
    M, N, K = int(A.shape[0]), int(B.shape[0]), int(A.shape[1])
    size = T.dtype(B.dtype).bits // 8
    length, lanes = K * size, WORD // size
    # Behind these columns the second one of two words may be none of the tensor's.
    columns = max(length - 2 * WORD + 1, 0) // WORD
    with T.Kernel(T.ceildiv(N, rows), threads=THREADS) as block:
        A_words = T.Tensor((M * length // WORD,), T.uint64, A.data)
        B_words = T.Tensor((N * length // WORD,), T.uint64, B.data)
        # Those of B, and behind them those of A.
        low = T.alloc_local((rows + M,), T.uint64)
        high = T.alloc_local((rows + M,), T.uint64)
        both = T.alloc_local((rows + M,), T.uint64)
        elements = T.view(both, (rows + M, lanes), B.dtype)
        a = T.alloc_local((M, lanes), T.float32)
        b = T.alloc_local((lanes,), T.float32)
        sums = T.alloc_local((M, rows), T.float32)
        for m, r in T.grid(M, rows):
            sums[m, r] = 0
        for k in T.serial(T.ceildiv(columns, THREADS)):
            column = k * THREADS + T.get_thread_binding()
            if column < columns:
                for r in T.unroll(rows):
                    row = T.min(block * rows + r, N - 1)
                    load_words(B_words, row * length + column * WORD, low, high, r)
                for m in T.unroll(M):
                    load_words(A_words, m * length + column * WORD, low, high, rows + m)
                for r in T.unroll(rows):
                    shift_words(T.min(block * rows + r, N - 1) * length, low, high, both, r)
                for m in T.unroll(M):
                    shift_words(m * length, low, high, both, rows + m)
                for m in T.unroll(M):
                    for j in T.vectorized(lanes):
                        a[m, j] = T.cast(elements[rows + m, j], T.float32)
                for r in T.unroll(rows):
                    for j in T.vectorized(lanes):
                        b[j] = T.cast(elements[r, j], T.float32)
                    for m in T.unroll(M):
                        for j in T.unroll(lanes):
                            sums[m, r] += a[m, j] * b[j]
        add_up(sums, A, B, C, columns * lanes, block, rows)


@tilelang.jit
def matmul_few_rows(M, N, K, dtype=T.bfloat16, out_dtype=None, rows=4):
    """C (M, N) of A (M, K) and B (N, K); a block multiplies `rows` of B by the same elements of
    A."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype)):
        C = T.empty((M, N), out_dtype or dtype)
        multiply_rows(A, B, C, rows)
        return C

    return main


def relative_error(M, N, K, dtype=T.bfloat16, out_dtype=None, device="cpu"):
    """||ours - float64|| / ||float64||"""
    torch.manual_seed(0)
    a, b = (torch.randn(rows, K, device=device).to(dtype.as_torch()) for rows in (M, N))
    found = matmul_few_rows(M, N, K, dtype, out_dtype)(a, b).double()
    wanted = a.double() @ b.double().T
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    size = [3, 10176, 10306] if gpu else [3, 21, 1031]
    parser.add_argument("--size", type=int, nargs=3, default=size, help="M, N and K")
    M, N, K = parser.parse_args().size
    for dtype in (T.bfloat16, T.float8_e4m3fn):
        error = relative_error(M, N, K, dtype, T.bfloat16, "cuda" if gpu else "cpu")
        bound = torch.finfo(torch.bfloat16).eps
        assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
        print(f"{M} x {N} x {K} {dtype}: relative error {error:.1e}")
