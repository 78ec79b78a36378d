"""Kimi Delta Attention (kda.py) in one kernel, by groups of warps with roles of their own: two take
chunks in turn and make what needs no state, rows with the decays in them and the inverse of the
system, and two go from chunk to chunk, each with half of the values. What is passed on stays in
shared memory. For Hopper. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial
from types import SimpleNamespace

import torch
from delta_rule import BLOCK, CHUNK, FAST_MATH, LOG2_E, check, off_zero

import tilelang
import tilelang.language as T

# A group that goes from chunk to chunk has the transposed state, values by keys, as accumulators:
# rounded, they are the next products' left operand as they are, so nothing of a step passes through
# shared memory. 64 rows are what a product of a warp group has.
COLUMNS = 64
# Chunks that are in shared memory: of each a group of its own makes what needs no state.
SLOTS = 2
HOPPER = {"kind": "cuda", "arch": "sm_90a"}
ROWS = T.GemmWarpPolicy.FullRow
# Registers of a thread of each kind.
CHAIN, PREPARE = 168, 88


@T.macro
def decay_half(side, slot, gate, total, channel):
    # Two channels of half a chunk's rows, from the middle on: q E, -k E and k / E of them, where
    # E = exp(G - G[middle]), and in `total` what the gates sum up to, in base 2.
    half, unrolled = gate.shape[0] // 2, 8
    key, decay = [T.alloc_local((2,), "float32") for _ in "kd"]
    for block in T.serial(half // unrolled):
        for i in T.unroll(unrolled):
            step = block * unrolled + i
            row = half + step if side == 1 else half - 1 - step
            for c in T.vectorized(2):
                key[c] = slot.k[row, channel + c]
            if side == 1:
                for c in T.vectorized(2):
                    total[c] += gate[row, channel + c] * LOG2_E
            for c in T.vectorized(2):
                decay[c] = T.exp2(total[c] if side == 1 else -total[c])
            for c in T.vectorized(2):
                slot.k_column[row, channel + c] = key[c] * T.exp2(
                    -total[c] if side == 1 else total[c]
                )
                slot.q[row, channel + c] = slot.q[row, channel + c] * decay[c]
                slot.k[row, channel + c] = -(key[c] * decay[c])
            if side == 0:
                for c in T.vectorized(2):
                    total[c] += gate[row, channel + c] * LOG2_E


@T.macro
def decay_rows(slot, gate, thread):
    # A thread has two channels of half a chunk. Its numbers of both halves are constants of a
    # program of its own, since swizzles would cost as much as the arithmetic.
    pairs = gate.shape[1] // 2
    total = T.alloc_local((2,), "float32")
    channel = thread % pairs * 2
    for c in T.unroll(2):
        total[c] = 0
    if thread < pairs:
        decay_half(0, slot, gate, total, channel)
        for c in T.vectorized(2):
            slot.decay[0, channel + c] = T.exp2(total[c])
    elif thread < 2 * pairs:
        decay_half(1, slot, gate, total, channel)
        for c in T.vectorized(2):
            slot.decay[1, channel + c] = T.exp2(total[c])


@T.macro
def invert_blocks(factors, inverse):
    # As delta_rule.invert_blocks, of the blocks' columns in `factors`.
    chunk = inverse.shape[0]
    column = T.alloc_fragment((chunk, BLOCK), "float32")
    T.clear(inverse)
    for j in T.Parallel(chunk):
        for i in T.unroll(BLOCK):
            column[j, i] = T.if_then_else(i == j % BLOCK, 1, 0)
        for k in T.unroll(BLOCK - 1):
            for i in T.unroll(k + 1, BLOCK):
                column[j, i] -= factors[k, j // BLOCK * BLOCK + i] * column[j, k]
        for i in T.unroll(BLOCK):
            inverse[j // BLOCK * BLOCK + i, j] = column[j, i]


@T.macro
def join_blocks(system, inverse, below, size):
    # As delta_rule.join_blocks, of a system in registers; what is added is left in `product`.
    chunk = system.shape[0]
    product = T.alloc_fragment((chunk, chunk), "float32")
    factor = T.alloc_fragment((chunk, chunk), "float16")
    for i, j in T.Parallel(chunk, chunk):
        below[i, j] = T.if_then_else(
            i // size == j // size + 1 and j // size % 2 == 0, system[i, j], 0
        )
    T.gemm(inverse, below, product, policy=ROWS, clear_accum=True)
    T.copy(product, factor)
    T.gemm(factor, inverse, product, policy=ROWS, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        product[i, j] = inverse[i, j] - product[i, j]
    T.copy(product, inverse)


@T.macro
def invert(system, slot):
    # The inverse of 1 + system, whose columns take beta: first of blocks of 16 rows.
    chunk = system.shape[0]
    invert_blocks(slot.factors, slot.half)
    join_blocks(system, slot.half, slot.below, BLOCK)
    join_blocks(system, slot.half, slot.below, 2 * BLOCK)
    for i, j in T.Parallel(chunk, chunk):
        slot.inverse[i, j] = slot.half[i, j] * slot.beta[j]


@T.macro
def prepare(slot):
    # Of rows that have their decays, the inverse of the system, the queries' weights and, in the
    # place of -k E, its product with the inverse.
    chunk = slot.q.shape[0]
    system = T.alloc_fragment((chunk, chunk), "float32")
    system_half = T.alloc_fragment((chunk, chunk), "float16")
    scores = T.alloc_fragment((chunk, chunk), "float32")
    T.gemm(slot.k, slot.k_column, system, transpose_B=True, policy=ROWS, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        system[i, j] = T.if_then_else(i > j, -slot.beta[i] * system[i, j], 0)
    for i, j in T.Parallel(chunk, chunk):
        if i // BLOCK == j // BLOCK:
            slot.factors[j % BLOCK, i] = system[i, j]
    T.copy(system, system_half)
    invert(system_half, slot)
    T.gemm(slot.q, slot.k_column, scores, transpose_B=True, policy=ROWS, clear_accum=True)
    for i, j in T.Parallel(chunk, chunk):
        slot.weights[i, j] = T.if_then_else(i >= j, scores[i, j], 0)
    for first in [*range(0, slot.k.shape[1], 64)]:
        columns = slice(first, first + 64)
        T.gemm(slot.inverse, slot.k[:, columns], scores, policy=ROWS, clear_accum=True)
        T.copy(scores, slot.k[:, columns])


@T.macro
def step(slot, v, state, store, empty, s):
    # The state behind a chunk, then its results, transposed, half of the rows at a time, which
    # takes fewer registers.
    columns, chunk, half = v.shape[1], v.shape[0], v.shape[0] // 2
    before = T.alloc_fragment(state.shape, "bfloat16")
    updates = T.alloc_fragment((columns, chunk), "float32")
    updates_cast = T.alloc_fragment((columns, chunk), "bfloat16")
    out = T.alloc_fragment((columns, half), "float32")
    for j, d in T.Parallel(*state.shape):
        state[j, d] *= slot.decay[0, d]
    T.copy(state, before)
    T.gemm(
        *(v, slot.inverse, updates),
        transpose_A=True,
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    T.gemm(before, slot.k, updates, transpose_B=True, policy=ROWS)
    T.copy(updates, updates_cast)
    T.gemm(updates_cast, slot.k_column, state, policy=ROWS)
    # Products of which one waits for none take registers from those that follow.
    T.wait_wgmma(0)
    for first in [0, half]:
        rows = slice(first, first + half)
        T.gemm(before, slot.q[rows, :], out, transpose_B=True, policy=ROWS, clear_accum=True)
        T.gemm(updates_cast, slot.weights[rows, :], out, transpose_B=True, policy=ROWS)
        T.wait_wgmma(0)
        if first > 0:
            for j, d in T.Parallel(*state.shape):
                state[j, d] *= slot.decay[1, d]
            T.mbarrier_arrive(empty[s])
        store(first, out)


@T.macro
def store_columns(tensor, h, begin, column, first, tile):
    for j, i in T.Parallel(*tile.shape):
        tensor[begin + first + i, h, column + j] = tile[j, i]


def shared_slot(chunk, d_key, groups):
    """What a chunk has in shared memory: rows, which take their decays in place, and what is made
    of them."""
    q, k, k_column = [T.alloc_shared((chunk, d_key), "bfloat16") for _ in range(3)]
    inverse = T.alloc_shared((chunk, chunk), "bfloat16")
    return SimpleNamespace(
        q=q,
        k=k,
        k_column=k_column,
        v=[T.alloc_shared((chunk, COLUMNS), "bfloat16") for _ in range(groups)],
        inverse=inverse,
        # Not in use when `inverse` is written.
        below=T.view(inverse, (chunk, chunk), "float16"),
        half=T.alloc_shared((chunk, chunk), "float16"),
        weights=T.alloc_shared((chunk, chunk), "bfloat16"),
        factors=T.alloc_shared((BLOCK, chunk), "float32"),
        decay=T.alloc_shared((2, d_key), "float32"),
        beta=T.alloc_shared((chunk,), "float32"),
    )


def check_sizes(chunk, d_key, d_value):
    """Refuse what the groups have no tiles for."""
    columns = COLUMNS if d_value == COLUMNS else 2 * COLUMNS
    if chunk != CHUNK or d_key not in (64, 128) or d_value <= 0 or d_value % columns:
        raise ValueError(
            f"found chunks of {chunk}, keys of {d_key} and values of {d_value}, wanted chunks of "
            f"{CHUNK}, keys of 64 or 128, and values of {COLUMNS} or a multiple of {2 * COLUMNS}; "
            "kda.by_channels takes others"
        )


def kda(heads, d_key, d_value, chunk=CHUNK):
    """Out as kda.by_channels has it. In each half of a chunk's rows, the gates of a channel have to
    sum up to more than -60, as there: below it, results are NaN or lose parts. A block has a head's
    state for up to 128 of its values."""
    check_sizes(chunk, d_key, d_value)
    length = T.dynamic("length")
    columns = min(d_value, 2 * COLUMNS)
    groups = columns // COLUMNS

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads, d_key), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(d_value // columns, heads, threads=128 * (groups + SLOTS)) as (bx, h):
            chunks = T.ceildiv(length, chunk)
            slots = [shared_slot(chunk, d_key, groups) for _ in range(SLOTS)]
            gate = T.alloc_shared((chunk, d_key), "float32")
            # Gates are there; rows are; values are; all is made; the slot may be filled.
            gates_full, rows_full, values_full = [T.alloc_barrier([1] * SLOTS) for _ in range(3)]
            made, empty = T.alloc_barrier([128] * SLOTS), T.alloc_barrier([128 * groups] * SLOTS)
            thread = T.get_thread_binding() % 128
            for g in [*range(groups)]:
                with T.ws(g):
                    T.set_max_nreg(CHAIN, True)
                    state = T.alloc_fragment((COLUMNS, d_key), "float32")
                    first = bx * columns + g * COLUMNS
                    T.clear(state)
                    for turn in T.serial(T.ceildiv(chunks, SLOTS)):
                        for s in [*range(SLOTS)]:
                            n = turn * SLOTS + s
                            if n < chunks:
                                slot = slots[s]
                                T.mbarrier_wait_parity(values_full[s], turn % 2)
                                T.mbarrier_wait_parity(made[s], turn % 2)
                                store = partial(store_columns, Out, h, n * chunk, first)
                                step(slot, slot.v[g], state, store, empty, s)
            for s in [*range(SLOTS)]:
                with T.ws(groups + s):
                    T.set_max_nreg(PREPARE, False)
                    slot = slots[s]
                    if s == 0 and chunks > 0:
                        T.tma_copy(Gate[0:chunk, h, :], gate, barrier=gates_full[0])
                        T.sync_warp()
                        if thread == 0:
                            T.mbarrier_arrive(gates_full[0])
                    for turn in T.serial(T.ceildiv(chunks - s, SLOTS)):
                        n = turn * SLOTS + s
                        rows = slice(n * chunk, (n + 1) * chunk)
                        T.mbarrier_wait_parity(empty[s], turn % 2 ^ 1)
                        T.tma_copy(K[rows, h, :], slot.k, barrier=rows_full[s])
                        T.tma_copy(Q[rows, h, :], slot.q, barrier=rows_full[s])
                        for g in [*range(groups)]:
                            first = bx * columns + g * COLUMNS
                            T.tma_copy(
                                V[rows, h, first : first + COLUMNS],
                                slot.v[g],
                                barrier=values_full[s],
                            )
                        # Whoever copies tells the barriers first how many bytes come.
                        T.sync_warp()
                        if thread == 0:
                            T.mbarrier_arrive(rows_full[s])
                            T.mbarrier_arrive(values_full[s])
                        for i in T.Parallel(chunk):
                            slot.beta[i] = off_zero(Beta[n * chunk + i, h])
                        T.mbarrier_wait_parity(gates_full[s], turn % 2)
                        T.mbarrier_wait_parity(rows_full[s], turn % 2)
                        decay_rows(slot, gate, thread)
                        if n + 1 < chunks:
                            T.sync_threads(1 + s, 128)
                            T.tma_copy(
                                Gate[(n + 1) * chunk : (n + 2) * chunk, h, :],
                                gate,
                                barrier=gates_full[(s + 1) % SLOTS],
                            )
                            T.sync_warp()
                            if thread == 0:
                                T.mbarrier_arrive(gates_full[(s + 1) % SLOTS])
                        prepare(slot)
                        # The chains' products and the next loads see what threads wrote.
                        T.fence_proxy_async()
                        T.mbarrier_arrive(made[s])

    return main


def by_roles(q, k, v, gate, beta, chunk):
    """Out (length, heads, d_value) in float32, as kda.by_channels."""
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    out = torch.empty(length, heads, d_value, device=k.device)
    kernel = tilelang.compile(kda(heads, d_key, d_value, chunk), target=HOPPER)
    kernel(q, k, v, gate, beta, out)
    return out


if __name__ == "__main__":
    check((by_roles,), channels=True, description=__doc__)
