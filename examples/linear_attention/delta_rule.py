"""The gated delta rule (Yang, Kautz, Hatamizadeh 2024) in chunks: S = g S (I - b k k^T) + b v k^T.
The updates of a chunk follow from a triangular system, solved by the inverses of its blocks. Check
it against float64.

A kernel solves the system of a chunk when it comes there (`delta_rule`). Or one inverts the systems
of all chunks, which wait for no state, and another one goes from chunk to chunk (`chunk_inverses`
and `delta_rule_by_inverses`).

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math
from functools import partial

import torch

import tilelang
import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch

CHUNK, KEY, VALUE, BLOCK = 64, 32, 64, 16
LOG2_E = math.log2(math.e)
# A gate in base 2 that forgets all: 2^-150 is 0 in float32. Of smaller ones, -inf too, sums would
# lose the other gates, and differences of sums be NaN.
LEAST_GATE = -150.0
# A quick exponential is as good as another where results are rounded to bfloat16.
FAST_MATH = {tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True}
# Beta is a factor of the updates, and the gradients divide it out again: a beta nearer to zero is
# replaced by this one. Rounding to bfloat16 hides what that adds to a state, and beta times the
# decays of KDA's rows, down to exp(-60), is still a normal number of float32 (from 1.2e-38 on).
LEAST_BETA = 1e-8


def off_zero(beta):
    """A beta, negative ones too, that gradients may be divided by."""
    return T.if_then_else(T.abs(beta) < LEAST_BETA, LEAST_BETA, beta)


@T.macro
def roots_of(gates, roots):
    """Of the betas in gates[1]: the root r of each one's size, and beta / r. With system[i, j] =
    beta[i] x[i, j] inverted as diag(1 / r) system diag(r), neither rows nor columns of an inverse
    of float16 vanish where a beta is near zero: the gradients divide it out of both."""
    for i in T.Parallel(roots.shape[1]):
        roots[0, i] = T.sqrt(T.abs(gates[1, i]))
        roots[1, i] = gates[1, i] / roots[0, i]


def sharing(blocks):
    """How many blocks of a head are a cluster and share its tiles: on chips that have clusters, the
    most that divide them, up to eight."""
    if blocks == 1 or not auto_infer_current_arch().has_clusters:
        return 1
    return max(count for count in range(1, 9) if blocks % count == 0)


def check_chunk(chunk):
    if chunk % BLOCK != 0 or not 0 < chunk <= 4 * BLOCK:
        raise ValueError(
            f"found chunks of {chunk} rows, wanted a multiple of {BLOCK} up to {4 * BLOCK}"
        )


@T.macro
def invert_blocks(blocks, inverse, at):
    # inverse[at] = (1 + L)^-1 of the blocks L of 16 rows in `blocks`, a row a thread: it is 1 + Z
    # where Z + Z L = -L, so a column of Z follows from those behind it.
    chunk, tile = blocks.shape[-2], (*at, slice(None), slice(None))
    row = T.alloc_fragment((chunk, BLOCK), "float32")
    T.clear(inverse[tile])
    for i in T.Parallel(chunk):
        for j in T.unroll(BLOCK):
            place = (*at, i, j)
            row[i, j] = -blocks[place]
        for n in T.unroll(BLOCK - 1):
            for j in T.unroll(BLOCK - 1 - n):
                factor = (*at, i // BLOCK * BLOCK + BLOCK - 1 - n, j)
                row[i, j] -= row[i, BLOCK - 1 - n] * blocks[factor]
        for j in T.unroll(BLOCK):
            place = (*at, i, i // BLOCK * BLOCK + j)
            inverse[place] = row[i, j]
        diagonal = (*at, i, i)
        inverse[diagonal] = 1


@T.macro
def join_blocks(system, inverse, at, size):
    # Of blocks on the diagonal make blocks of twice their size: [[A, 0], [B, C]] has the inverse
    # [[A', 0], [-C' B A', C']]. Numbers are of float16, whose mantissa is that of tf32.
    chunk, tile = system.shape[-1], (*at, slice(None), slice(None))
    product = T.alloc_fragment((chunk, chunk), "float32")
    factor, whole = [T.alloc_fragment((chunk, chunk), "float16") for _ in range(2)]
    T.gemm(inverse[tile], system[tile], product, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        factor[i, j] = T.if_then_else(
            i // size == j // size + 1 and j // size % 2 == 0, -product[i, j], 0
        )
    T.copy(inverse[tile], whole)
    T.copy(whole, product)
    T.gemm(factor, inverse[tile], product)
    T.copy(product, inverse[tile])


@T.macro
def join_below(system, inverse, at, size):
    # As join_blocks, but B's place alone is stored: threads load and store less between products.
    chunk, tile = system.shape[-1], (*at, slice(None), slice(None))
    product = T.alloc_fragment((chunk, chunk), "float32")
    factor = T.alloc_fragment((chunk, chunk), "float16")
    T.gemm(inverse[tile], system[tile], product, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        factor[i, j] = T.if_then_else(
            i // size == j // size + 1 and j // size % 2 == 0, -product[i, j], 0
        )
    T.gemm(factor, inverse[tile], product, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        if i // size == j // size + 1 and j // size % 2 == 0:
            place = (*at, i, j)
            inverse[place] = product[i, j]


@T.macro
def invert(system, blocks, numbers, inverse, at=(), join=join_blocks):
    # inverse[at] = (1 + system)^-1 of a strictly lower triangle in registers: of the blocks of 16
    # rows on the diagonal, which `blocks` is for, then by `join` of 32, then of 64, which is the
    # largest chunk. Its numbers on the way are in numbers[at].
    chunk, tile = system.shape[0], (*at, slice(None), slice(None))
    check_chunk(chunk)
    for i, j in T.Parallel(chunk, chunk):
        if i // BLOCK == j // BLOCK:
            place = (*at, i, j % BLOCK)
            blocks[place] = system[i, j]
    T.copy(system, numbers[tile])
    invert_blocks(blocks, inverse, at)
    join(numbers, inverse, at, BLOCK)
    if chunk > 2 * BLOCK:
        join(numbers, inverse, at, 2 * BLOCK)


@T.macro
def multiply_tiles(shape, left, right, result, first=0, at=0):
    # Of a warp: result[at:] += left right[first:], one instruction.
    T.ptx_mma(
        *("float32", shape, "row", "col", "fp16", "fp16", "fp32"),
        *(left.data, 0, right.data, first, result.data, at, False),
    )


@T.macro
def solve_rows(numbers, inverse, warp, at):
    # inverse[at] = (1 - N)^-1 of the blocks N of 8 rows on the diagonal of `numbers`, a row a lane:
    # it is 1 + Z where Z = N + Z N, so a column of Z follows from those behind it.
    lane = T.get_lane_idx()
    row, known = T.alloc_local((8,), "float32"), T.alloc_local((8,), "float16")
    here = lane % 8
    if lane < 16:
        i, begin = 16 * warp + lane, 16 * warp + lane // 8 * 8
        for j in T.vectorized(8):
            place = (*at, i, begin + j)
            known[j] = numbers[place]
        for j in T.unroll(8):
            row[j] = T.if_then_else(j < here, T.cast(known[j], "float32"), 0)
        for n in T.unroll(7):
            for j in T.vectorized(8):
                place = (*at, begin + 7 - n, begin + j)
                known[j] = numbers[place]
            for j in T.unroll(7 - n):
                row[j] += row[7 - n] * T.cast(known[j], "float32")
        for j in T.unroll(8):
            row[j] = T.if_then_else(j == here, 1, row[j])
        for j in T.vectorized(8):
            place = (*at, i, begin + j)
            inverse[place] = row[j]


@T.macro
def join_eights(numbers, inverse, warp, at):
    # Of a warp's two blocks of 8 rows one of 16, as join_blocks: [[A', 0], [C' B A', C']].
    lane, begin = T.get_lane_idx(), 16 * warp
    left, right = T.alloc_local((4,), "float16"), T.alloc_local((2,), "float16")
    product = T.alloc_local((4,), "float32")
    for i in T.unroll(4):
        left[i] = 0
    T.clear(product)
    row = lane % 8
    below = (*at, begin + 8 + row, begin + 8)
    T.ptx_ldmatrix(False, 1, inverse[below], left[2])
    beside = (*at, begin + 8 + row, begin)
    T.ptx_ldmatrix(True, 1, numbers[beside], right)
    multiply_tiles("m16n8k8", left, right, product)
    for i in T.vectorized(2):
        left[2 + i] = product[2 + i]
    above = (*at, begin + row, begin)
    T.ptx_ldmatrix(True, 1, inverse[above], right)
    T.clear(product)
    multiply_tiles("m16n8k8", left, right, product)
    for i in T.vectorized(2):
        left[2 + i] = product[2 + i]
    T.ptx_stmatrix(False, 1, inverse[beside], left[2])


@T.macro
def join_by_warps(numbers, inverse, rows, columns, size, at):
    # C' B A' of blocks of `size` rows: 16 rows of it from `rows` on, and from `columns` on 8
    # columns where blocks have 16, else 16.
    lane, count = T.get_lane_idx(), size // 16
    row, column = lane % 16, lane // 16 * 8
    wide = 8 if size == 16 else 16
    left, factor = T.alloc_local((8,), "float16"), T.alloc_local((8 * count,), "float16")
    right, product = T.alloc_local((8,), "float16"), T.alloc_local((8 * count,), "float32")
    result = T.alloc_local((8,), "float32")
    first = rows // size * size
    T.clear(product)
    T.clear(result)
    for k in T.unroll(count, explicit=True):
        T.ptx_ldmatrix(False, 4, inverse[(*at, rows + row, first + 16 * k + column)], left)
        for n in T.unroll(count, explicit=True):
            place = (*at, first + 16 * k + row, first - size + 16 * n + column)
            T.ptx_ldmatrix(True, 4, numbers[place], right)
            for half in T.unroll(2, explicit=True):
                multiply_tiles("m16n8k16", left, right, product, 4 * half, 8 * n + 4 * half)
    for i in T.vectorized(8 * count):
        factor[i] = product[i]
    for k in T.unroll(count, explicit=True):
        place = (*at, first - size + 16 * k + row, columns + column % wide)
        T.ptx_ldmatrix(True, wide // 4, inverse[place], right)
        for i in T.unroll(8):
            left[i] = factor[8 * k + i]
        for half in T.unroll(wide // 8, explicit=True):
            multiply_tiles("m16n8k16", left, right, result, 4 * half, 4 * half)
    for i in T.vectorized(wide // 2):
        left[i] = result[i]
    T.ptx_stmatrix(False, wide // 4, inverse[(*at, rows + row, columns + column % wide)], left)


@T.macro
def invert_by_warps(system, numbers, inverse, warp, at=()):
    # inverse[at] = (1 - system)^-1 of a strictly lower triangle of 64 rows in registers, by the
    # four warps of a group, with instructions of warps, whose products are as small as the blocks.
    # What `system` has on the diagonal and above is not read. Above it, `inverse` is zero before.
    tile = (*at, slice(None), slice(None))
    T.copy(system, numbers[tile])
    solve_rows(numbers, inverse, warp, at)
    join_eights(numbers, inverse, warp, at)
    # Two warps make 8 columns each of a block of 32 rows.
    pair = warp // 2 * 32
    join_by_warps(numbers, inverse, pair + 16, pair + warp % 2 * 8, 16, at)
    join_by_warps(numbers, inverse, 32 + warp % 2 * 16, warp // 2 * 16, 32, at)


@T.macro
def solve_by_blocks(system, right, solved):
    chunk = system.shape[0]
    right_shared = T.alloc_shared(right.shape, "bfloat16")
    blocks = T.alloc_shared((chunk, BLOCK), "float32")
    inverse, numbers = [T.alloc_shared((chunk, chunk), "float16") for _ in range(2)]
    inverse_cast = T.alloc_fragment((chunk, chunk), "bfloat16")
    T.copy(right, right_shared)
    invert(system, blocks, numbers, inverse)
    T.copy(inverse, inverse_cast)
    T.gemm(inverse_cast, right_shared, solved, clear_accum=True)


def delta_rule(heads, solve, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=VALUE, threads=128):
    """A block has a head's state for `columns` of its values; `solve` is one of the macros."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        with T.Kernel(T.ceildiv(d_value, columns), heads, threads=threads) as (bx, h):
            # The steps of a chunk wait for each other: a second block computes meanwhile.
            T.annotate_min_blocks_per_sm(2)
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(224)
            q = T.alloc_shared((chunk, d_key), "bfloat16")
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            v = T.alloc_shared((chunk, columns), "bfloat16")
            gate = T.alloc_shared((chunk,), "float32")
            beta = T.alloc_shared((chunk,), "float32")
            log_decay = T.alloc_shared((chunk,), "float32")
            state_shared = T.alloc_shared((d_key, columns), "bfloat16")
            decayed = T.alloc_shared((chunk, d_key), "bfloat16")
            updates_shared = T.alloc_shared((chunk, columns), "bfloat16")
            # In shared memory during the solution, which needs the registers.
            system_shared = T.alloc_shared((chunk, chunk), "float32")
            weights = T.alloc_shared((chunk, chunk), "bfloat16")
            system = T.alloc_fragment((chunk, chunk), "float32")
            scores = T.alloc_fragment((chunk, chunk), "float32")
            right = T.alloc_fragment((chunk, columns), "float32")
            updates = T.alloc_fragment((chunk, columns), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            out = T.alloc_fragment((chunk, columns), "float32")
            here = slice(bx * columns, (bx + 1) * columns)
            T.clear(state)
            # All that reads a chunk's tiles comes first: the next ones arrive meanwhile.
            for n in T.Pipelined(T.ceildiv(length, chunk), num_stages=1):
                rows = slice(n * chunk, (n + 1) * chunk)
                T.copy(K[rows, h, :], k)
                # Rows behind the end are zero: they decay nothing.
                T.copy(Gate[rows, h], gate)
                T.copy(Beta[rows, h], beta)
                T.copy(V[rows, h, here], v)
                T.copy(Q[rows, h, :], q)
                T.cumsum(gate, log_decay, dim=0)
                T.gemm(k, k, system, transpose_B=True, clear_accum=True)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    decay = T.if_then_else(i >= j, T.exp(log_decay[i] - log_decay[j]), 0)
                    system[i, j] = T.if_then_else(i > j, system[i, j] * beta[i] * decay, 0)
                    weights[i, j] = scores[i, j] * decay
                T.copy(system, system_shared)
                T.copy(state, state_shared)
                T.gemm(k, state_shared, right, clear_accum=True)
                T.gemm(q, state_shared, out, clear_accum=True)
                for i, d in T.Parallel(chunk, columns):
                    right[i, d] = beta[i] * (v[i, d] - T.exp(log_decay[i]) * right[i, d])
                total = log_decay[chunk - 1]
                for i, d in T.Parallel(chunk, d_key):
                    decayed[i, d] = k[i, d] * T.exp(total - log_decay[i])
                for i, d in T.Parallel(chunk, columns):
                    out[i, d] *= T.exp(log_decay[i])
                for i, d in T.Parallel(d_key, columns):
                    state[i, d] *= T.exp(total)
                solve(system_shared, right, updates)
                T.copy(updates, updates_shared)
                T.gemm(weights, updates_shared, out)
                T.gemm(decayed, updates_shared, state, transpose_A=True)
                T.copy(out, Out[rows, h, here])

    return main


@T.macro
def weigh(scores, gates, strictly=0):
    # Times the decay from row j to row i, where j is before i, by the sums of gates in gates[0].
    # Gates are at most 0, so their sums fall from row to row: the minimum changes exponents above
    # the diagonal only, where scores are 0 and a factor of infinity would make them NaN.
    for i, j in T.Parallel(*scores.shape):
        scores[i, j] = T.if_then_else(i >= j + strictly, scores[i, j], 0)
    for i, j in T.Parallel(*scores.shape):
        scores[i, j] *= T.exp2(T.min(gates[0, i] - gates[0, j], 0))


@T.macro
def scale_rows(tile, factor):
    for i, d in T.Parallel(*tile.shape):
        tile[i, d] *= factor[i]


def chunk_inverses(heads, chunk=CHUNK, d_key=KEY, threads=128):
    """What of each chunk needs no state: (1 + system)^-1 diag(beta), and of its rows G, the sums of
    the gates since its begin in base 2, and beta. Gates are natural logarithms of decays and at
    most 0; a chunk has at most 64 rows. A block has a chunk of a head."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Rows: T.Tensor((chunks, heads, 2, chunk), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, chunks, threads=threads) as (h, n):
            k = T.alloc_shared((chunk, d_key), "bfloat16")
            gates, roots = [T.alloc_shared((2, chunk), "float32") for _ in range(2)]
            blocks = T.alloc_shared((chunk, BLOCK), "float32")
            inverse, numbers = [T.alloc_shared((chunk, chunk), "float16") for _ in range(2)]
            inverse_cast = T.alloc_shared((chunk, chunk), "bfloat16")
            system = T.alloc_fragment((chunk, chunk), "float32")
            rows = slice(n * chunk, (n + 1) * chunk)
            T.async_copy(K[rows, h, :], k)
            # Rows behind the end are zero: they decay nothing.
            T.copy(Gate[rows, h], gates[0, :])
            T.copy(Beta[rows, h], gates[1, :])
            T.ptx_wait_group(0)
            for i in T.Parallel(chunk):
                gates[0, i] = T.max(gates[0, i] * LOG2_E, LEAST_GATE)
                gates[1, i] = off_zero(gates[1, i])
            roots_of(gates, roots)
            T.cumsum(gates[0:1, :], dim=1)
            T.gemm(k, k, system, transpose_B=True, clear_accum=True)
            weigh(system, gates, 1)
            for i, j in T.Parallel(chunk, chunk):
                system[i, j] *= roots[1, i] * roots[0, j]
            invert(system, blocks, numbers, inverse)
            for i, j in T.Parallel(chunk, chunk):
                inverse_cast[i, j] = roots[0, i] * inverse[i, j] * roots[1, j]
            T.copy(inverse_cast, Inverse[n, h, :, :])
            T.copy(gates, Rows[n, h, :, :])

    return main


@T.macro
def decays_of(gates, before, kept):
    # Of G in `gates`: exp(G) and exp(G[last] - G), for the threads that have a row.
    chunk = gates.shape[1]
    for i in T.Parallel(chunk):
        before[i] = T.exp2(gates[0, i])
        kept[i] = T.exp2(gates[0, chunk - 1] - gates[0, i])


class Gates:
    """What gates make of a walk (`walk`): a gate a head here, in `gates` G of a chunk."""

    def __init__(self, gates):
        self.gates = gates
        self.decays = [T.alloc_fragment((gates.shape[1],), "float32") for _ in range(2)]

    @T.macro
    def enter(self, state):
        # The state before a chunk, as its rows read it.
        pass

    @T.macro
    def correct(self, v, right):
        # Of k S in `right` what the updates follow from, v - exp(G) k S.
        before, kept = self.decays
        decays_of(self.gates, before, kept)
        for i, d in T.Parallel(*right.shape):
            right[i, d] = v[i, d] - before[i] * right[i, d]

    @T.macro
    def weigh(self, scores, out):
        # Of q k^T and q S.
        scale_rows(out, self.decays[0])
        weigh(scores, self.gates)

    @T.macro
    def keep(self, right, state):
        # Updates, and the state before them, as they are behind the chunk.
        total = T.exp2(self.gates[0, self.gates.shape[1] - 1])
        for i, d in T.Parallel(*state.shape):
            state[i, d] *= total
        scale_rows(right, self.decays[1])

    @T.macro
    def leave(self, state):
        # The state behind a chunk.
        pass


@T.macro
def walk(chunks, load, tiles, gates, state, queries=None, states=None):
    """From chunk to chunk, a head's `state` for some of its values by products alone. `load(n)`
    fills the tiles: what reads the state, what the updates are added by, v and the inverse of the
    system. `queries` are their tile and what stores results, `states` what stores the state before
    each chunk and what stores its updates."""
    k_row, k_column, v, inverse = tiles
    chunk = v.shape[0]
    # The steps of a chunk wait for each other: a second block computes meanwhile.
    T.annotate_min_blocks_per_sm(2)
    T.annotate_producer_reg_dealloc(24)
    T.annotate_consumer_reg_alloc(224)
    state_shared = T.alloc_shared(state.shape, "bfloat16")
    right_shared, updates, kept = [T.alloc_shared(v.shape, "bfloat16") for _ in range(3)]
    right, out = [T.alloc_fragment(v.shape, "float32") for _ in range(2)]
    scores = T.alloc_fragment((chunk, chunk), "float32")
    weights = T.alloc_fragment((chunk, chunk), "bfloat16")
    T.clear(state)
    for n in T.Pipelined(chunks, num_stages=1):
        load(n)
        gates.enter(state)
        T.copy(state, state_shared)
        if states is not None:
            states[0](n, state_shared)
        T.gemm(k_row, state_shared, right, clear_accum=True)
        if queries is not None:
            T.gemm(queries[0], state_shared, out, clear_accum=True)
            T.gemm(queries[0], k_column, scores, transpose_B=True, clear_accum=True)
        gates.correct(v, right)
        T.copy(right, right_shared)
        T.gemm(inverse, right_shared, right, clear_accum=True)
        if queries is not None:
            gates.weigh(scores, out)
            T.copy(scores, weights)
        T.copy(right, updates)
        if states is not None:
            states[1](n, updates)
        if gates.keep is not None:
            gates.keep(right, state)
            T.copy(right, kept)
        if queries is not None:
            T.gemm(weights, updates, out)
        T.gemm(k_column, updates if gates.keep is None else kept, state, transpose_A=True)
        gates.leave(state)
        if queries is not None:
            queries[1](n, out)


@T.macro
def load_chunk(tensors, tiles, h, here, n):
    # In the order in which there is room for the next chunk's.
    K, Rows, V, Inverse, *Q = tensors
    k, gates, v, inverse, *q = tiles
    chunk = v.shape[0]
    rows = slice(n * chunk, (n + 1) * chunk)
    T.copy(K[rows, h, :], k)
    T.copy(Rows[n, h, :, :], gates)
    T.copy(V[rows, h, here], v)
    if len(q) == 1:
        T.copy(Q[0][rows, h, :], q[0])
    T.copy(Inverse[n, h, :, :], inverse)


@T.macro
def store_rows(tensor, chunk, h, here, n, tile):
    T.copy(tile, tensor[n * chunk : (n + 1) * chunk, h, here])


def delta_rule_by_inverses(
    heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=VALUE, threads=128, ahead=2
):
    """The delta rule by the results of `chunk_inverses`. A block has a head's state for `columns`
    of its values."""
    length, chunks = T.dynamic("length, chunks")
    blocks = -(-d_value // columns)

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Rows: T.Tensor((chunks, heads, 2, chunk), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        # The blocks of a head share its tiles.
        with T.Kernel(blocks, heads, threads=threads, cluster_dims=sharing(blocks)) as (bx, h):
            q, k = [T.alloc_shared((chunk, d_key), "bfloat16") for _ in "qk"]
            v = T.alloc_shared((chunk, columns), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            gates = T.alloc_shared((2, chunk), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            # The first products of a chunk wait for these: they arrive during the one before.
            T.annotate_ws_pipeline_depth({k: ahead, gates: ahead})
            here = slice(bx * columns, (bx + 1) * columns)
            load = partial(load_chunk, (K, Rows, V, Inverse, Q), (k, gates, v, inverse, q), h, here)
            queries = q, partial(store_rows, Out, chunk, h, here)
            walk(chunks, load, (k, k, v, inverse), Gates(gates), state, queries)

    return main


def reference(q, k, v, gate, beta):
    """A gate (length, heads), or one for each channel (length, heads, d_key)."""
    q, k, v, gate, beta = (t.double() for t in (q, k, v, gate, beta))
    state, out = torch.zeros(*q.shape[1:], v.shape[2]).to(q), []
    for t in range(len(q)):
        state = state * gate[t].exp().reshape(len(state), -1, 1)
        seen = torch.einsum("hk,hkv->hv", k[t], state)
        state = state + torch.einsum("h,hk,hv->hkv", beta[t], k[t], v[t] - seen)
        out.append(torch.einsum("hk,hkv->hv", q[t], state))
    return torch.stack(out)


def inputs(heads, length, d_key, d_value, device):
    """Q, K, V and beta."""
    q, k = (torch.randn(length, heads, d_key, device=device) for _ in range(2))
    q, k = (torch.nn.functional.normalize(t, dim=-1).bfloat16() for t in (q, k))
    v = torch.randn(length, heads, d_value, device=device).bfloat16()
    return q, k, v, torch.rand(length, heads, device=device)


def chunk_tensors(k, chunk, *shapes, dtype=None):
    """A tensor of each shape for each chunk and head of the keys."""
    length, heads, _ = k.shape
    first = -(-length // chunk), heads
    return [
        torch.empty(*first, *shape, dtype=dtype or k.dtype, device=k.device) for shape in shapes
    ]


def by_inverses(q, k, v, gate, beta, chunk):
    """Out (length, heads, d_value) in float32, by two kernels. `gate` is (length, heads), natural
    logarithms of decays, at most 0."""
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    (inverse,) = chunk_tensors(k, chunk, (chunk, chunk))
    (rows,) = chunk_tensors(k, chunk, (2, chunk), dtype=torch.float32)
    out = torch.empty(length, heads, d_value, device=k.device)
    first = chunk_inverses(heads, chunk, d_key)
    tilelang.compile(first)(k, gate, beta, inverse, rows)
    second = delta_rule_by_inverses(heads, chunk, d_key, d_value, columns=min(d_value, 64))
    tilelang.compile(second)(q, k, v, inverse, rows, out)
    return out


def by_systems(q, k, v, gate, beta, chunk):
    """The same, by one kernel."""
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    out = torch.empty(length, heads, d_value, device=k.device)
    program = delta_rule(heads, solve_by_blocks, chunk, d_key, d_value, min(d_value, 64))
    tilelang.compile(program)(q, k, v, gate, beta, out)
    return out


def relative_error(form, heads, length, device="cpu", sizes=(CHUNK, KEY, VALUE), channels=False):
    """||ours - reference|| / ||reference|| for `sizes` of a chunk, of keys and of values; with
    `channels` each has a gate of its own. `form` computes the results, as `by_inverses` does."""
    chunk, key, value = sizes
    torch.manual_seed(0)
    q, k, v, beta = inputs(heads, length, key, value, device)
    gate = -torch.rand((length, heads, key) if channels else (length, heads), device=device) / 8
    out = form(q, k, v, gate, beta, chunk)
    wanted = reference(q, k, v, gate, beta)
    return float((out.double() - wanted).norm() / wanted.norm())


def check(forms, channels=False, description=__doc__, sizes=(KEY, VALUE)):
    """Each form at the sizes that the command line has; `sizes` are those without a GPU."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--length", type=int, default=4096 if gpu else 100)
    parser.add_argument("--heads", type=int, default=32 if gpu else 1)
    parser.add_argument("--dim", type=int, nargs=2, default=[128, 128] if gpu else sizes)
    arguments = parser.parse_args()
    sizes = CHUNK, *arguments.dim
    for form in forms:
        device = "cuda" if gpu else "cpu"
        error = relative_error(form, arguments.heads, arguments.length, device, sizes, channels)
        assert error < 2e-2, f"relative error {error:.1e}, wanted under 2e-2"
        print(f"length {arguments.length}, {form.__name__}: relative error {error:.1e}")


if __name__ == "__main__":
    check((by_inverses, by_systems))
