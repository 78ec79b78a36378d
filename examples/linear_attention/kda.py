"""Kimi Delta Attention (Kimi Team 2025): the gated delta rule of delta_rule.py with a gate for each
channel of the keys. One kernel does what chunks do alone: rows take the decays, and the systems are
inverted. Another one goes from chunk to chunk by products alone. Check them against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import (
    BLOCK,
    CHUNK,
    FAST_MATH,
    KEY,
    VALUE,
    check,
    chunk_tensors,
    invert,
    off_zero,
    sharing,
    store_rows,
    walk,
)

import tilelang
import tilelang.language as T

# A decay from row j to row i is exp(G[i] - G[j]), with G the sums of the gates' logarithms in a
# chunk, by channel. With E = exp(G - G[middle]) it is a factor of row i and the inverse one of
# row j: both go into the rows, q E, -k E and k / E, so that decays cost no more than in products.
# What is left is by channel: the state S before a chunk is read as exp(G[middle]) S, and the one
# behind it is exp(G[last] - G[middle]) (exp(G[middle]) S + (k / E)^T U).
# Rows keep these factors in bfloat16, whose numbers end where those of float32 do, near exp(88): so
# the sums of gates in a half of a chunk have a limit (`chunk_parts`).


def narrow(factor):
    """E, which has no sign, in 16 bits: the sign's place gives the mantissa one bit more than
    bfloat16 has."""
    bits = T.shift_right(T.reinterpret(factor, "uint32") + T.uint32(1 << 14), T.uint32(15))
    return T.reinterpret(T.cast(bits, "uint16"), "bfloat16")


def widen(factor):
    """E of what `narrow` has made of it."""
    bits = T.cast(T.reinterpret(factor, "uint16"), "uint32")
    return T.reinterpret(T.shift_left(bits, T.uint32(15)), "float32")


@T.macro
def sum_from_the_middle(gates, total):
    # G - G[middle], and G[middle] and G[last] - G[middle] in `total`. A thread has a channel of
    # half a chunk.
    half, channels = gates.shape[0] // 2, gates.shape[1]
    sums = T.alloc_fragment((2, channels, half), "float32")
    for side, d in T.Parallel(2, channels):
        for i in T.unroll(half):
            sums[side, d, i] = gates[half - 1 - i + side * (2 * i + 1), d]
        total[side, d] = 0
        for i in T.unroll(half):
            before = total[side, d]
            total[side, d] = before + sums[side, d, i]
            gates[half - 1 - i + side * (2 * i + 1), d] = T.if_then_else(
                side == 0, -before, total[side, d]
            )


@T.macro
def parts_of_chunk(h, n, tensors, results):
    """What `chunk_parts` has of chunk n of head h; without a Q, what `parts_for_gradients` has."""
    (Q, K, Gate, Beta), (Tiles, Inverse, Decay, BetaRows) = tensors, results
    _, _, _, chunk, d_key = Tiles.shape
    q = T.alloc_shared((chunk, d_key), "bfloat16")
    k = T.alloc_shared((chunk, d_key), "bfloat16")
    k_column = T.alloc_shared((chunk, d_key), "bfloat16")
    beta = T.alloc_shared((chunk,), "float32")
    log_decay = T.alloc_shared((chunk, d_key), "float32")
    blocks = T.alloc_shared((chunk, BLOCK), "float32")
    inverse, numbers = [T.alloc_shared((chunk, chunk), "float16") for _ in range(2)]
    inverse_cast = T.alloc_shared((chunk, chunk), "bfloat16")
    system = T.alloc_fragment((chunk, chunk), "float32")
    total = T.alloc_fragment((2, d_key), "float32")
    columns = T.alloc_fragment((chunk, d_key), "bfloat16")
    rows = slice(n * chunk, (n + 1) * chunk)
    # Rows behind the end are zero: they decay nothing.
    T.async_copy(Gate[rows, h, :], log_decay)
    T.async_copy(K[rows, h, :], k)
    if Q is not None:
        T.async_copy(Q[rows, h, :], q)
    T.copy(Beta[rows, h], beta)
    for i in T.Parallel(chunk):
        beta[i] = off_zero(beta[i])
    T.ptx_wait_group(0)
    sum_from_the_middle(log_decay, total)
    for i, d in T.Parallel(chunk, d_key):
        decay = T.exp(log_decay[i, d])
        columns[i, d] = k[i, d] * T.exp(-log_decay[i, d])
        if Q is None:
            q[i, d] = narrow(decay)
        else:
            q[i, d] = q[i, d] * decay
        k[i, d] = -k[i, d] * decay
    # Where the decays have been, which makes room for one more block.
    T.copy(columns, k_column)
    T.gemm(k, k_column, system, transpose_B=True, clear_accum=True)
    T.copy(q, Tiles[0, n, h, :, :])
    T.copy(k, Tiles[1, n, h, :, :])
    T.copy(k_column, Tiles[2, n, h, :, :])
    for side, d in T.Parallel(2, d_key):
        Decay[n, h, side, d] = T.exp(total[side, d])
    T.copy(beta, BetaRows[n, h, :])
    for i, j in T.Parallel(chunk, chunk):
        system[i, j] = T.if_then_else(i > j, -beta[i] * system[i, j], 0)
    invert(system, blocks, numbers, inverse)
    for i, j in T.Parallel(chunk, chunk):
        inverse_cast[i, j] = inverse[i, j] * beta[j]
    T.copy(inverse_cast, Inverse[n, h, :, :])


def types_of_parts(heads, chunk, d_key):
    """Of the tensors of `chunk_parts`: rows, gates and beta, and the results."""
    length, chunks = T.dynamic("length, chunks")
    of_rows = (
        T.Tensor((length, heads, d_key), "bfloat16"),
        T.Tensor((length, heads, d_key), "float32"),
        T.Tensor((length, heads), "float32"),
    )
    results = (
        T.Tensor((3, chunks, heads, chunk, d_key), "bfloat16"),
        T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        T.Tensor((chunks, heads, 2, d_key), "float32"),
        T.Tensor((chunks, heads, chunk), "float32"),
    )
    return of_rows, results


def chunk_parts(heads, chunk=CHUNK, d_key=KEY, threads=256):
    """q E, -k E and k / E; (1 + system)^-1 diag(beta), the two decays of the states and, chunk by
    chunk, beta. A block has a chunk of a head.

    Gates are natural logarithms of decays, at most 0. In each channel, those of the first half of a
    chunk's rows and those of the second half each have to sum up to more than -80, where gradients
    are wanted to more than -60: below it, results are NaN or lose parts. A chunk has at most 64
    rows; with 64, gates above -2.5 (-1.875 for gradients) always fit."""
    (rows, gates, beta), (tiles, inverse, decay, beta_rows) = types_of_parts(heads, chunk, d_key)

    @T.prim_func
    def main(
        Q: rows, K: rows, Gate: gates, Beta: beta,
        Tiles: tiles, Inverse: inverse, Decay: decay, BetaRows: beta_rows,
    ):  # fmt: skip
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, Tiles.shape[1], threads=threads) as (h, n):
            # A block's loads, products and stores wait for each other: others run meanwhile.
            T.annotate_min_blocks_per_sm(3)
            parts_of_chunk(h, n, (Q, K, Gate, Beta), (Tiles, Inverse, Decay, BetaRows))

    return main


def parts_for_gradients(heads, chunk=CHUNK, d_key=KEY, threads=256):
    """As `chunk_parts`, for gradients, which have q themselves: E, as `narrow` makes it, instead of
    q E."""
    (rows, gates, beta), (tiles, inverse, decay, beta_rows) = types_of_parts(heads, chunk, d_key)

    @T.prim_func
    def main(
        K: rows, Gate: gates, Beta: beta,
        Tiles: tiles, Inverse: inverse, Decay: decay, BetaRows: beta_rows,
    ):  # fmt: skip
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, Tiles.shape[1], threads=threads) as (h, n):
            T.annotate_min_blocks_per_sm(3)
            parts_of_chunk(h, n, (None, K, Gate, Beta), (Tiles, Inverse, Decay, BetaRows))

    return main


@T.macro
def decay_rows(state, decay, which):
    for i, d in T.Parallel(*state.shape):
        state[i, d] *= decay[which, i]


class GatesOfChannels:
    """What gates make of a walk, as delta_rule.Gates, by the decays of the states."""

    keep = None

    def __init__(self, decay):
        self.decay = decay

    @T.macro
    def enter(self, state):
        decay_rows(state, self.decay, 0)

    @T.macro
    def correct(self, v, right):
        # Of -k S in `right`.
        for i, d in T.Parallel(*right.shape):
            right[i, d] += v[i, d]

    @T.macro
    def weigh(self, scores, out):
        for i, j in T.Parallel(*scores.shape):
            scores[i, j] = T.if_then_else(i >= j, scores[i, j], 0)

    @T.macro
    def leave(self, state):
        decay_rows(state, self.decay, 1)


@T.macro
def load_chunk(tensors, tiles, h, here, n):
    # In the order in which there is room for the next chunk's.
    V, Tiles, Inverse, Decay = tensors
    k_row, k_column, v, inverse, decay, *q = tiles
    chunk = v.shape[0]
    T.copy(Decay[n, h, :, :], decay)
    T.copy(Tiles[1, n, h, :, :], k_row)
    T.copy(V[n * chunk : (n + 1) * chunk, h, here], v)
    if len(q) == 1:
        T.copy(Tiles[0, n, h, :, :], q[0])
    T.copy(Inverse[n, h, :, :], inverse)
    T.copy(Tiles[2, n, h, :, :], k_column)


def outputs(heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=64, threads=128, ahead=2):
    """The results, of what `chunk_parts` makes. A block has a head's state for `columns` of its
    values."""
    length, chunks = T.dynamic("length, chunks")
    blocks = -(-d_value // columns)

    @T.prim_func
    def main(
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Tiles: T.Tensor((3, chunks, heads, chunk, d_key), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Decay: T.Tensor((chunks, heads, 2, d_key), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        # The blocks of a head share its tiles.
        with T.Kernel(blocks, heads, threads=threads, cluster_dims=sharing(blocks)) as (bx, h):
            q, k_row, k_column = [T.alloc_shared((chunk, d_key), "bfloat16") for _ in range(3)]
            v = T.alloc_shared((chunk, columns), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            decay = T.alloc_shared((2, d_key), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            # The first products of a chunk wait for these: they arrive during the one before.
            T.annotate_ws_pipeline_depth({k_row: ahead, decay: ahead})
            here = slice(bx * columns, (bx + 1) * columns)
            tiles = k_row, k_column, v, inverse
            loaded = *tiles, decay, q
            load = partial(load_chunk, (V, Tiles, Inverse, Decay), loaded, h, here)
            queries = q, partial(store_rows, Out, chunk, h, here)
            walk(chunks, load, tiles, GatesOfChannels(decay), state, queries)

    return main


def parts_of(k, chunk):
    """Tensors for what `chunk_parts` makes."""
    (inverse,) = chunk_tensors(k, chunk, (chunk, chunk))
    decay, beta = chunk_tensors(k, chunk, (2, k.shape[2]), (chunk,), dtype=torch.float32)
    rows = torch.empty(3, *inverse.shape[:3], k.shape[2], dtype=k.dtype, device=k.device)
    return rows, inverse, decay, beta


def by_channels(q, k, v, gate, beta, chunk):
    """Out (length, heads, d_value) in float32. `gate` is (length, heads, d_key), natural logarithms
    of decays, at most 0. In each half of a chunk's rows, the gates of a channel have to sum up to
    more than -80; results are NaN otherwise."""
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    parts, out = parts_of(k, chunk), torch.empty(length, heads, d_value, device=k.device)
    tilelang.compile(chunk_parts(heads, chunk, d_key))(q, k, gate, beta, *parts)
    second = outputs(heads, chunk, d_key, d_value, columns=min(d_value, 64))
    # The last of the parts, beta, is of use to the gradients.
    tilelang.compile(second)(v, *parts[:3], out)
    return out


if __name__ == "__main__":
    check((by_channels,), channels=True, description=__doc__)
