"""The gradients of Kimi Delta Attention (kda_backward.py) for Hopper by two kernels of four warp
groups. In the first, two prepare chunks in turns, as in kda_roles.py, two go from chunk to chunk,
with the state transposed and in registers, as in delta_rule_backward_roles.py. In the second, the
reverse order, two, the state's role, go from chunk to chunk with the state's gradient, likewise,
and make dv: that is all that a chunk needs of those behind it. Beside that, they sum up the gates'
gradients of the chunk before. The other two, the rows' role, put decays into rows and make all
other gradients: dq needs no dv. What both have of a chunk is in shared memory once. Check them
against float64 autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import FAST_MATH, chunk_tensors, invert_by_warps, off_zero
from delta_rule_backward import check
from delta_rule_backward_roles import check_sizes, load_tile, store_turned
from delta_rule_roles import CHUNK, COLUMNS, ROWS, WARPS, arrive, schedule
from kda import narrow, widen
from kda_backward import backward_of
from kda_roles import SLOTS, Rows, decay_rows, load_rows

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


class Slots:
    """What is prepared of a chunk, by each group in a slot of its own: -k E, then W, negated;
    k / E; inverse diag(beta), written when the numbers on the way to it are not in use any more;
    both decays of the state."""

    def __init__(self, d_key):
        rows, system = (SLOTS, CHUNK, d_key), (SLOTS, CHUNK, CHUNK)
        self.k, self.k_column = [T.alloc_shared(rows, "bfloat16") for _ in range(2)]
        self.numbers, self.half = [T.alloc_shared(system, "float16") for _ in range(2)]
        self.inverse = T.view(self.numbers, system, "bfloat16")
        T.annotate_layout({self.half: make_swizzled_layout(self.half)})
        self.decay = T.alloc_shared((SLOTS, 2, d_key), "float32")
        self.full = T.alloc_barrier([4] * SLOTS)
        self.free = T.alloc_barrier([WARPS["chain"]] * SLOTS)


class Chain:
    """Values of this chunk and of the next one, which the chain would wait for; updates leave in
    the place of the values. The state on its way to memory."""

    def __init__(self, d_key):
        self.v = T.alloc_shared((2, CHUNK, COLUMNS), "bfloat16")
        self.state = T.alloc_shared((COLUMNS, d_key), "bfloat16")
        self.full, self.free = [T.alloc_barrier([WARPS["chain"]] * 2) for _ in range(2)]


@T.macro
def store_factor(Factor, n, h, row, channel, decay):
    for c in T.vectorized(2):
        Factor[n, h, row, channel + c] = narrow(decay[c])


@T.macro
def corrections(slots, s, roots, load_next):
    """Of rows that have their decays, inverse diag(beta) and, in the place of -k E, -W. `roots` are
    those of delta_rule.roots_of."""
    product = T.alloc_fragment((CHUNK, CHUNK), "float32")
    whole = T.alloc_fragment((CHUNK, CHUNK), "float16")
    left = T.alloc_fragment((CHUNK, CHUNK), "bfloat16")
    T.wgmma_gemm(
        *(slots.k[s, :, :], slots.k_column[s, :, :], product),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    # Beside the product.
    load_next()
    T.wait_wgmma(0)
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] *= roots[1, i] * roots[0, j]
    invert_by_warps(product, slots.numbers, slots.half, T.get_warp_idx() % 4, (s,))
    T.copy(slots.half[s, :, :], whole)
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] = roots[0, i] * whole[i, j] * roots[1, j]
    T.copy(product, left)
    T.copy(product, slots.inverse[s, :, :])
    for first in [*range(0, slots.k.shape[2], CHUNK)]:
        here = slice(first, first + CHUNK)
        T.wgmma_gemm(left, slots.k[s, :, here], product, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(product, slots.k[s, :, here])
    # The chain's products and TMA see what threads wrote.
    T.fence_proxy_async()
    arrive(slots.full, s)


@T.macro
def prepare(s, count, chunks, h, tensors, results, raw, slots):
    """What group s of those that prepare does: `count` chunks, every other one."""
    (K, Gate, Beta), (Factor, Inverse, Decay, BetaRows) = tensors, results
    thread = T.get_thread_binding() % 128
    T.clear(slots.half[s, :, :])
    ahead, roots = T.alloc_shared((CHUNK,), "float32"), T.alloc_shared((2, CHUNK), "float32")
    if s == 0:
        load_rows((K, Gate), raw, h, 0, chunks)
    T.async_copy(Beta[s * CHUNK : (s + 1) * CHUNK, h], ahead)
    for turn in T.serial(count):
        n = turn * SLOTS + s
        T.mbarrier_wait_parity(slots.free[s], turn % 2 ^ 1)
        T.ptx_wait_group(0)
        for i in T.Parallel(CHUNK):
            beta = off_zero(ahead[i])
            roots[0, i] = T.sqrt(T.abs(beta))
            roots[1, i] = beta / roots[0, i]
            BetaRows[n, h, i] = beta
        T.async_copy(Beta[(n + SLOTS) * CHUNK : (n + SLOTS + 1) * CHUNK, h], ahead)
        T.mbarrier_wait_parity(raw.full[s], turn % 2)
        decay_rows(slots, s, raw, thread, partial(store_factor, Factor, n, h))
        # The inverse of before has been read.
        T.tma_store_wait()
        T.fence_proxy_async()
        T.sync_threads(1 + s, 128)
        for side, d in T.Parallel(2, slots.decay.shape[2]):
            Decay[n, h, side, d] = slots.decay[s, side, d]
        corrections(slots, s, roots, partial(load_rows, (K, Gate), raw, h, n + 1, chunks))
        T.tma_copy(slots.inverse[s, :, :], Inverse[n, h, :, :])
    T.ptx_wait_group(0)
    T.tma_store_wait()


@T.macro
def load_values(V, tiles, h, n):
    """Ask for the values of chunk n, when what was in their place has left it."""
    slot, rows = n % 2, slice(n * CHUNK, (n + 1) * CHUNK)
    T.mbarrier_wait_parity(tiles.free[slot], n // 2 % 2 ^ 1)
    T.tma_copy(V[rows, h, :], tiles.v[slot, :, :], barrier=tiles.full[slot])
    arrive(tiles.full, slot)


@T.macro
def update(before, v, slots, s, product, updates):
    """inverse diag(beta) V - W S of a chunk, transposed."""
    T.wgmma_gemm(
        *(v[s, :, :], slots.inverse[s, :, :], product),
        transpose_A=True,
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    T.wgmma_gemm(before, slots.k[s, :, :], product, transpose_B=True, policy=ROWS)
    T.wait_wgmma(0)
    T.copy(product, updates)


@T.macro
def chain(chunks, h, V, results, tiles, slots):
    """The states from chunk to chunk, transposed."""
    State, Updates = results
    d_key = slots.k.shape[2]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    before = T.alloc_fragment((COLUMNS, d_key), "bfloat16")
    product = T.alloc_fragment((COLUMNS, CHUNK), "float32")
    updates = T.alloc_fragment((COLUMNS, CHUNK), "bfloat16")
    T.clear(state)
    if chunks > 0:
        load_values(V, tiles, h, 0)
    for n in T.serial(chunks):
        s = n % SLOTS
        T.mbarrier_wait_parity(slots.full[s], n // SLOTS % 2)
        for j, d in T.Parallel(COLUMNS, d_key):
            state[j, d] *= slots.decay[s, 0, d]
        T.copy(state, before)
        T.copy(before, tiles.state)
        T.copy(tiles.state, State[n, h, :, :])
        # All but the state: the updates of the chunk before have left the place of the next values.
        T.tma_store_wait(1)
        if n > 0:
            arrive(tiles.free, (n - 1) % 2)
        if n + 1 < chunks:
            load_values(V, tiles, h, n + 1)
        T.mbarrier_wait_parity(tiles.full[s], n // 2 % 2)
        update(before, tiles.v, slots, s, product, updates)
        T.wgmma_gemm(updates, slots.k_column[s, :, :], state, policy=ROWS)
        store_turned(updates, tiles.v[s, :, :], Updates[n, h, :, :])
        T.wait_wgmma(0)
        for j, d in T.Parallel(COLUMNS, d_key):
            state[j, d] *= slots.decay[s, 1, d]
        arrive(slots.free, s)
    T.tma_store_wait()


def states(heads, d_key=128, d_value=COLUMNS):
    """What kda.chunk_parts has of all chunks, for gradients, and the state before each chunk, by
    exp(G[middle]), and its updates. A block has a head."""
    check_sizes(d_key, d_value, "kda_backward")
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads, d_key), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Factor: T.Tensor((chunks, heads, CHUNK, d_key), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, CHUNK, CHUNK), "bfloat16"),
        Decay: T.Tensor((chunks, heads, 2, d_key), "float32"),
        BetaRows: T.Tensor((chunks, heads, CHUNK), "float32"),
        State: T.Tensor((chunks, heads, d_value, d_key), "bfloat16"),
        Updates: T.Tensor((chunks, heads, CHUNK, d_value), "bfloat16"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=32 * sum(WARPS.values())) as h:
            T.annotate_ws_schedule(schedule())
            slots, raw, tiles = Slots(d_key), Rows(CHUNK, d_key, queries=False), Chain(d_key)
            for s, role in enumerate(["prepare0", "prepare1"]):
                with T.ws_role(role):
                    tensors, results = (K, Gate, Beta), (Factor, Inverse, Decay, BetaRows)
                    count = T.ceildiv(chunks - s, SLOTS)
                    prepare(s, count, chunks, h, tensors, results, raw, slots)
            with T.ws_role("chain"):
                chain(chunks, h, V, (State, Updates), tiles, slots)

    return main


# The reverse order. Warps of each role, and registers of a thread.
REVERSE_WARPS = {"state": 8, "rows": 8}
REVERSE_REGISTERS = {"state": 144, "rows": 112}
HALVES = T.GemmWarpPolicy.FullCol


def barriers(*roles, slots=1):
    """At a mbarrier arrives each warp of the roles."""
    return T.alloc_barrier([sum(REVERSE_WARPS[role] for role in roles)] * slots)


class Inputs:
    """What TMA fills, for a tile when it is free: keys, decays and beta a chunk ahead. The state's
    role, which has time, asks for them and arrives at `full`, the last to read at `free`."""

    def __init__(self, d_key):
        self.q, self.k, self.factor = [T.alloc_shared((CHUNK, d_key), "bfloat16") for _ in range(3)]
        self.d_out, self.updates = [T.alloc_shared((CHUNK, COLUMNS), "bfloat16") for _ in range(2)]
        self.inverse = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
        self.state = T.alloc_shared((COLUMNS, d_key), "bfloat16")
        self.decay = T.alloc_shared((2, 2, d_key), "float32")
        self.beta = T.alloc_shared((2, CHUNK), "float32")
        names = "q", "k", "factor", "d_out", "updates", "inverse", "state"
        self.full = {name: barriers("state") for name in names}
        # The state's role has left q and dO before the rows' has: d_out_left.
        self.free = {name: barriers("rows") for name in names}
        self.free |= {"inverse": barriers("state"), "state": barriers(*REVERSE_WARPS)}
        self.decay_full = barriers("state", slots=2)


class Passed:
    """What roles hand each other of a chunk: -k E and k / E, beside q E in the place of q; dS' and
    then, in its place, all that gates have as a gradient, by rows; dv; dv . U. P, which both groups
    of the state's use, and in its place, when dv is there, -beta dA."""

    def __init__(self, d_key):
        self.k_row, self.k_column = [T.alloc_shared((CHUNK, d_key), "bfloat16") for _ in range(2)]
        self.d_state = T.alloc_shared((COLUMNS, d_key), "bfloat16")
        self.gates = T.view(self.d_state, (CHUNK, d_key), "float32")
        self.right = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.weights = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
        self.d_beta = T.alloc_shared((CHUNK,), "float32")
        self.rows_full, self.rows_free = barriers("rows"), barriers("state")
        self.d_state_full = barriers("state")
        self.d_out_left = barriers("state")
        self.right_full = barriers("state")
        self.gates_full = barriers("rows")


