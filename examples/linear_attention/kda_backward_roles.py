"""The gradients of Kimi Delta Attention (kda_backward.py) for Hopper, what chunks do alone and the
states in one kernel by a schedule of four warp groups: two prepare chunks in turns, as in
kda_roles.py, two go from chunk to chunk, with the state transposed and in registers, as in
delta_rule_backward_roles.py. In the reverse order those who load also sum up the gradients of
gates, while the other two warp groups go on. Check them against float64 autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import FAST_MATH, chunk_tensors, invert_by_warps, off_zero
from delta_rule_backward import check, store
from delta_rule_backward_roles import check_sizes, load_tile, load_values, store_turned
from delta_rule_roles import CHUNK, COLUMNS, ROWS, WARPS, arrive, barriers_of, schedule
from kda import narrow
from kda_backward import (
    accumulators,
    backward_of,
    begin,
    decay_keys_and_queries,
    end_states,
    enter_chunk,
    find_slopes,
    find_updates,
    of_keys,
    of_queries,
    store_slopes,
)
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
        self.state = T.alloc_shared((d_key, COLUMNS), "bfloat16")
        self.values_full, self.values_free = [
            T.alloc_barrier([WARPS["chain"]] * 2) for _ in range(2)
        ]


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
        store_turned(before, tiles.state, State[n, h, :, :])
        # All but the state: the updates of the chunk before have left the place of the next values.
        T.tma_store_wait(1)
        if n > 0:
            arrive(tiles.values_free, (n - 1) % 2)
        if n + 1 < chunks:
            load_values(V, tiles, h, n + 1)
        T.mbarrier_wait_parity(tiles.values_full[s], n // 2 % 2)
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
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
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
REVERSE_WARPS = {"memory": 4, "chain": 8}
REVERSE_REGISTERS = {"memory": 24, "chain": 240}
reverse_barriers = partial(barriers_of, REVERSE_WARPS)


class Loaded:
    """What TMA fills, for the chain. The next chunk's decays are there when it begins."""

    def __init__(self, d_key):
        self.q, self.k, self.factor = [T.alloc_shared((CHUNK, d_key), "bfloat16") for _ in range(3)]
        self.d_out, self.updates = [T.alloc_shared((CHUNK, COLUMNS), "bfloat16") for _ in range(2)]
        self.inverse = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
        self.state = T.alloc_shared((d_key, COLUMNS), "bfloat16")
        self.decay = T.alloc_shared((2, 2, d_key), "float32")
        self.beta = T.alloc_shared((2, CHUNK), "float32")
        names = "q", "k", "d_out", "updates", "inverse", "state"
        self.full = {name: reverse_barriers("memory") for name in names}
        self.free = {name: reverse_barriers("chain") for name in names}
        self.decay_full = reverse_barriers("memory", slots=2)
        self.decay_free = reverse_barriers("memory", "chain", slots=2)


class Given:
    """What the chain leaves to those who load: by rows, what all their gates have as a gradient, in
    the place of the state's; dv . U; what is behind the chunk, by halves of the values."""

    def __init__(self, d_state_shared):
        d_key = d_state_shared.shape[0]
        self.gates = T.view(d_state_shared, (CHUNK, d_key), "float32")
        self.d_beta = T.alloc_shared((CHUNK,), "float32")
        self.behind = T.alloc_shared((2, 2, d_key), "float32")
        self.full, self.free = reverse_barriers("chain"), reverse_barriers("memory")


