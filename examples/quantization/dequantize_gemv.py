"""A row times weights of 4 bits, packed int4 or MXFP4 of `dequantize_gemm`: check it.

Each byte of the weights is read once, by the thread that multiplies it, straight to registers: a
call is so short that copies through shared memory, their barriers and shares of K that a second
kernel adds up would take longer than its bytes. A warp multiplies 16 rows of weights by matrix
instructions (m16n8k16). Since there is one row of A, an instruction's eight columns are free for
eight groups of K: a column has its group of A and else zeros, and so the sums of groups are apart
and take their scales at once.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools

import torch
from dequantize_gemm import FORMS, PACKED, e2m1_pair, inputs, pack, reference

import tilelang
import tilelang.language as T

WARP = 32
ROWS = 16
"""Of weights, that an instruction multiplies."""
SPAN = 32
"""Elements along K that have a column: those of a word of four lanes."""
COLUMNS = 8
STEP = COLUMNS * SPAN
PACKS = STEP // PACKED
LOADED = 4
"""Words of a load."""


@T.macro
def load_step(operands, tiles, first, rows, lane, at, group):
    """What a lane has of a step, from element `first` of K on."""
    words, scales, pairs = tiles
    A, B, scale = operands
    column, quarter = lane // 4, lane % 4
    # Behind the end of K are other elements, which count for nothing.
    for p, half in itertools.product(range(PACKS), range(2)):
        word = T.min((first // PACKED + p) * 4 + quarter, B.shape[1] // LOADED - 1)
        for i in T.vectorized(LOADED):
            words[at, (p * 2 + half) * LOADED + i] = B[rows[half], word * LOADED + i]
    for e, half in itertools.product(range(2), repeat=2):
        of_column = T.min(first + (2 * quarter + e) * SPAN, A.shape[1] - 1) // group
        scales[at, 2 * half + e] = scale[of_column, rows[half]]
    for pair in T.unroll(4, explicit=True):
        place = first + column * SPAN + 8 * pair + 2 * quarter
        for i in T.vectorized(2):
            pairs[at, 2 * pair + i] = T.if_then_else(place < A.shape[1], A[0, place + i], 0)


@T.macro
def widen(form, words, at, first, weight, target):
    """The four pairs of a word."""
    bits = T.view(weight, (weight.shape[0] // 2,), T.uint32)
    word = words[at, first]
    for pair in T.unroll(4, explicit=True):
        if form == "mxfp4":
            bits[target + pair] = e2m1_pair(word, pair)
        elif pair % 2 == 0:
            # 1032 and the integer, in bits of a float16.
            bits[target + pair] = word >> 4 * pair & T.uint32(0x000F000F) ^ T.uint32(0x64086408)
        else:
            # 1152 and 16 times the integer: two pairs have a shift in common.
            bits[target + pair] = word >> 4 * pair - 4 & T.uint32(0x00F000F0) ^ T.uint32(0x64806480)
    for pair in T.unroll(4, explicit=True):
        place = 2 * (target + pair)
        for i in T.vectorized(2):
            if form == "mxfp4":
                # The difference of the exponents' biases.
                weight[place + i] = weight[place + i] * T.bfloat16(2.0**126)
            elif pair % 2 == 0:
                weight[place + i] = weight[place + i] - T.float16(1032)
            else:
                weight[place + i] = weight[place + i] * T.float16(0.0625) - T.float16(72)


def factor(form, scale):
    """A scale as a number."""
    if form == "mxfp4":
        return T.reinterpret(T.cast(scale, T.uint32) << 23, T.float32)
    return T.cast(scale, T.float32)


@T.macro
def multiply_step(form, tiles, sums, lane, at):
    """Add a lane's part of a step."""
    words, scales, pairs = tiles
    dtype = FORMS[form].dtype
    column = lane // 4
    weight = T.alloc_local((16,), dtype)
    ordered, own = T.alloc_local((16,), dtype), T.alloc_local((4,), dtype)
    loose, bits = T.view(weight, (8,), T.uint32), T.view(ordered, (8,), T.uint32)
    products = T.alloc_local((4,), T.float32)
    all_pairs = T.view(pairs, (pairs.shape[0], 4), T.uint32)
    masked = T.view(own, (2,), T.uint32)
    for i in T.unroll(4):
        products[i] = 0
    for n in T.unroll(COLUMNS, explicit=True):
        for half in T.unroll(2, explicit=True):
            place = (n // LOADED * 2 + half) * LOADED + n % LOADED
            widen(form, words, at, place, weight, 4 * half)
        for k in T.unroll(2, explicit=True):
            for i in T.unroll(2, explicit=True):
                masked[i] = T.if_then_else(column == n, all_pairs[at, 2 * k + i], T.uint32(0))
            # Rows of both halves, then the next eight elements of both.
            for i, half in itertools.product(range(2), repeat=2):
                bits[4 * k + 2 * i + half] = loose[4 * half + 2 * k + i]
            T.ptx_mma(
                *(T.float32, "m16n8k16", "row", "col", dtype, dtype, T.float32),
                *(ordered, 8 * k, own, 0, products, 0, 0),
            )
    for e, half in itertools.product(range(2), repeat=2):
        sums[half] += products[2 * half + e] * factor(form, scales[at, 2 * half + e])


@tilelang.jit
def matvec(form, N, K, group=None, warps=8, ahead=2):
    """C (1, N) of A (1, K) and B (N, K) in `form`, packed by `pack`, with a scale for `group`
    elements along K, (K / group, N) of them. A block's `warps` share K for 16 rows of B, and have
    `ahead` steps of 256 under way."""
    _, dtype, scale_type, usual = FORMS[form]
    group = usual if group is None else group
    if group % SPAN or group < SPAN:
        raise ValueError(f"found groups of {group}, wanted a multiple of {SPAN}")
    if warps < 1 or ahead < 1:
        raise ValueError(f"found {warps} warps and {ahead} steps ahead, wanted 1 or more")
    columns = -(-K // PACKED) * PACKED
    turns = -(-K // (STEP * warps * ahead))

    @T.prim_func
    def main(
        A: T.Tensor((1, K), dtype),
        B: T.Tensor((N, columns // 2), T.uint8),
        scale: T.Tensor((T.ceildiv(K, group), N), scale_type),
    ):
        C = T.empty((1, N), dtype)
        with T.Kernel(T.ceildiv(N, ROWS), threads=WARP * warps) as block:
            thread = T.get_thread_binding()
            warp, lane = thread // WARP, thread % WARP
            words = T.alloc_local((ahead, PACKS * 2 * LOADED), T.uint32)
            scales = T.alloc_local((ahead, 4), scale_type)
            pairs = T.alloc_local((ahead, 8), dtype)
            sums = T.alloc_local((2,), T.float32)
            parts = T.alloc_shared((warps, ROWS), T.float32)
            operands = (A, T.view(B, (N, columns // 8), T.uint32), scale)
            tiles = (words, scales, pairs)
            # Rows behind the last one are that: nobody stores their products.
            rows = [T.min(block * ROWS + 8 * half + lane // 4, N - 1) for half in range(2)]
            for half in T.unroll(2):
                sums[half] = 0
            for turn in T.serial(turns):
                begin = (turn * warps + warp) * ahead * STEP
                for at in T.unroll(ahead, explicit=True):
                    load_step(operands, tiles, begin + at * STEP, rows, lane, at, group)
                for at in T.unroll(ahead, explicit=True):
                    multiply_step(form, tiles, sums, lane, at)
            for half in T.unroll(2):
                sums[half] += T.shfl_xor(sums[half], 1)
                sums[half] += T.shfl_xor(sums[half], 2)
                parts[warp, 8 * half + lane // 4] = sums[half]
            T.sync_threads()
            n = block * ROWS + thread
            if thread < ROWS and n < N:
                total = T.alloc_var(T.float32, init=0)
                for w in T.unroll(warps):
                    total += parts[w, thread]
                C[0, n] = T.cast(total, dtype)
        return C

    return main


def relative_error(form, N, K, device="cpu", **options):
    """||ours - float64|| / ||float64|| for weights in `form`."""
    group = {"group": options["group"]} if "group" in options else {}
    a, pairs, scale, _ = inputs(form, 1, N, K, device=device, **group)
    found = matvec(form, N, K, **options)(a, pack(form, pairs, scale), scale)
    wanted = reference(form, a, pairs, scale, **group)
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[4096 if gpu else 256] * 2)
    N, K = parser.parse_args().size
    for form, bound in (("int4", 1e-3), ("mxfp4", 8e-3)):
        error = relative_error(form, N, K, "cuda" if gpu else "cpu")
        assert error < bound, f"{form}: relative error {error:.1e}, wanted under {bound:.0e}"
        print(f"1 x {N} x {K} {form}: relative error {error:.1e}")