@T.macro
def load_decay(tensors, tiles, h, n, s):
    """Ask for the decays and beta of chunk n, which is number s."""
    (Decay, BetaRows), slot = tensors, s % 2
    T.tma_copy(Decay[n, h, :, :], tiles.decay[slot, :, :], barrier=tiles.decay_full[slot])
    T.tma_copy(BetaRows[n, h, :], tiles.beta[slot, :], barrier=tiles.decay_full[slot])
    arrive(tiles.decay_full, slot)


@T.macro
def load_input(tiles, name, source, s):
    load_tile(source, getattr(tiles, name), tiles.full[name], tiles.free[name], s)


@T.macro
def wait_for(tiles, name, s):
    T.mbarrier_wait_parity(tiles.full[name][0], s % 2)


@T.macro
def load_gates(passed, loaded, totals):
    """What gates have as a gradient, by rows from the last one on, a thread a channel of half a
    chunk, and its sums: their place is then free for dS'."""
    total = T.alloc_fragment(totals.shape, "float32")
    half = CHUNK // 2
    for side, d in T.Parallel(*totals.shape):
        total[side, d] = 0
        for i in T.unroll(half):
            loaded[side, d, i] = passed.gates[(side + 1) * half - 1 - i, d]
            total[side, d] += loaded[side, d, i]
    T.copy(total, totals)


