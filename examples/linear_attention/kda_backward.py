"""The gradients of Kimi Delta Attention in three kernels: what chunks do alone (kda.py), the states
from chunk to chunk, and then all gradients in the reverse order. Check them against float64
autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import CHUNK, FAST_MATH, KEY, VALUE, chunk_tensors, sharing, walk
from delta_rule_backward import check, store, store_chunk
from kda import GatesOfChannels, load_chunk, parts_for_gradients, parts_of, widen

import tilelang
import tilelang.language as T

# The equations are those of delta_rule_backward.py, with the decays of kda.py in the rows: those of
# q, `row` and `column` are q E, -k E and k / E, and S is exp(G[middle]) S. So what is behind their
# products takes no exponentials; gradients of the rows themselves take the factors once more. What
# dG[last] has besides, S' dS', is summed up by channel.


@T.macro
def sum_gates(d_gates, sums, target, first, h):
    # A gate is in all G behind it: in `target`, from row `first` on, each row and those after it,
    # and what is behind the chunk, in two parts in front of `sums`. A thread has a channel of half
    # a chunk. It reads both parts in front of a barrier, so that the next ones may be written
    # without another one.
    chunk, channels = d_gates.shape
    half = chunk // 2
    gates = T.alloc_shared((chunk, channels), "float32")
    loaded = T.alloc_fragment((2, channels, half), "float32")
    behind, total = [T.alloc_fragment((2, channels), "float32") for _ in range(2)]
    # Rows of a fragment and channels of a sum both reach all banks.
    T.annotate_layout({gates: tilelang.layout.make_swizzled_layout(gates)})
    T.copy(d_gates, gates)
    for side, d in T.Parallel(2, channels):
        behind[side, d] = sums[0, d] + sums[1, d]
        total[side, d] = 0
        for i in T.unroll(half):
            loaded[side, d, i] = gates[(side + 1) * half - 1 - i, d]
            total[side, d] += loaded[side, d, i]
    T.copy(total, sums[2:, :])
    for side, d in T.Parallel(2, channels):
        total[side, d] = behind[side, d] + (1 - side) * sums[3, d]
        for i in T.unroll(half):
            total[side, d] += loaded[side, d, i]
            target[first + (side + 1) * half - 1 - i, h, d] = total[side, d]


@T.macro
def multiply_halves(a, b, sums, clear=True):
    # Sums of a * b by rows, for each half of the columns, which are those of other warps.
    half = a.shape[1] // 2
    product = T.alloc_fragment((a.shape[0], 2, half), "float32")
    for i, side, d in T.Parallel(*product.shape):
        product[i, side, d] = a[i, side * half + d] * b[i, side * half + d]
    T.reduce_sum(product, sums, dim=2, clear=clear)


def states(heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, columns=64, threads=128, ahead=2):
    """The state before each chunk, by exp(G[middle]), and its U. A block has a head's state for
    `columns` of its values."""
    length, chunks = T.dynamic("length, chunks")
    blocks = -(-d_value // columns)

    @T.prim_func
    def main(
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Tiles: T.Tensor((3, chunks, heads, chunk, d_key), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Decay: T.Tensor((chunks, heads, 2, d_key), "float32"),
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
    ):
        # The blocks of a head share its tiles.
        with T.Kernel(blocks, heads, threads=threads, cluster_dims=sharing(blocks)) as (bx, h):
            k_row, k_column = [T.alloc_shared((chunk, d_key), "bfloat16") for _ in range(2)]
            v = T.alloc_shared((chunk, columns), "bfloat16")
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            decay = T.alloc_shared((2, d_key), "float32")
            state = T.alloc_fragment((d_key, columns), "float32")
            # The first products of a chunk wait for these: they arrive during the one before.
            T.annotate_ws_pipeline_depth({k_row: ahead, decay: ahead})
            here = slice(bx * columns, (bx + 1) * columns)
            tiles = k_row, k_column, v, inverse
            loaded = *tiles, decay
            load = partial(load_chunk, (V, Tiles, Inverse, Decay), loaded, h, here)
            stores = [partial(store_chunk, tensor, h, here) for tensor in (State, Updates)]
            walk(chunks, load, tiles, GatesOfChannels(decay), state, states=stores)

    return main


@T.macro
def find_updates(loaded, d_state_shared, weights, tile, right, column, d_weights):
    # dv, by P in `weights`, of `column` what comes from the state behind the chunk, and dP.
    q, k_column, d_out, inverse, updates = loaded
    scores = T.alloc_fragment(d_weights.shape, "float32")
    T.gemm(q, k_column, scores, transpose_B=True, clear_accum=True)
    T.gemm(k_column, d_state_shared, right, clear_accum=True)
    T.gemm(updates, d_state_shared, column, transpose_B=True, clear_accum=True)
    for i, j in T.Parallel(*scores.shape):
        scores[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
    T.copy(scores, weights)
    T.gemm(weights, d_out, right, transpose_A=True)
    T.copy(right, tile)
    T.gemm(inverse, tile, right, transpose_A=True, clear_accum=True)
    # Beside what is made of dv.
    T.gemm(d_out, updates, d_weights, transpose_B=True, clear_accum=True)


@T.macro
def find_slopes(updates, tiles, right, d_weights, d_system, target):
    # Of dv in `right` and of dP: dP in `weights`, and dv U^T.
    weights, right_shared = tiles
    store(right, right_shared, target)
    T.gemm(right_shared, updates, d_system, transpose_B=True, clear_accum=True)
    for i, j in T.Parallel(*d_weights.shape):
        d_weights[i, j] = T.if_then_else(i >= j, d_weights[i, j], 0)
    T.copy(d_weights, weights)


@T.macro
def store_slopes(d_system, slopes):
    # -beta dA = dv U^T. `slopes` keeps the minus: `of_keys` multiplies it by -k E, which has one,
    # too, and subtracts -row.
    for i, j in T.Parallel(*slopes.shape):
        d_system[i, j] = T.if_then_else(i > j, d_system[i, j], 0)
    T.copy(d_system, slopes)


@T.macro
def of_queries(loaded, weights, query, column, d_state, d_gates):
    # dq, its parts of dG, of `column` and of the state's gradient.
    q, k_column, factor, d_out, state = loaded
    rows, factors = [T.alloc_fragment(q.shape, "bfloat16") for _ in range(2)]
    T.gemm(d_out, state, query, transpose_B=True, clear_accum=True)
    T.gemm(weights, k_column, query)
    T.gemm(weights, q, column, transpose_A=True)
    T.gemm(q, d_out, d_state, transpose_A=True)
    T.copy(q, rows)
    T.copy(factor, factors)
    for i, d in T.Parallel(*q.shape):
        d_gates[i, d] = rows[i, d] * query[i, d]
        query[i, d] *= widen(factors[i, d])


@T.macro
def of_keys(loaded, tiles, row, column, d_state, d_gates):
    # -row, dk in `column`, and the parts of dG and of the state's gradient.
    k_row, k_column, factor, state = loaded
    right_shared, slopes = tiles
    # By ldmatrix, but not the factors: three tiles would take too many registers.
    rows, columns = [T.alloc_fragment(k_row.shape, "bfloat16") for _ in range(2)]
    T.gemm(right_shared, state, row, transpose_B=True, clear_accum=True)
    T.gemm(slopes, k_column, row)
    T.gemm(slopes, k_row, column, transpose_A=True)
    T.gemm(k_row, right_shared, d_state, transpose_A=True)
    T.copy(k_row, rows)
    T.copy(k_column, columns)
    for i, d in T.Parallel(*row.shape):
        d_gates[i, d] += rows[i, d] * row[i, d] - columns[i, d] * column[i, d]
        decay = widen(factor[i, d])
        column[i, d] = column[i, d] / decay - row[i, d] * decay


@T.macro
def decay_keys_and_queries(q, k, factor, k_column):
    # Of q and k as they come: q E and -k E in their place, and k / E. A loop, since the code of a
    # chunk is more than the first instruction cache has.
    half = k.shape[0] // 2
    for side in T.serial(2):
        for row, d in T.Parallel(half, k.shape[1]):
            i = side * half + row
            k_column[i, d] = k[i, d] / widen(factor[i, d])
            k[i, d] = -(k[i, d] * widen(factor[i, d]))
            q[i, d] = q[i, d] * widen(factor[i, d])


@T.macro
def load_gradients(tensors, tiles, h, n):
    # In the order in which there is room for the next chunk's.
    Q, K, V, dOut, Factor, Inverse, Decay, BetaRows, State, Updates = tensors
    q, k_row, factor, v, d_out, inverse, decay, beta, state, updates = tiles
    chunk = v.shape[0]
    rows = slice(n * chunk, (n + 1) * chunk)
    T.copy(Decay[n, h, :, :], decay)
    T.copy(BetaRows[n, h, :], beta)
    T.copy(Inverse[n, h, :, :], inverse)
    T.copy(V[rows, h, :], v)
    T.copy(Updates[n, h, :, :], updates)
    T.copy(dOut[rows, h, :], d_out)
    T.copy(Q[rows, h, :], q)
    T.copy(K[rows, h, :], k_row)
    T.copy(Factor[n, h, :, :], factor)
    T.copy(State[n, h, :, :], state)


@T.macro
def enter_chunk(d_state, decay, left, slot=()):
    # dS' by the decay of the chunk behind, `left`, and by the one of this chunk: one behind the
    # other, as both may be exp(-60), whose product float32 does not have. Between them is dS.
    entered = T.alloc_fragment(left.shape, "float32")
    for i in T.Parallel(*left.shape):
        place = (*slot, 1, i)
        entered[i] = decay[place]
    for i, d in T.Parallel(*d_state.shape):
        d_state[i, d] = d_state[i, d] * left[i] * entered[i]


@T.macro
def end_states(state, d_state, decay, left, sums, slots=((), ())):
    # This state and its gradient, but for a decay, are S' and dS' of the chunk before.
    d_key = state.shape[0]
    rows = T.alloc_fragment(state.shape, "bfloat16")
    d_channel = T.alloc_fragment((d_key, 2), "float32")
    T.copy(state, rows)
    multiply_halves(rows, d_state, d_channel)
    for i in T.Parallel(d_key):
        place = (*slots[0], 0, i)
        left[i] = decay[place]
    for i, side in T.Parallel(d_key, 2):
        place = (*slots[1], side, i)
        sums[place] = d_channel[i, side]


def accumulators(chunk, d_key, d_value):
    """In registers, of the reverse order: the state's gradient and a decay that it lacks; dv, dq,
    -row and column; what dG has; dP and beta dA."""
    of_keys = [T.alloc_fragment((chunk, d_key), "float32") for _ in range(4)]
    squares = [T.alloc_fragment((chunk, chunk), "float32") for _ in range(2)]
    d_state, right = [T.alloc_fragment((n, d_value), "float32") for n in (d_key, chunk)]
    return d_state, T.alloc_fragment((d_key,), "float32"), right, *of_keys, *squares


@T.macro
def begin(d_state, left, behind):
    # Behind the last chunk is nothing.
    T.clear(d_state)
    T.fill(left, 1)
    T.clear(behind)


def gradients(heads, chunk=CHUNK, d_key=KEY, d_value=VALUE, threads=256):
    """dQ, dK, dV, the gates' gradients and beta's: a block has a head, from its last chunk on, and
    the state's gradient in registers. The gates' and beta's have all rows of the last chunk."""
    length, chunks = T.dynamic("length, chunks")
    width = max(d_key, d_value)
    keys, values = slice(0, d_key), slice(0, d_value)

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        dOut: T.Tensor((length, heads, d_value), "bfloat16"),
        Factor: T.Tensor((chunks, heads, chunk, d_key), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, chunk, chunk), "bfloat16"),
        Decay: T.Tensor((chunks, heads, 2, d_key), "float32"),
        BetaRows: T.Tensor((chunks, heads, chunk), "float32"),
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, chunk, d_value), "bfloat16"),
        dQ: T.Tensor((length, heads, d_key), "bfloat16"),
        dK: T.Tensor((length, heads, d_key), "bfloat16"),
        dV: T.Tensor((length, heads, d_value), "bfloat16"),
        dGate: T.Tensor((chunks * chunk, heads, d_key), "float32"),
        dBeta: T.Tensor((chunks * chunk, heads), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=threads) as h:
            T.annotate_producer_reg_dealloc(24)
            T.annotate_consumer_reg_alloc(240)
            tensors = Q, K, V, dOut, Factor, Inverse, Decay, BetaRows, State, Updates
            of_key, of_value = (chunk, d_key), (chunk, d_value)
            q, k_row, k_column, factor = [T.alloc_shared(of_key, "bfloat16") for _ in range(4)]
            v, d_out, updates = [T.alloc_shared(of_value, "bfloat16") for _ in range(3)]
            inverse = T.alloc_shared((chunk, chunk), "bfloat16")
            decay = T.alloc_shared((2, d_key), "float32")
            beta = T.alloc_shared((chunk,), "float32")
            state = T.alloc_shared((d_key, d_value), "bfloat16")
            T.annotate_ws_pipeline_depth({decay: 2, beta: 2})
            d_state_shared = T.alloc_shared((d_key, d_value), "bfloat16")
            # P, then dP; -beta dA.
            weights, slopes = [T.alloc_shared((chunk, chunk), "bfloat16") for _ in range(2)]
            # Operands of products and, on the way to memory, results.
            tile = T.alloc_shared((chunk, width), "bfloat16")
            right_shared = T.alloc_shared(of_value, "bfloat16")
            fragments = accumulators(chunk, d_key, d_value)
            d_state, left, right, query, row, column, d_gates, d_weights, d_system = fragments
            d_beta = T.alloc_fragment((chunk, 2), "float32")
            of_beta = T.alloc_shared((chunk, 2), "float32")
            # What is behind a chunk, by halves of the values, and sums of halves of the chunk.
            sums = T.alloc_shared((4, d_key), "float32")
            begin(d_state, left, sums)
            for step in T.Pipelined(chunks, num_stages=1):
                n = chunks - 1 - step
                rows = slice(n * chunk, (n + 1) * chunk)
                loaded = q, k_row, factor, v, d_out, inverse, decay, beta, state, updates
                load_gradients(tensors, loaded, h, n)
                decay_keys_and_queries(q, k_row, factor, k_column)
                enter_chunk(d_state, decay, left)
                T.copy(d_state, d_state_shared)
                loaded, on_the_way = (q, k_column, d_out, inverse, updates), tile[:, values]
                find_updates(loaded, d_state_shared, weights, on_the_way, right, column, d_weights)
                tiles = weights, right_shared
                find_slopes(updates, tiles, right, d_weights, d_system, dV[rows, h, :])
                multiply_halves(right, v, d_beta)
                store_slopes(d_system, slopes)
                loaded = q, k_column, factor, d_out, state
                of_queries(loaded, weights, query, column, d_state, d_gates)
                store(query, tile[:, keys], dQ[rows, h, :])
                loaded, tiles = (k_row, k_column, factor, state), (right_shared, slopes)
                of_keys(loaded, tiles, row, column, d_state, d_gates)
                multiply_halves(row, k_row, d_beta, clear=False)
                T.copy(d_beta, of_beta)
                store(column, tile[:, keys], dK[rows, h, :])
                for i in T.Parallel(chunk):
                    dBeta[n * chunk + i, h] = (of_beta[i, 0] + of_beta[i, 1]) / beta[i]
                sum_gates(d_gates, sums, dGate, n * chunk, h)
                end_states(state, d_state, decay, left, sums)

    return main


