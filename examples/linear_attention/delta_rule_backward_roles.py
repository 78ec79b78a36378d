"""The gradients of the gated delta rule (delta_rule_backward.py) for Hopper by two kernels of four
warp groups. In the first, as in delta_rule_roles.py, two prepare chunks in turns, and two go from
chunk to chunk, with the state transposed and in registers. In the second, the reverse order, two
go from chunk to chunk with the state's gradient, likewise, and make dv: that is all that a chunk
needs of those behind it. One makes the weights for them, and dq; one dk and the gradient of beta.
Check them against float64 autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import FAST_MATH, LEAST_GATE, LOG2_E, chunk_tensors, invert_by_warps, off_zero
from delta_rule_backward import check, gate_sums
from delta_rule_roles import (
    CHUNK,
    COLUMNS,
    REGISTERS,
    ROWS,
    WARPS,
    arrive,
    barriers_of,
    multiply,
    schedule,
)

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
# Of keys: two chunks are prepared while the states pass a third one.
SLOTS = 3


class Tiles:
    """What TMA fills, and what it stores. At the mbarriers arrive all warps of the group that has
    asked for a tile, and all warps of the chain when they do not need it any more. Values come a
    chunk ahead: the chain would wait for them."""

    def __init__(self, d_key):
        self.k = T.alloc_shared((SLOTS, CHUNK, d_key), "bfloat16")
        self.v = T.alloc_shared((2, CHUNK, COLUMNS), "bfloat16")
        self.state = T.alloc_shared((COLUMNS, d_key), "bfloat16")
        self.updates = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.rows_full = T.alloc_barrier([4] * SLOTS)
        self.rows_free = T.alloc_barrier([WARPS["chain"]] * SLOTS)
        self.values_full, self.values_free = [
            T.alloc_barrier([WARPS["chain"]] * 2) for _ in range(2)
        ]


class System:
    """What is prepared of a chunk, by each group in a slot of its own: W, negated; inverse
    diag(beta); exp(G) and exp(G[last] - G). And what a group has on the way to it."""

    def __init__(self, d_key):
        self.w = T.alloc_shared((2, CHUNK, d_key), "bfloat16")
        self.inverse = T.alloc_shared((2, CHUNK, CHUNK), "bfloat16")
        self.decays, self.kept = [T.alloc_shared((2, CHUNK), "float32") for _ in range(2)]
        self.full = T.alloc_barrier([4] * 2)
        self.free = T.alloc_barrier([WARPS["chain"]] * 2)
        # Of gates the next ones as they come, and G.
        self.ahead = T.alloc_shared((2, 2, CHUNK), "float32")
        self.gates, self.beta = [T.alloc_shared((2, CHUNK), "float32") for _ in range(2)]
        # As delta_rule.roots_of has them.
        self.roots, self.rest = [T.alloc_shared((2, CHUNK), "float32") for _ in range(2)]
        self.half, self.numbers = [T.alloc_shared((2, CHUNK, CHUNK), "float16") for _ in range(2)]
        T.annotate_layout({tile: make_swizzled_layout(tile) for tile in (self.half, self.numbers)})


@T.macro
def load_keys(K, tiles, h, n):
    """Ask for the keys of chunk n, when the chain has left the slot."""
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    slot, turn = n % SLOTS, n // SLOTS
    T.mbarrier_wait_parity(tiles.rows_free[slot], turn % 2 ^ 1)
    T.tma_copy(K[rows, h, :], tiles.k[slot, :, :], barrier=tiles.rows_full[slot])
    arrive(tiles.rows_full, slot)


@T.macro
def load_gates(tensors, ahead, g, h, n):
    """Gates and beta of chunk n. Rows behind the end are zero: they decay nothing."""
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    for part, tensor in enumerate(tensors):
        T.async_copy(tensor[rows, h], ahead[g, part, :])


@T.macro
def load_values(V, tiles, h, n):
    """Ask for the values of chunk n, when what was in the slot has left it."""
    slot, rows = n % 2, slice(n * CHUNK, (n + 1) * CHUNK)
    T.mbarrier_wait_parity(tiles.values_free[slot], n // 2 % 2 ^ 1)
    T.tma_copy(V[rows, h, :], tiles.v[slot, :, :], barrier=tiles.values_full[slot])
    arrive(tiles.values_full, slot)


@T.macro
def find_gates(system, g, Rows, n, h):
    """G, beta and what is made of it, from what has come."""
    for i in T.Parallel(CHUNK):
        system.gates[g, i] = T.max(system.ahead[g, 0, i] * LOG2_E, LEAST_GATE)
        beta = off_zero(system.ahead[g, 1, i])
        system.beta[g, i] = beta
        system.roots[g, i] = T.sqrt(T.abs(beta))
        system.rest[g, i] = beta / T.sqrt(T.abs(beta))
    T.cumsum(system.gates[g : g + 1, :], dim=1)
    for i in T.Parallel(CHUNK):
        Rows[n, h, 0, i] = system.gates[g, i]
        Rows[n, h, 1, i] = system.beta[g, i]


@T.macro
def corrections(k, slot, system, g):
    """What updates follow from: inverse diag(beta), W and decays."""
    whole = T.alloc_fragment((CHUNK, CHUNK), "float16")
    scaled, product = [T.alloc_fragment((CHUNK, CHUNK), "float32") for _ in range(2)]
    left = T.alloc_fragment((CHUNK, CHUNK), "bfloat16")
    T.copy(system.half[g, :, :], whole)
    for i in T.Parallel(CHUNK):
        system.decays[g, i] = T.exp2(system.gates[g, i])
        system.kept[g, i] = T.exp2(system.gates[g, CHUNK - 1] - system.gates[g, i])
    for i, j in T.Parallel(CHUNK, CHUNK):
        scaled[i, j] = system.roots[g, i] * whole[i, j] * system.rest[g, j]
    T.copy(scaled, system.inverse[g, :, :])
    for i, j in T.Parallel(CHUNK, CHUNK):
        left[i, j] = -scaled[i, j] * T.exp2(system.gates[g, j])
    for first in [*range(0, k.shape[2], CHUNK)]:
        here = slice(first, first + CHUNK)
        T.wgmma_gemm(left, k[slot, :, here], product, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(product, system.w[g, :, here])


@T.macro
def prepare(g, chunks, h, tensors, results, tiles, system):
    """What group g of those that prepare does: every other chunk."""
    (K, *gate_and_beta), (Inverse, Rows), k = tensors, results, tiles.k
    product = T.alloc_fragment((CHUNK, CHUNK), "float32")
    T.clear(system.half[g, :, :])
    if g < chunks:
        load_keys(K, tiles, h, g)
        load_gates(gate_and_beta, system.ahead, g, h, g)
    for turn in T.serial(T.ceildiv(chunks - g, 2)):
        n = 2 * turn + g
        slot = n % SLOTS
        T.ptx_wait_group(0)
        find_gates(system, g, Rows, n, h)
        if n + 2 < chunks:
            load_gates(gate_and_beta, system.ahead, g, h, n + 2)
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
        multiply(k, k, slot, product)
        T.wait_wgmma(0)
        for i, j in T.Parallel(CHUNK, CHUNK):
            product[i, j] *= T.exp2(system.gates[g, i] - system.gates[g, j])
        for i, j in T.Parallel(CHUNK, CHUNK):
            product[i, j] *= -system.rest[g, i] * system.roots[g, j]
        invert_by_warps(product, system.numbers, system.half, T.get_warp_idx() % 4, (g,))
        T.mbarrier_wait_parity(system.free[g], turn % 2 ^ 1)
        T.tma_store_wait()
        corrections(k, slot, system, g)
        T.fence_proxy_async()
        arrive(system.full, g)
        T.tma_copy(system.inverse[g, :, :], Inverse[n, h, :, :])
        # Into the slot of the chunk before this one: who waited for the chain earlier would keep
        # this chunk from it.
        if n + 2 < chunks:
            load_keys(K, tiles, h, n + 2)
    T.tma_store_wait()


@T.macro
def store_turned(source, tile, target):
    """The transpose, through a tile, to memory."""
    turned = T.alloc_fragment(source.shape[::-1], "bfloat16")
    for d, i in T.Parallel(*source.shape):
        turned[i, d] = source[d, i]
    T.copy(turned, tile)
    T.copy(tile, target)


@T.macro
def update(before, v, system, g, product, updates, kept):
    """inverse diag(beta) V - W S of a chunk, transposed, and what is left of it behind it."""
    T.wgmma_gemm(
        *(v[g, :, :], system.inverse[g, :, :], product),
        transpose_A=True,
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    T.wgmma_gemm(before, system.w[g, :, :], product, transpose_B=True, policy=ROWS)
    T.wait_wgmma(0)
    T.copy(product, updates)
    for d, i in T.Parallel(COLUMNS, CHUNK):
        product[d, i] *= system.kept[g, i]
    T.copy(product, kept)


@T.macro
def chain(chunks, h, V, results, tiles, system):
    """The states from chunk to chunk, transposed."""
    k, v, (State, Updates) = tiles.k, tiles.v, results
    d_key = k.shape[2]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    before = T.alloc_fragment((COLUMNS, d_key), "bfloat16")
    product = T.alloc_fragment((COLUMNS, CHUNK), "float32")
    updates, kept = [T.alloc_fragment((COLUMNS, CHUNK), "bfloat16") for _ in range(2)]
    T.clear(state)
    if chunks > 0:
        load_values(V, tiles, h, 0)
    if chunks > 1:
        load_values(V, tiles, h, 1)
    for n in T.serial(chunks):
        slot, g = n % SLOTS, n % 2
        T.copy(state, before)
        T.copy(before, tiles.state)
        T.copy(tiles.state, State[n, h, :, :])
        T.mbarrier_wait_parity(tiles.values_full[g], n // 2 % 2)
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
        T.mbarrier_wait_parity(system.full[g], n // 2 % 2)
        update(before, v, system, g, product, updates, kept)
        arrive(tiles.values_free, g)
        for d, j in T.Parallel(COLUMNS, d_key):
            state[d, j] *= system.decays[g, CHUNK - 1]
        T.wgmma_gemm(kept, k[slot, :, :], state, policy=ROWS)
        if n + 2 < chunks:
            load_values(V, tiles, h, n + 2)
        store_turned(updates, tiles.updates, Updates[n, h, :, :])
        T.wait_wgmma(0)
        arrive(system.free, g)
        arrive(tiles.rows_free, slot)


def check_sizes(d_key, d_value, other):
    """Refuse what the groups have no tiles for."""
    if d_value != COLUMNS or d_key not in (64, 128):
        raise ValueError(
            f"found keys of {d_key} and values of {d_value}, wanted keys of 64 or 128 and "
            f"{COLUMNS} values; {other}.kernels_of takes others"
        )


def states(heads, d_key=128, d_value=COLUMNS):
    """The inverses of all chunks, times diag(beta), as delta_rule.chunk_inverses has them, and the
    state before each chunk and its updates. A block has a head, keys of 64 or 128 and 128 values,
    which are all that `gradients` has room for."""
    check_sizes(d_key, d_value, "delta_rule_backward")
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Inverse: T.Tensor((chunks, heads, CHUNK, CHUNK), "bfloat16"),
        Rows: T.Tensor((chunks, heads, 2, CHUNK), "float32"),
        State: T.Tensor((chunks, heads, d_value, d_key), "bfloat16"),
        Updates: T.Tensor((chunks, heads, CHUNK, d_value), "bfloat16"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=32 * sum(WARPS.values())) as h:
            tiles, system = Tiles(d_key), System(d_key)
            # Their code stands once: two copies and the chain's are more than an instruction cache
            # holds.
            with T.ws(2, 3, each=True) as g:
                T.set_max_nreg(REGISTERS["prepare0"], False)
                prepare(g, chunks, h, (K, Gate, Beta), (Inverse, Rows), tiles, system)
            with T.ws(0, 1):
                T.set_max_nreg(REGISTERS["chain"], True)
                chain(chunks, h, V, (State, Updates), tiles, system)

    return main


# The reverse order. Warps of each role, and registers of a thread.
REVERSE_WARPS = {"keys": 4, "queries": 4, "chain": 8}
REVERSE_REGISTERS = {"keys": 112, "queries": 104, "chain": 144}
barriers = partial(barriers_of, REVERSE_WARPS)


class Inputs:
    """What TMA fills: the role that asks for a tile arrives at `full`, all that read it at `free`.
    Queries, keys and what gates and beta are there for are in two slots."""

    def __init__(self, d_key):
        self.q, self.k = [T.alloc_shared((2, CHUNK, d_key), "bfloat16") for _ in "qk"]
        self.gates = T.alloc_shared((2, 2, CHUNK), "float32")
        self.d_out, self.updates = [T.alloc_shared((CHUNK, COLUMNS), "bfloat16") for _ in range(2)]
        self.inverse = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
        self.state = T.alloc_shared((COLUMNS, d_key), "bfloat16")
        self.rows_full = barriers("keys", slots=2)
        self.rows_free = barriers("queries", "chain", slots=2)
        self.d_out_full, self.d_out_free = barriers("queries"), barriers("queries", "chain")
        self.updates_full, self.updates_free = barriers("keys"), barriers("keys", "queries")
        self.state_full, self.state_free = barriers("keys"), barriers(*REVERSE_WARPS)
        self.inverse_full, self.inverse_free = barriers("chain"), barriers("chain")


class Passed:
    """What roles hand each other of a chunk: P with exp(G) and exp(G[last] - G), dP, dS' and dv,
    whose place dk takes on its way to memory."""

    def __init__(self, d_key):
        square = CHUNK, CHUNK
        self.weights, self.d_weights = [T.alloc_shared(square, "bfloat16") for _ in range(2)]
        self.decays = T.alloc_shared((2, CHUNK), "float32")
        self.d_state = T.alloc_shared((COLUMNS, d_key), "bfloat16")
        self.right = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.weights_full, self.weights_free = barriers("queries"), barriers("chain")
        self.d_weights_full, self.d_weights_free = barriers("queries"), barriers("keys")
        self.d_state_full, self.d_state_free = barriers("chain"), barriers("keys")
        self.right_full, self.right_free = barriers("chain"), barriers("keys")


@T.macro
def load_tile(source, tile, full, free, turn, slot=0):
    """Ask for a tile when all have left it."""
    T.mbarrier_wait_parity(free[slot], turn % 2 ^ 1)
    T.tma_copy(source, tile, barrier=full[slot])
    arrive(full, slot)


@T.macro
def load_chunk(tensors, tiles, h, n, s):
    """Ask for queries, keys, gates and beta of chunk n, which is number s, where nothing is left of
    the chunk before the last."""
    Q, K, Rows = tensors
    slot, rows = s % 2, slice(n * CHUNK, (n + 1) * CHUNK)
    T.tma_copy(Q[rows, h, :], tiles.q[slot, :, :], barrier=tiles.rows_full[slot])
    T.tma_copy(K[rows, h, :], tiles.k[slot, :, :], barrier=tiles.rows_full[slot])
    T.tma_copy(Rows[n, h, :, :], tiles.gates[slot, :, :], barrier=tiles.rows_full[slot])
    arrive(tiles.rows_full, slot)


@T.macro
def weigh(gates, slot, product, strictly=0):
    """Times the decay from row j to row i where j is before i, as delta_rule_roles.weigh."""
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] *= T.exp2(gates[slot, 0, i] - gates[slot, 0, j])
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] = T.if_then_else(i - j >= strictly, product[i, j], 0)


@T.macro
def find_dv(s, tiles, passed, state, product, scaled, right):
    """dv^T in `right`, and the state's gradient by the part that does not need it."""
    slot = s % 2
    turned = T.alloc_fragment((CHUNK, COLUMNS), "bfloat16")
    T.mbarrier_wait_parity(tiles.rows_full[slot], s // 2 % 2)
    T.wgmma_gemm(
        *(passed.d_state, tiles.k[slot, :, :], product),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    T.mbarrier_wait_parity(passed.weights_full, s % 2)
    T.mbarrier_wait_parity(tiles.d_out_full, s % 2)
    T.copy(tiles.d_out, turned)
    for d, i in T.Parallel(COLUMNS, CHUNK):
        scaled[d, i] = turned[i, d] * T.cast(passed.decays[0, i], "bfloat16")
    for d, c in T.Parallel(*state.shape):
        state[d, c] *= passed.decays[0, CHUNK - 1]
    T.wgmma_gemm(scaled, tiles.q[slot, :, :], state, policy=ROWS)
    T.wait_wgmma(1)
    for d, i in T.Parallel(COLUMNS, CHUNK):
        product[d, i] *= passed.decays[1, i]
    T.wgmma_gemm(tiles.d_out, passed.weights, product, transpose_A=True, policy=ROWS)
    T.wait_wgmma(0)
    T.copy(product, right)
    T.mbarrier_wait_parity(tiles.inverse_full, s % 2)
    T.wgmma_gemm(right, tiles.inverse, product, policy=ROWS, clear_accum=True)
    T.wait_wgmma(0)


@T.macro
def sum_states(tiles, state, target):
    """This state and its gradient are S' and dS' of the chunk before."""
    product = T.alloc_fragment(state.shape, "float32")
    sums = T.alloc_fragment((COLUMNS,), "float32")
    for d, c in T.Parallel(*state.shape):
        product[d, c] = state[d, c] * tiles.state[d, c]
    T.reduce_sum(product, sums, dim=1)
    arrive(tiles.state_free)
    T.copy(sums, target)


@T.macro
def reverse(chunks, h, Inverse, dStates, tiles, passed):
    """dS from chunk to chunk, transposed, and dv."""
    d_key = tiles.k.shape[2]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    product = T.alloc_fragment((COLUMNS, CHUNK), "float32")
    scaled, right = [T.alloc_fragment((COLUMNS, CHUNK), "bfloat16") for _ in range(2)]
    turned = T.alloc_fragment((CHUNK, COLUMNS), "bfloat16")
    T.clear(state)
    if chunks > 0:
        load_tile(
            *(Inverse[chunks - 1, h, :, :], tiles.inverse),
            *(tiles.inverse_full, tiles.inverse_free, 0),
        )
    for s in T.serial(chunks):
        n, slot = chunks - 1 - s, s % 2
        T.mbarrier_wait_parity(passed.d_state_free, s % 2 ^ 1)
        T.copy(state, passed.d_state)
        T.fence_proxy_async()
        arrive(passed.d_state_full)
        find_dv(s, tiles, passed, state, product, scaled, right)
        arrive(tiles.d_out_free)
        arrive(tiles.inverse_free)
        if s + 1 < chunks:
            load_tile(
                *(Inverse[n - 1, h, :, :], tiles.inverse),
                *(tiles.inverse_full, tiles.inverse_free, s + 1),
            )
        T.copy(product, right)
        for d, i in T.Parallel(COLUMNS, CHUNK):
            turned[i, d] = right[d, i]
        T.mbarrier_wait_parity(passed.right_free, s % 2 ^ 1)
        T.copy(turned, passed.right)
        T.fence_proxy_async()
        arrive(passed.right_full)
        for d, i in T.Parallel(COLUMNS, CHUNK):
            product[d, i] *= -passed.decays[0, i]
        T.copy(product, scaled)
        arrive(passed.weights_free)
        T.wgmma_gemm(scaled, tiles.k[slot, :, :], state, policy=ROWS)
        T.mbarrier_wait_parity(tiles.state_full, s % 2)
        T.wait_wgmma(0)
        arrive(tiles.rows_free, slot)
        sum_states(tiles, state, dStates[n, h, :])


@T.macro
def of_queries(chunks, h, dOut, results, tiles, passed):
    """P and decays for the chain, dP for the keys, dq and its part of dG."""
    dQ, dRows = results
    q, k, gates, d_out = tiles.q, tiles.k, tiles.gates, tiles.d_out
    d_key = q.shape[2]
    out = T.alloc_shared((CHUNK, d_key), "bfloat16")
    scores = T.alloc_fragment((CHUNK, CHUNK), "float32")
    query, product = [T.alloc_fragment((CHUNK, d_key), "float32") for _ in range(2)]
    d_row = T.alloc_fragment((CHUNK,), "float32")
    if chunks > 0:
        rows = slice((chunks - 1) * CHUNK, chunks * CHUNK)
        load_tile(dOut[rows, h, :], d_out, tiles.d_out_full, tiles.d_out_free, 0)
    for s in T.serial(chunks):
        n, slot = chunks - 1 - s, s % 2
        T.mbarrier_wait_parity(tiles.rows_full[slot], s // 2 % 2)
        T.wgmma_gemm(
            *(q[slot, :, :], k[slot, :, :], scores),
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        T.mbarrier_wait_parity(passed.weights_free, s % 2 ^ 1)
        for i in T.Parallel(CHUNK):
            passed.decays[0, i] = T.exp2(gates[slot, 0, i])
            passed.decays[1, i] = T.exp2(gates[slot, 0, CHUNK - 1] - gates[slot, 0, i])
        T.wait_wgmma(0)
        weigh(gates, slot, scores)
        T.copy(scores, passed.weights)
        T.fence_proxy_async()
        arrive(passed.weights_full)
        T.mbarrier_wait_parity(tiles.d_out_full, s % 2)
        T.mbarrier_wait_parity(tiles.updates_full, s % 2)
        T.wgmma_gemm(d_out, tiles.updates, scores, transpose_B=True, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        arrive(tiles.updates_free)
        weigh(gates, slot, scores)
        T.mbarrier_wait_parity(passed.d_weights_free, s % 2 ^ 1)
        T.copy(scores, passed.d_weights)
        T.fence_proxy_async()
        arrive(passed.d_weights_full)
        T.mbarrier_wait_parity(tiles.state_full, s % 2)
        T.wgmma_gemm(d_out, tiles.state, query, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        arrive(tiles.state_free)
        arrive(tiles.d_out_free)
        if s + 1 < chunks:
            rows = slice((n - 1) * CHUNK, n * CHUNK)
            load_tile(dOut[rows, h, :], d_out, tiles.d_out_full, tiles.d_out_free, s + 1)
        for i, d in T.Parallel(CHUNK, d_key):
            query[i, d] *= T.exp2(gates[slot, 0, i])
        T.wgmma_gemm(passed.d_weights, k[slot, :, :], query, policy=ROWS)
        T.wait_wgmma(0)
        for i, d in T.Parallel(CHUNK, d_key):
            product[i, d] = q[slot, i, d] * query[i, d]
        T.reduce_sum(product, d_row, dim=1)
        arrive(tiles.rows_free, slot)
        T.copy(query, out)
        T.copy(out, dQ[n * CHUNK : (n + 1) * CHUNK, h, :])
        T.copy(d_row, dRows[n, h, :, 0])


@T.macro
def sum_rows(k, slot, gradient, sums):
    product = T.alloc_fragment(gradient.shape, "float32")
    for i, d in T.Parallel(*gradient.shape):
        product[i, d] = k[slot, i, d] * gradient[i, d]
    T.reduce_sum(product, sums, dim=1)


@T.macro
def of_state_behind(s, tiles, passed, column):
    """What dk has of the state behind the chunk and of dP."""
    slot = s % 2
    T.mbarrier_wait_parity(passed.d_state_full, s % 2)
    T.wgmma_gemm(tiles.updates, passed.d_state, column, policy=ROWS, clear_accum=True)
    T.wait_wgmma(0)
    arrive(passed.d_state_free)
    arrive(tiles.updates_free)
    for i, d in T.Parallel(*column.shape):
        column[i, d] *= T.exp2(tiles.gates[slot, 0, CHUNK - 1] - tiles.gates[slot, 0, i])
    T.mbarrier_wait_parity(passed.d_weights_full, s % 2)
    T.wgmma_gemm(passed.d_weights, tiles.q[slot, :, :], column, transpose_A=True, policy=ROWS)


@T.macro
def find_slopes(s, h, n, results, tiles, passed, slopes):
    """Of dv: beta dA, dV, and dbeta, which is on the diagonal of dv U^T: U of a row grows by the
    part by which its beta grows."""
    (dV, dBeta), gates, slot = results, tiles.gates, s % 2
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    scores, diagonal = [T.alloc_fragment((CHUNK, CHUNK), "float32") for _ in range(2)]
    d_beta = T.alloc_fragment((CHUNK,), "float32")
    T.mbarrier_wait_parity(passed.right_full, s % 2)
    T.wgmma_gemm(
        passed.right, tiles.updates, scores, transpose_B=True, policy=ROWS, clear_accum=True
    )
    T.tma_copy(passed.right, dV[rows, h, :])
    T.wait_wgmma(0)
    for i, j in T.Parallel(CHUNK, CHUNK):
        diagonal[i, j] = T.if_then_else(i == j, scores[i, j], 0)
    T.reduce_sum(diagonal, d_beta, dim=1)
    for i in T.Parallel(CHUNK):
        if n * CHUNK + i < dBeta.shape[0]:
            dBeta[n * CHUNK + i, h] = d_beta[i] / (gates[slot, 1, i] * gates[slot, 1, i])
    for i, j in T.Parallel(CHUNK, CHUNK):
        scores[i, j] *= T.exp2(gates[slot, 0, i] - gates[slot, 0, j])
    for i, j in T.Parallel(CHUNK, CHUNK):
        scores[i, j] = T.if_then_else(i > j, -scores[i, j], 0)
    T.copy(scores, slopes)


@T.macro
def of_dv(s, tiles, passed, slopes, column, of_column):
    """What dk has of the slopes, by rows and by columns, and of the state before the chunk."""
    slot = s % 2
    right = T.alloc_fragment((CHUNK, 64), "bfloat16")
    T.wgmma_gemm(slopes, tiles.k[slot, :, :], column, transpose_A=True, policy=ROWS)
    T.wait_wgmma(0)
    sum_rows(tiles.k, slot, column, of_column)
    T.wgmma_gemm(slopes, tiles.k[slot, :, :], column, policy=ROWS)
    T.mbarrier_wait_parity(tiles.state_full, s % 2)
    # Half of the values at a time: that takes fewer registers.
    for first in [*range(0, COLUMNS, 64)]:
        here = slice(first, first + 64)
        T.copy(passed.right[:, here], right)
        for i, d in T.Parallel(CHUNK, 64):
            right[i, d] *= T.cast(-T.exp2(tiles.gates[slot, 0, i]), "bfloat16")
        T.wgmma_gemm(right, tiles.state[here, :], column, policy=ROWS)
        T.wait_wgmma(0)
    arrive(passed.d_weights_free)


@T.macro
def of_keys(chunks, h, tensors, results, tiles, passed):
    """dk, which leaves from the place of k, its part of dG, and the gradient of beta."""
    (*rows_of, Updates, State), (dK, dV, dRows, dBeta) = tensors, results
    k, d_key = tiles.k, tiles.k.shape[2]
    slopes = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
    column = T.alloc_fragment((CHUNK, d_key), "float32")
    d_row, of_column = [T.alloc_fragment((CHUNK,), "float32") for _ in range(2)]
    if chunks > 0:
        last = chunks - 1
        load_chunk(rows_of, tiles, h, last, 0)
        load_tile(Updates[last, h, :, :], tiles.updates, tiles.updates_full, tiles.updates_free, 0)
        load_tile(State[last, h, :, :], tiles.state, tiles.state_full, tiles.state_free, 0)
    for s in T.serial(chunks):
        n, slot = chunks - 1 - s, s % 2
        T.mbarrier_wait_parity(tiles.rows_full[slot], s // 2 % 2)
        T.mbarrier_wait_parity(tiles.updates_full, s % 2)
        # The last dk has left the place of the next rows.
        T.tma_store_wait()
        if s + 1 < chunks:
            load_chunk(rows_of, tiles, h, n - 1, s + 1)
        find_slopes(s, h, n, (dV, dBeta), tiles, passed, slopes)
        of_state_behind(s, tiles, passed, column)
        if s + 1 < chunks:
            load_tile(
                *(Updates[n - 1, h, :, :], tiles.updates),
                *(tiles.updates_full, tiles.updates_free, s + 1),
            )
        of_dv(s, tiles, passed, slopes, column, of_column)
        arrive(tiles.state_free)
        if s + 1 < chunks:
            load_tile(State[n - 1, h, :, :], tiles.state, tiles.state_full, tiles.state_free, s + 1)
        T.tma_store_wait()
        arrive(passed.right_free)
        sum_rows(k, slot, column, d_row)
        for i in T.Parallel(CHUNK):
            d_row[i] -= 2 * of_column[i]
        T.copy(d_row, dRows[n, h, :, 1])
        T.mbarrier_wait_parity(tiles.rows_free[slot], s // 2 % 2)
        T.copy(column, k[slot, :, :])
        # T.copy would wait until it is read.
        T.fence_proxy_async()
        T.sync_threads(1, 128)
        T.tma_copy(k[slot, :, :], dK[n * CHUNK : (n + 1) * CHUNK, h, :])
    T.tma_store_wait()


def gradients(heads, d_key=128, d_value=COLUMNS):
    """dQ, dK, dV, beta's and what `gate_sums` adds up to the gate's gradient: a block has a head,
    from its last chunk on. States are transposed."""
    length, chunks = T.dynamic("length, chunks")

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        dOut: T.Tensor((length, heads, d_value), "bfloat16"),
        Inverse: T.Tensor((chunks, heads, CHUNK, CHUNK), "bfloat16"),
        Rows: T.Tensor((chunks, heads, 2, CHUNK), "float32"),
        State: T.Tensor((chunks, heads, d_value, d_key), "bfloat16"),
        Updates: T.Tensor((chunks, heads, CHUNK, d_value), "bfloat16"),
        dQ: T.Tensor((length, heads, d_key), "bfloat16"),
        dK: T.Tensor((length, heads, d_key), "bfloat16"),
        dV: T.Tensor((length, heads, d_value), "bfloat16"),
        dRows: T.Tensor((chunks, heads, CHUNK, 2), "float32"),
        dStates: T.Tensor((chunks, heads, d_value), "float32"),
        dBeta: T.Tensor((length, heads), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=32 * sum(REVERSE_WARPS.values())) as h:
            T.annotate_ws_schedule(schedule(REVERSE_WARPS, REVERSE_REGISTERS))
            tiles, passed = Inputs(d_key), Passed(d_key)
            with T.ws_role("keys"):
                tensors, results = (Q, K, Rows, Updates, State), (dK, dV, dRows, dBeta)
                of_keys(chunks, h, tensors, results, tiles, passed)
            with T.ws_role("queries"):
                of_queries(chunks, h, dOut, (dQ, dRows), tiles, passed)
            with T.ws_role("chain"):
                reverse(chunks, h, Inverse, dStates, tiles, passed)

    return main


def kernels_of(heads, chunk=CHUNK, key=128, value=COLUMNS, **options):
    """The three kernels; `options` are those of tilelang.compile."""
    if chunk != CHUNK:
        raise ValueError(f"found chunks of {chunk} rows, wanted {CHUNK}")
    programs = (
        states(heads, key, value),
        gradients(heads, key, value),
        gate_sums(heads, chunk, value),
    )
    return [tilelang.compile(program, **{"target": HOPPER, **options}) for program in programs]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """As delta_rule_backward.backward, by the kernels of this file's `kernels_of`."""
    key, value = k.shape[2], v.shape[2]
    inverse, state, updates = chunk_tensors(k, chunk, (chunk, chunk), (value, key), (chunk, value))
    shapes = (2, chunk), (chunk, 2), (value,)
    rows, d_rows, d_states = chunk_tensors(k, chunk, *shapes, dtype=torch.float32)
    found = [torch.empty_like(x) for x in (q, k, v)]
    d_gate, d_beta = [torch.empty(k.shape[:2], device=k.device) for _ in range(2)]
    chunks = inverse, rows, state, updates
    kernels[0](k, v, gate, beta, *chunks)
    kernels[1](q, k, d_out, *chunks, *found, d_rows, d_states, d_beta)
    kernels[2](d_rows, d_states, d_gate)
    return [*found, d_gate, d_beta]


if __name__ == "__main__":
    check((kernels_of, backward), description=__doc__, sizes=(64, COLUMNS))