@T.macro
def sum_gates(passed, tiles, loaded, totals, behind, sums, results, h, n, slot):
    """Of chunk n. A gate is in all G behind it: each row and those after it, and what is behind the
    chunk. U of a row grows by the part by which its beta grows."""
    dGate, dBeta = results
    first = T.alloc_fragment(totals.shape, "float32")
    half = CHUNK // 2
    for i in T.Parallel(CHUNK):
        beta = tiles.beta[slot, i]
        dBeta[n * CHUNK + i, h] = passed.d_beta[i] / (beta * beta)
    for side, d in T.Parallel(*totals.shape):
        first[side, d] = behind[side, d] + (1 - side) * totals[1, d]
        # What is behind the chunk before.
        behind[side, d] = 0
        for w in T.unroll(sums.shape[0]):
            behind[side, d] += sums[w, d]
        for i in T.unroll(half):
            first[side, d] += loaded[side, d, i]
            dGate[n * CHUNK + (side + 1) * half - 1 - i, h, d] = first[side, d]


@T.macro
def enter_chunk(state, decay, slot, left):
    """dS' by the decay of the chunk behind, `left`, and by the one of this chunk: one behind the
    other, as both may be exp(-60), whose product float32 does not have. Between them is dS."""
    for d, c in T.Parallel(*state.shape):
        state[d, c] = state[d, c] * left[c] * decay[slot, 1, c]


