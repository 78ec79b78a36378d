"""A @ B^T for up to eight rows of A, of any length: each byte of B is read once, by threads.

Rows may begin anywhere in a word, which TMA does not take and where loads of elements would be of a
byte or two. A thread loads the words of 8 bytes in which its elements lie, and shifts them into the
registers of a warp's matrix instruction. Which elements along K a register of it has does not
matter, as long as it is the same for A and for B: so a thread has 16 bytes of a row. Floats of 8
bits become float16, which has all of their values. Check it against float64.

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
PAIR = 2
"""Words of a row that a thread multiplies, made of one more."""
SPAN = PAIR * WORD
WARP = 32
MOST = 8
"""Rows of A: of the 16 of an instruction, those that a word of a thread belongs to."""


@T.macro
def load_row(words, begin, raw, at):
    """The words in which 16 bytes lie."""
    # Always the first one of the two numbers: then no condition is in front of the loads.
    first = T.min(begin >> SHIFT, words.shape[0] - PAIR - 1)
    for i in T.unroll(PAIR + 1):
        raw[at, i] = words[first + i]


@T.macro
def shift_row(begin_of_row, raw, row, is_inside, target, at):
    """These bytes, or zeros. Columns are whole words, so that a row begins at the same byte of all
    of its words."""
    bits = T.cast(begin_of_row & (WORD - 1), T.uint64) * 8
    for i in T.unroll(PAIR):
        # In two steps: a shift by all bits of a word is none.
        word = raw[row, i] >> bits | raw[row, i + 1] << 1 << (8 * WORD - 1 - bits)
        target[at, i] = T.if_then_else(is_inside, word, T.uint64(0))


@T.macro
def multiply_words(a_words, b_words, sums, dtype, tiles):
    """Adds the products of a warp's words: those of A are in a row of an instruction for each four
    lanes, those of B in a column (PTX ISA, "Matrix Fragments for mma.m16n8k16"). Its other eight
    rows are zeros."""
    count = PAIR * WORD * 8 // T.dtype(dtype).bits
    a, b = T.view(a_words, (1, count), dtype), T.view(b_words, (tiles, count), dtype)
    kind = dtype
    if T.dtype(dtype).bits == 8:
        kind = T.float16
        a_halves, b_halves = T.alloc_local((1, count), kind), T.alloc_local((tiles, count), kind)
        for j in T.vectorized(count):
            a_halves[0, j] = T.cast(a[0, j], kind)
        for i in T.unroll(tiles):
            for j in T.vectorized(count):
                b_halves[i, j] = T.cast(b[i, j], kind)
        a, b = a_halves, b_halves
    pairs = T.view(a, (count // 2,), T.uint32)
    registers = T.alloc_local((4,), T.uint32)
    own, others = T.view(registers, (8,), kind), T.view(b, (tiles * count,), kind)
    registers[1], registers[3] = 0, 0
    for i in T.unroll(count // 4):
        registers[0], registers[2] = pairs[2 * i], pairs[2 * i + 1]
        for j in T.unroll(tiles):
            operands = own, 0, others, j * count + 4 * i, sums, 4 * j, 0
            T.ptx_mma(T.float32, "m16n8k16", "row", "col", kind, kind, T.float32, *operands)


@T.macro
def add_up(part, A, B, C, first, block):
    """The sums of all warps, and the products of the elements from `first` on."""
    M, N, K = int(A.shape[0]), int(B.shape[0]), int(A.shape[1])
    warps, _, rows = part.shape
    for i in T.serial(T.ceildiv(M * rows, WARP * warps)):
        at = i * WARP * warps + T.get_thread_binding()
        m, column = at // rows, at % rows
        n = block * rows + column
        if m < M and n < N:
            total = T.alloc_var(T.float32, init=0)
            for warp in T.unroll(warps):
                total += part[warp, m, column]
            for k in T.unroll(first, K):
                total += T.cast(A[m, k], T.float32) * T.cast(B[n, k], T.float32)
            C[m, n] = T.cast(total, C.dtype)


@T.macro
def multiply_rows(A, B, C, tiles=2, warps=8):
    """C (M, N) of A (M, K) and B (N, K), M up to 8: a kernel of its own, of which a block has 8
    rows of B for each of `tiles`. Its `warps` share K."""
    M, N, K = int(A.shape[0]), int(B.shape[0]), int(A.shape[1])
    size = T.dtype(B.dtype).bits // 8
    length, rows, chunk = K * size, 8 * tiles, 4 * SPAN
    # Bytes of a row behind which the last one of three words may be none of the tensor's.
    columns = max(length - 2 * WORD + 1, 0) // SPAN * SPAN
    with T.Kernel(T.ceildiv(N, rows), threads=WARP * warps) as block:
        A_words = T.Tensor((M * length // WORD,), T.uint64, A.data)
        B_words = T.Tensor((N * length // WORD,), T.uint64, B.data)
        thread = T.get_thread_binding()
        warp, row, lane = thread // WARP, thread % WARP // 4, thread % 4
        raw = T.alloc_local((tiles + 1, PAIR + 1), T.uint64)
        a, b = T.alloc_local((1, PAIR), T.uint64), T.alloc_local((tiles, PAIR), T.uint64)
        sums = T.alloc_local((4 * tiles,), T.float32)
        part = T.alloc_shared((warps, MOST, rows), T.float32)
        for i in T.unroll(4 * tiles):
            sums[i] = 0
        # Rows behind the last one are that: nobody stores their products.
        m = T.min(row, M - 1)
        for k in T.serial(T.ceildiv(columns, chunk * warps)):
            column = (k * warps + warp) * chunk + lane * SPAN
            for j in T.unroll(tiles):
                n = T.min(block * rows + 8 * j + row, N - 1)
                load_row(B_words, n * length + column, raw, j)
            load_row(A_words, m * length + column, raw, tiles)
            for j in T.unroll(tiles):
                n = T.min(block * rows + 8 * j + row, N - 1)
                shift_row(n * length, raw, j, column < columns, b, j)
            shift_row(m * length, raw, tiles, column < columns, a, 0)
            multiply_words(a, b, sums, B.dtype, tiles)
        for j, e in T.grid(tiles, 2):
            part[warp, row, 8 * j + 2 * lane + e] = sums[4 * j + e]
        T.sync_threads()
        add_up(part, A, B, C, columns // size, block)


@tilelang.jit
def matmul_few_rows(M, N, K, dtype=T.bfloat16, out_dtype=None, tiles=2, warps=8):
    """C (M, N) of A (M, K) and B (N, K); the `warps` of a block share K for 8 rows of B for each of
    `tiles`."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype)):
        C = T.empty((M, N), out_dtype or dtype)
        multiply_rows(A, B, C, tiles, warps)
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