def kernels_of(heads, chunk=CHUNK, key=KEY, value=VALUE, **options):
    """The three kernels; `options` are those of tilelang.compile."""
    programs = (
        parts_for_gradients(heads, chunk, key),
        states(heads, chunk, key, value, columns=min(value, 64)),
        gradients(heads, chunk, key, value),
    )
    return [tilelang.compile(program, **options) for program in programs]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """dQ, dK and dV in bfloat16, the gradients of the gates and of beta in float32, of all that the
    forward has; `d_out` is (length, heads, d_value) in bfloat16, `kernels` are `kernels_of` it.
    Gates are natural logarithms of decays, at most 0. In each half of a chunk's rows, the gates of
    a channel have to sum up to more than -60: below it, gradients lose parts where beta is near 0,
    below -80 they are NaN."""
    key, value = k.shape[2], v.shape[2]
    tiles, *parts = parts_of(k, chunk)
    state, updates = chunk_tensors(k, chunk, (key, value), (chunk, value))
    kernels[0](k, gate, beta, tiles, *parts)
    kernels[1](v, tiles, *parts[:2], state, updates)
    inputs, found = (q, k, v, gate, beta), (tiles[0], *parts, state, updates)
    return backward_of(inputs[:3], inputs, d_out, found, kernels[2])


def backward_of(read, inputs, d_out, chunks, kernel):
    """The gradients of the inputs, by what has been found of the chunks, by `gradients`, which
    reads some of the inputs."""
    found = [torch.empty_like(x) for x in inputs[:3]]
    # Threads that store single rows need no bound to look at.
    count, _, chunk, _ = chunks[1].shape
    for x in inputs[3:]:
        found.append(x.new_empty(count * chunk, *x.shape[1:]))
    kernel(*read, d_out, *chunks, *found)
    return [x[: len(d_out)] for x in found]


if __name__ == "__main__":
    check((kernels_of, backward), channels=True, description=__doc__)