@T.macro
def load_tiles(tensors, tiles, h, n, s):
    """Ask for the tiles of chunk n, which is number s, but for the state."""
    Q, K, dOut, Factor, Inverse, Decay, BetaRows, Updates = tensors
    slot, rows = s % 2, slice(n * CHUNK, (n + 1) * CHUNK)
    T.mbarrier_wait_parity(tiles.decay_free[slot], s // 2 % 2 ^ 1)
    T.tma_copy(Decay[n, h, :, :], tiles.decay[slot, :, :], barrier=tiles.decay_full[slot])
    T.tma_copy(BetaRows[n, h, :], tiles.beta[slot, :], barrier=tiles.decay_full[slot])
    arrive(tiles.decay_full, slot)
    load_tile(Inverse[n, h, :, :], tiles.inverse, tiles.full["inverse"], tiles.free["inverse"], s)
    load_tile(Updates[n, h, :, :], tiles.updates, tiles.full["updates"], tiles.free["updates"], s)
    load_tile(dOut[rows, h, :], tiles.d_out, tiles.full["d_out"], tiles.free["d_out"], s)
    load_tile(Q[rows, h, :], tiles.q, tiles.full["q"], tiles.free["q"], s)
    T.mbarrier_wait_parity(tiles.free["k"][0], s % 2 ^ 1)
    T.tma_copy(K[rows, h, :], tiles.k, barrier=tiles.full["k"][0])
    T.tma_copy(Factor[n, h, :, :], tiles.factor, barrier=tiles.full["k"][0])
    arrive(tiles.full["k"])


@T.macro
def sum_gates(given, tiles, dGate, dBeta, h, n, s):
    """Of chunk n, which was number s. A gate is in all G behind it: each row and those after it,
    and what is behind the chunk. U of a row grows by the part by which its beta grows."""
    d_key, slot = given.gates.shape[1], s % 2
    total = T.alloc_fragment((d_key,), "float32")
    T.mbarrier_wait_parity(given.full[0], s % 2)
    for i in T.Parallel(CHUNK):
        beta = tiles.beta[slot, i]
        dBeta[n * CHUNK + i, h] = given.d_beta[i] / (beta * beta)
    arrive(tiles.decay_free, slot)
    for d in T.Parallel(d_key):
        total[d] = given.behind[slot, 0, d] + given.behind[slot, 1, d]
        for part in T.serial(CHUNK // 8):
            for i in T.unroll(8):
                row = CHUNK - 1 - part * 8 - i
                total[d] += given.gates[row, d]
                dGate[n * CHUNK + row, h, d] = total[d]
    arrive(given.free)


@T.macro
def move(chunks, h, tensors, State, results, tiles, given):
    """What those do who load: besides, gradients of gates and betas, while the chain goes on."""
    for s in T.serial(chunks + 1):
        n = chunks - 1 - s
        if s < chunks:
            load_tiles(tensors, tiles, h, n, s)
        if s > 0:
            sum_gates(given, tiles, *results, h, n + 1, s - 1)
        if s < chunks:
            load_tile(State[n, h, :, :], tiles.state, tiles.full["state"], tiles.free["state"], s)


@T.macro
def wait_for(tiles, name, s):
    T.mbarrier_wait_parity(tiles.full[name][0], s % 2)


@T.macro
def reverse(chunks, h, results, tiles, d_state_shared, given):
    """dQ, dK and dV from chunk to chunk, with the state's gradient in registers."""
    dQ, dK, dV = results
    d_key = tiles.q.shape[1]
    k_column = T.alloc_shared((CHUNK, d_key), "bfloat16")
    right_shared = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
    # An operand of a product and, on the way to memory, results.
    tile = T.alloc_shared((CHUNK, max(d_key, COLUMNS)), "bfloat16")
    weights, slopes = [T.alloc_shared((CHUNK, CHUNK), "bfloat16") for _ in range(2)]
    fragments = accumulators(CHUNK, d_key, COLUMNS)
    d_state, left, right, query, row, column, d_gates, d_weights, d_system = fragments
    begin(d_state, left, given.behind)
    for s in T.serial(chunks):
        n, slot = chunks - 1 - s, s % 2
        rows = slice(n * CHUNK, (n + 1) * CHUNK)
        wait_for(tiles, "q", s)
        wait_for(tiles, "k", s)
        decay_keys_and_queries(tiles.q, tiles.k, tiles.factor, k_column)
        T.mbarrier_wait_parity(tiles.decay_full[slot], s // 2 % 2)
        enter_chunk(d_state, tiles.decay, left, (slot,))
        T.mbarrier_wait_parity(given.free[0], s % 2 ^ 1)
        T.copy(d_state, d_state_shared)
        for name in ["updates", "d_out", "inverse"]:
            wait_for(tiles, name, s)
        loaded = tiles.q, k_column, tiles.d_out, tiles.inverse, tiles.updates
        find_updates(loaded, d_state_shared, weights, tile[:, :COLUMNS], right, column, d_weights)
        tiles_of_dv = weights, right_shared
        find_slopes(tiles.updates, tiles_of_dv, right, d_weights, d_system, dV[rows, h, :])
        for i, j in T.Parallel(CHUNK, CHUNK):
            if i == j:
                given.d_beta[i] = d_system[i, j]
        store_slopes(d_system, slopes)
        arrive(tiles.free["inverse"])
        arrive(tiles.free["updates"])
        wait_for(tiles, "state", s)
        loaded = tiles.q, k_column, tiles.factor, tiles.d_out, tiles.state
        of_queries(loaded, weights, query, column, d_state, d_gates)
        arrive(tiles.free["q"])
        arrive(tiles.free["d_out"])
        store(query, tile[:, :d_key], dQ[rows, h, :])
        loaded = tiles.k, k_column, tiles.factor, tiles.state
        of_keys(loaded, (right_shared, slopes), row, column, d_state, d_gates)
        arrive(tiles.free["k"])
        T.copy(d_gates, given.gates)
        arrive(given.full)
        store(column, tile[:, :d_key], dK[rows, h, :])
        slots = (slot,), (slot ^ 1,)
        end_states(tiles.state, d_state, tiles.decay, left, given.behind, slots)
        arrive(tiles.free["state"])
        arrive(tiles.decay_free, slot)


def gradients(heads, d_key=128, d_value=COLUMNS):
    """dQ, dK, dV, the gates' gradients and beta's: a block has a head, from its last chunk on. The
    gates' and beta's have all rows of the last chunk."""
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
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
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
            tiles = Loaded(d_key)
            d_state_shared = T.alloc_shared((d_key, d_value), "bfloat16")
            given = Given(d_state_shared)
            with T.ws_role("memory"):
                tensors = Q, K, dOut, Factor, Inverse, Decay, BetaRows, Updates
                move(chunks, h, tensors, State, (dGate, dBeta), tiles, given)
            with T.ws_role("chain"):
                reverse(chunks, h, (dQ, dK, dV), tiles, d_state_shared, given)

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
    shapes = (chunk, key), (chunk, chunk), (key, value), (chunk, value)
    factor, inverse, state, updates = chunk_tensors(k, chunk, *shapes)
    decay, beta_rows = chunk_tensors(k, chunk, (2, key), (chunk,), dtype=torch.float32)
    parts = factor, inverse, decay, beta_rows, state, updates
    kernels[0](k, v, gate, beta, *parts)
    return backward_of((q, k), (q, k, v, gate, beta), d_out, parts, kernels[1])


if __name__ == "__main__":
    check((kernels_of, backward), channels=True, description=__doc__, sizes=(64, COLUMNS))
