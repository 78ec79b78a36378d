"""The gradients of Kimi Delta Attention (kda_backward.py) for Hopper, what chunks do alone and the
states in one kernel by a schedule of four warp groups: two prepare chunks in turns, as in
kda_roles.py, two go from chunk to chunk, with the state transposed and in registers, as in
delta_rule_backward_roles.py. Check them against float64 autograd of the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import FAST_MATH, chunk_tensors, invert_by_warps, off_zero
from delta_rule_backward import check
from delta_rule_backward_roles import check_sizes, store_turned
from delta_rule_roles import CHUNK, COLUMNS, ROWS, WARPS, arrive, schedule
from kda import narrow
from kda_backward import backward_of, gradients
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
        self.full, self.free = [T.alloc_barrier([WARPS["chain"]] * 2) for _ in range(2)]


@T.macro
def store_factor(Factor, n, h, row, channel, decay):
    for c in T.vectorized(2):
        Factor[n, h, row, channel + c] = narrow(decay[c])


@T.macro
def corrections(slots, s, beta, load_next):
    """Of rows that have their decays, inverse diag(beta) and, in the place of -k E, -W."""
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
        product[i, j] *= beta[i]
    invert_by_warps(product, slots.numbers, slots.half, T.get_warp_idx() % 4, (s,))
    T.copy(slots.half[s, :, :], whole)
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] = whole[i, j] * beta[j]
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
    beta, ahead = [T.alloc_shared((CHUNK,), "float32") for _ in range(2)]
    if s == 0:
        load_rows((K, Gate), raw, h, 0, chunks)
    T.async_copy(Beta[s * CHUNK : (s + 1) * CHUNK, h], ahead)
    for turn in T.serial(count):
        n = turn * SLOTS + s
        T.mbarrier_wait_parity(slots.free[s], turn % 2 ^ 1)
        T.ptx_wait_group(0)
        for i in T.Parallel(CHUNK):
            beta[i] = off_zero(ahead[i])
            BetaRows[n, h, i] = beta[i]
        T.async_copy(Beta[(n + SLOTS) * CHUNK : (n + SLOTS + 1) * CHUNK, h], ahead)
        T.mbarrier_wait_parity(raw.full[s], turn % 2)
        decay_rows(slots, s, raw, thread, partial(store_factor, Factor, n, h))
        # The inverse of before has been read.
        T.tma_store_wait()
        T.fence_proxy_async()
        T.sync_threads(1 + s, 128)
        for side, d in T.Parallel(2, slots.decay.shape[2]):
            Decay[n, h, side, d] = slots.decay[s, side, d]
        corrections(slots, s, beta, partial(load_rows, (K, Gate), raw, h, n + 1, chunks))
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
        store_turned(before, tiles.state, State[n, h, :, :])
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


def kernels_of(heads, chunk=CHUNK, key=128, value=COLUMNS, **options):
    """The two kernels; `options` are those of tilelang.compile."""
    if chunk != CHUNK:
        raise ValueError(f"found chunks of {chunk} rows, wanted {CHUNK}")
    programs = states(heads, key, value), gradients(heads, chunk, key, value)
    return [tilelang.compile(program, **{"target": HOPPER, **options}) for program in programs]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """As kda_backward.backward, by the kernels of this file's `kernels_of`."""
    key, value = k.shape[2], v.shape[2]
    shapes = (chunk, key), (chunk, chunk), (key, value), (chunk, value)
    factor, inverse, state, updates = chunk_tensors(k, chunk, *shapes)
    decay, beta_rows = chunk_tensors(k, chunk, (2, key), (chunk,), dtype=torch.float32)
    parts = factor, inverse, decay, beta_rows, state, updates
    kernels[0](k, v, gate, beta, *parts)
    return backward_of((q, k, v, gate, beta), d_out, parts, kernels[1])


if __name__ == "__main__":
    check((kernels_of, backward), channels=True, description=__doc__, sizes=(64, COLUMNS))