@T.macro
def end_chunk(tiles, state, sums):
    """This state and its gradient are S' and dS' of the chunk before: sums of their products, for
    each warp's rows."""
    warps, d_key = sums.shape
    rows = COLUMNS // warps
    product = T.alloc_fragment((warps, rows, d_key), "float32")
    of_warp = T.alloc_fragment((warps, d_key), "float32")
    for w, j, c in T.Parallel(warps, rows, d_key):
        product[w, j, c] = state[w * rows + j, c] * tiles.state[w * rows + j, c]
    T.reduce_sum(product, of_warp, dim=1)
    T.copy(of_warp, sums)


@T.macro
def find_dv(s, tiles, passed, state, product, right):
    """dv^T in `product`, and the state's gradient by the part that does not need it."""
    weights = T.alloc_fragment((CHUNK, CHUNK), "float32")
    T.mbarrier_wait_parity(passed.rows_full[0], s % 2)
    T.wgmma_gemm(
        tiles.q, passed.k_column, weights, transpose_B=True, policy=HALVES, clear_accum=True
    )
    T.wgmma_gemm(
        *(passed.d_state, passed.k_column, product),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    T.wait_wgmma(1)
    for i, j in T.Parallel(CHUNK, CHUNK):
        weights[i, j] = T.if_then_else(i >= j, weights[i, j], 0)
    T.copy(weights, passed.weights)
    wait_for(tiles, "d_out", s)
    T.wgmma_gemm(tiles.d_out, passed.weights, product, transpose_A=True, policy=ROWS)
    T.wgmma_gemm(tiles.d_out, tiles.q, state, transpose_A=True, policy=ROWS)
    T.wait_wgmma(1)
    T.copy(product, right)
    wait_for(tiles, "inverse", s)
    T.wgmma_gemm(right, tiles.inverse, product, policy=ROWS, clear_accum=True)
    T.wait_wgmma(1)
    arrive(passed.d_out_left)
    T.wait_wgmma(0)
    arrive(tiles.free["inverse"])


@T.macro
def go_back(chunks, h, tensors, results, tiles, passed):
    """What the state's role does."""
    Q, K, dOut, Factor, Inverse, State, Updates, *decays = tensors
    dV, *of_gates = results
    d_key = tiles.q.shape[1]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    left = T.alloc_shared((d_key,), "float32")
    sums = T.alloc_shared((REVERSE_WARPS["state"], d_key), "float32")
    behind = T.alloc_fragment((2, d_key), "float32")
    totals = T.alloc_shared((2, d_key), "float32")
    loaded = T.alloc_fragment((2, d_key, CHUNK // 2), "float32")
    product = T.alloc_fragment((COLUMNS, CHUNK), "float32")
    right = T.alloc_fragment((COLUMNS, CHUNK), "bfloat16")
    turned = T.alloc_fragment((CHUNK, COLUMNS), "bfloat16")
    T.clear(state)
    T.clear(behind)
    T.fill(left, 1)
    if chunks > 0:
        last = slice((chunks - 1) * CHUNK, chunks * CHUNK)
        load_input(tiles, "k", K[last, h, :], 0)
        load_input(tiles, "factor", Factor[chunks - 1, h, :, :], 0)
        load_input(tiles, "q", Q[last, h, :], 0)
        load_input(tiles, "d_out", dOut[last, h, :], 0)
        load_input(tiles, "updates", Updates[chunks - 1, h, :, :], 0)
        load_input(tiles, "state", State[chunks - 1, h, :, :], 0)
        load_input(tiles, "inverse", Inverse[chunks - 1, h, :, :], 0)
        load_decay(decays, tiles, h, chunks - 1, 0)
    for s in T.serial(chunks + 1):
        n, slot = chunks - 1 - s, s % 2
        if s > 0:
            # The rows' has left all that both have of the chunk before.
            T.mbarrier_wait_parity(passed.gates_full[0], (s - 1) % 2)
            load_gates(passed, loaded, totals)
        if s < chunks:
            # The last dv has left its place: enter_chunk's barrier tells all threads.
            T.tma_store_wait()
            T.mbarrier_wait_parity(tiles.decay_full[slot], s // 2 % 2)
            enter_chunk(state, tiles.decay, slot, left)
            T.copy(state, passed.d_state)
            T.fence_proxy_async()
            arrive(passed.d_state_full)
        if s > 0:
            sum_gates(passed, tiles, loaded, totals, behind, sums, of_gates, h, n + 1, slot ^ 1)
        if s < chunks:
            find_dv(s, tiles, passed, state, product, right)
            T.copy(product, right)
            T.wgmma_gemm(right, passed.k_row, state, policy=ROWS)
            for d, i in T.Parallel(COLUMNS, CHUNK):
                turned[i, d] = right[d, i]
            T.copy(turned, passed.right)
            T.fence_proxy_async()
            arrive(passed.right_full)
            T.sync_threads(2, 256)
            T.tma_copy(passed.right, dV[n * CHUNK : (n + 1) * CHUNK, h, :])
            for c in T.Parallel(d_key):
                left[c] = tiles.decay[slot, 0, c]
            before = slice((n - 1) * CHUNK, n * CHUNK)
            if s + 1 < chunks:
                load_decay(decays, tiles, h, n - 1, s + 1)
                load_input(tiles, "k", K[before, h, :], s + 1)
                load_input(tiles, "inverse", Inverse[n - 1, h, :, :], s + 1)
            T.wait_wgmma(0)
            arrive(passed.rows_free)
            if s + 1 < chunks:
                load_input(tiles, "d_out", dOut[before, h, :], s + 1)
            wait_for(tiles, "state", s)
            end_chunk(tiles, state, sums)
            arrive(tiles.free["state"])
            if s + 1 < chunks:
                load_input(tiles, "state", State[n - 1, h, :, :], s + 1)
                load_input(tiles, "updates", Updates[n - 1, h, :, :], s + 1)
                load_input(tiles, "q", Q[before, h, :], s + 1)
                load_input(tiles, "factor", Factor[n - 1, h, :, :], s + 1)
    T.tma_store_wait()


@T.macro
def decay_keys_and_queries(tiles, passed):
    """q E, -k E and k / E of q and k as they come. A loop, since the code of a chunk is more than
    the first instruction cache has."""
    half = CHUNK // 2
    for side in T.serial(2):
        for row, d in T.Parallel(half, tiles.k.shape[1]):
            i = side * half + row
            decay = widen(tiles.factor[i, d])
            passed.k_column[i, d] = tiles.k[i, d] / decay
            passed.k_row[i, d] = -(tiles.k[i, d] * decay)
            tiles.q[i, d] = tiles.q[i, d] * decay


@T.macro
def of_queries(s, tiles, passed, d_weights_shared, d_gates, target):
    """dP; dq and its part of dG."""
    d_weights = T.alloc_fragment((CHUNK, CHUNK), "float32")
    query = T.alloc_fragment(tiles.q.shape, "float32")
    wait_for(tiles, "d_out", s)
    wait_for(tiles, "updates", s)
    T.wgmma_gemm(
        tiles.d_out, tiles.updates, d_weights, transpose_B=True, policy=HALVES, clear_accum=True
    )
    wait_for(tiles, "state", s)
    T.wgmma_gemm(tiles.d_out, tiles.state, query, policy=HALVES, clear_accum=True)
    T.wait_wgmma(1)
    for i, j in T.Parallel(CHUNK, CHUNK):
        d_weights[i, j] = T.if_then_else(i >= j, d_weights[i, j], 0)
    T.copy(d_weights, d_weights_shared)
    T.wgmma_gemm(d_weights_shared, passed.k_column, query, policy=HALVES)
    T.wait_wgmma(0)
    for i, d in T.Parallel(*query.shape):
        d_gates[i, d] = tiles.q[i, d] * query[i, d]
        query[i, d] *= widen(tiles.factor[i, d])
    # In the place of dO, which both roles have left.
    T.mbarrier_wait_parity(passed.d_out_left[0], s % 2)
    T.copy(query, tiles.d_out[:, : query.shape[1]])
    T.fence_proxy_async()
    T.sync_threads(1, 256)
    T.tma_copy(tiles.d_out[:, : query.shape[1]], target)


@T.macro
def find_slopes(s, tiles, passed):
    """Of dv: -beta dA, and dv . U."""
    scores = T.alloc_fragment((CHUNK, CHUNK), "float32")
    T.mbarrier_wait_parity(passed.right_full[0], s % 2)
    T.wgmma_gemm(
        passed.right, tiles.updates, scores, transpose_B=True, policy=HALVES, clear_accum=True
    )
    T.wait_wgmma(0)
    for i, j in T.Parallel(CHUNK, CHUNK):
        if i == j:
            passed.d_beta[i] = scores[i, j]
    for i, j in T.Parallel(CHUNK, CHUNK):
        scores[i, j] = T.if_then_else(i > j, scores[i, j], 0)
    T.copy(scores, passed.weights)


@T.macro
def of_keys(tiles, passed, d_weights_shared, d_gates, column):
    """dk in `column`, and its part of dG. Of the row, its part of dk alone is kept, and that in 16
    bits: more accumulators would be spilled."""
    row = T.alloc_fragment(column.shape, "float32")
    of_row = T.alloc_fragment(column.shape, "bfloat16")
    T.wgmma_gemm(passed.right, tiles.state, row, policy=HALVES, clear_accum=True)
    T.wgmma_gemm(passed.weights, passed.k_column, row, policy=HALVES)
    T.wait_wgmma(0)
    arrive(tiles.free["state"])
    for i, d in T.Parallel(*row.shape):
        d_gates[i, d] += passed.k_row[i, d] * row[i, d]
        row[i, d] *= widen(tiles.factor[i, d])
    T.copy(row, of_row)
    T.wgmma_gemm(tiles.updates, passed.d_state, column, policy=HALVES, clear_accum=True)
    T.wgmma_gemm(d_weights_shared, tiles.q, column, transpose_A=True, policy=HALVES)
    T.wgmma_gemm(passed.weights, passed.k_row, column, transpose_A=True, policy=HALVES)
    T.wait_wgmma(0)
    arrive(tiles.free["updates"])
    arrive(tiles.free["q"])
    for i, d in T.Parallel(*column.shape):
        d_gates[i, d] -= passed.k_column[i, d] * column[i, d]
        column[i, d] = column[i, d] / widen(tiles.factor[i, d]) - of_row[i, d]


@T.macro
def find_rows(chunks, h, results, tiles, passed):
    """What the rows' role does."""
    dQ, dK = results
    d_key = tiles.q.shape[1]
    d_weights_shared = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
    column, d_gates = [T.alloc_fragment((CHUNK, d_key), "float32") for _ in range(2)]
    for s in T.serial(chunks):
        n = chunks - 1 - s
        here = slice(n * CHUNK, (n + 1) * CHUNK)
        # The last dk has left the place of k / E, and the state's role the rows.
        T.tma_store_wait()
        T.sync_threads(1, 256)
        T.mbarrier_wait_parity(passed.rows_free[0], s % 2 ^ 1)
        for name in ["q", "k", "factor"]:
            wait_for(tiles, name, s)
        decay_keys_and_queries(tiles, passed)
        T.fence_proxy_async()
        arrive(passed.rows_full)
        arrive(tiles.free["k"])
        of_queries(s, tiles, passed, d_weights_shared, d_gates, dQ[here, h, :])
        find_slopes(s, tiles, passed)
        T.tma_store_wait()
        arrive(tiles.free["d_out"])
        T.mbarrier_wait_parity(passed.d_state_full[0], s % 2)
        of_keys(tiles, passed, d_weights_shared, d_gates, column)
        arrive(tiles.free["factor"])
        T.copy(column, passed.k_column)
        T.fence_proxy_async()
        T.sync_threads(1, 256)
        T.tma_copy(passed.k_column, dK[here, h, :])
        T.copy(d_gates, passed.gates)
        arrive(passed.gates_full)
    T.tma_store_wait()


def gradients(heads, d_key=128, d_value=COLUMNS):
    """dQ, dK, dV, the gates' gradients and beta's: a block has a head, from its last chunk on. The
    gates' and beta's have all rows of the last chunk. States are transposed."""
    check_sizes(d_key, d_value, "kda_backward")
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        dOut: T.Tensor((length, heads, d_value), "bfloat16"),
        Factor: T.Tensor((chunks, heads, CHUNK, d_key), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, CHUNK, CHUNK), "bfloat16"),
        Decay: T.Tensor((chunks, heads, 2, d_key), "float32"),
        BetaRows: T.Tensor((chunks, heads, CHUNK), "float32"),
        State: T.Tensor((chunks, heads, d_value, d_key), "bfloat16"),
        Updates: T.Tensor((chunks, heads, CHUNK, d_value), "bfloat16"),
        dQ: T.Tensor((length, heads, d_key), "bfloat16"),
        dK: T.Tensor((length, heads, d_key), "bfloat16"),
        dV: T.Tensor((length, heads, d_value), "bfloat16"),
        dGate: T.Tensor((chunks * CHUNK, heads, d_key), "float32"),
        dBeta: T.Tensor((chunks * CHUNK, heads), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=32 * sum(REVERSE_WARPS.values())) as h:
            T.annotate_ws_schedule(schedule(REVERSE_WARPS, REVERSE_REGISTERS))
            tiles, passed = Inputs(d_key), Passed(d_key)
            with T.ws_role("state"):
                tensors = Q, K, dOut, Factor, Inverse, State, Updates, Decay, BetaRows
                go_back(chunks, h, tensors, (dV, dGate, dBeta), tiles, passed)
            with T.ws_role("rows"):
                find_rows(chunks, h, (dQ, dK), tiles, passed)

    return main


def kernels_of(heads, chunk=CHUNK, key=128, value=COLUMNS, **options):
    """The two kernels; `options` are those of tilelang.compile."""
    if chunk != CHUNK:
        raise ValueError(f"found chunks of {chunk} rows, wanted {CHUNK}")
    programs = states(heads, key, value), gradients(heads, key, value)
    return [tilelang.compile(program, **{"target": HOPPER, **options}) for program in programs]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """As kda_backward.backward, by the kernels of this file's `kernels_of`."""
    key, value = k.shape[2], v.shape[2]
    shapes = (chunk, key), (chunk, chunk), (value, key), (chunk, value)
    factor, inverse, state, updates = chunk_tensors(k, chunk, *shapes)
    decay, beta_rows = chunk_tensors(k, chunk, (2, key), (chunk,), dtype=torch.float32)
    parts = factor, inverse, decay, beta_rows, state, updates
    kernels[0](k, v, gate, beta, *parts)
    return backward_of((q, k), (q, k, v, gate, beta), d_out, parts, kernels[1])


if __name__ == "__main__":
    check((kernels_of, backward), channels=True, description=__doc__, sizes=(64, COLUMNS))
