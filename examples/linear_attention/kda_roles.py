"""Kimi Delta Attention (kda.py) in one kernel, by groups of warps with roles of their own: two take
chunks in turn and make what needs no state, rows with the decays in them and the inverse of the
system, and two go from chunk to chunk, each with half of the values. What is passed on stays in
shared memory. For Hopper. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from functools import partial

import torch
from delta_rule import BLOCK, CHUNK, FAST_MATH, LOG2_E, check, invert, join_below, off_zero

import tilelang
import tilelang.language as T
from tilelang.layout import make_linear_layout

# A group that goes from chunk to chunk has the transposed state, values by keys, as accumulators:
# rounded, they are the next products' left operand as they are, so nothing of a step passes through
# shared memory. 64 rows are what a product of a warp group has.
COLUMNS = 64
# Chunks that are in shared memory: of each a group of its own makes what needs no state.
SLOTS = 2
HOPPER = {"kind": "cuda", "arch": "sm_90a"}
ROWS = T.GemmWarpPolicy.FullRow
# Registers of a thread that goes from chunk to chunk and of one that prepares, by the number of
# groups that go.
REGISTERS = {1: (176, 160), 2: (160, 96)}


@T.macro
def decay_half(side, slots, s, raw, total, channel, store_factor=None):
    # Two channels of half a chunk's rows, from the middle on: -k E and k / E of them, where
    # E = exp(G - G[middle]), q E, or E by `store_factor`, and in `total` what the gates sum up to,
    # in base 2. What some rows have is loaded first: compilers keep a load behind the stores in
    # front of it.
    half, unrolled = raw.gate.shape[0] // 2, 8
    gate = T.alloc_local((unrolled, 2), "float32")
    key, query = [T.alloc_local((unrolled, 2), "bfloat16") for _ in "kq"]
    decay, inverse = [T.alloc_local((2,), "float32") for _ in range(2)]
    for block in T.serial(half // unrolled):
        for i in T.unroll(unrolled):
            step = block * unrolled + i
            row = half + step if side == 1 else half - 1 - step
            for c in T.vectorized(2):
                gate[i, c] = raw.gate[row, channel + c]
            for c in T.vectorized(2):
                key[i, c] = raw.k[row, channel + c]
            if store_factor is None:
                for c in T.vectorized(2):
                    query[i, c] = raw.q[row, channel + c]
        for i in T.unroll(unrolled):
            step = block * unrolled + i
            row = half + step if side == 1 else half - 1 - step
            if side == 1:
                for c in T.vectorized(2):
                    total[c] += gate[i, c] * LOG2_E
            for c in T.vectorized(2):
                decay[c] = T.exp2(total[c] if side == 1 else -total[c])
                inverse[c] = T.exp2(-total[c] if side == 1 else total[c])
            for c in T.vectorized(2):
                slots.k_column[s, row, channel + c] = key[i, c] * inverse[c]
                slots.k[s, row, channel + c] = -(key[i, c] * decay[c])
            if store_factor is None:
                for c in T.vectorized(2):
                    slots.q[s, row, channel + c] = query[i, c] * decay[c]
            else:
                store_factor(row, channel, decay)
            if side == 0:
                for c in T.vectorized(2):
                    total[c] += gate[i, c] * LOG2_E


@T.macro
def decay_rows(slots, s, raw, thread, store_factor=None):
    # A thread has two channels of half a chunk. Its numbers of both halves are constants of a
    # program of its own, since swizzles would cost as much as the arithmetic.
    pairs = raw.gate.shape[1] // 2
    total = T.alloc_local((2,), "float32")
    channel = thread % pairs * 2
    for c in T.unroll(2):
        total[c] = 0
    if thread < pairs:
        decay_half(0, slots, s, raw, total, channel, store_factor)
        for c in T.vectorized(2):
            slots.decay[s, 0, channel + c] = T.exp2(total[c])
    elif thread < 2 * pairs:
        decay_half(1, slots, s, raw, total, channel, store_factor)
        for c in T.vectorized(2):
            slots.decay[s, 1, channel + c] = T.exp2(total[c])


@T.macro
def join_decays(decay, s, thread):
    # What the state takes behind the chunk before and in front of this one, by one factor. That
    # chunk's rows came before this one's, so its decays are there; the first one's are 1.
    if thread < decay.shape[2] // 2:
        for c in T.vectorized(2):
            decay[s, 0, thread * 2 + c] *= decay[1 - s, 1, thread * 2 + c]


@T.macro
def prepare(slots, s, blocks, beta, load_next):
    # Of rows that have their decays, the inverse of the system, the queries' weights and, in the
    # place of -k E, its product with the inverse.
    chunk, d_key = slots.k.shape[1:]
    columns = slots.k_column[s, :, :]
    product = T.alloc_fragment((chunk, chunk), "float32")
    whole = T.alloc_fragment((chunk, chunk), "float16")
    left = T.alloc_fragment((chunk, chunk), "bfloat16")
    # In front of the product: beside it, what addresses the requests would be spilled.
    load_next()
    T.wgmma_gemm(
        *(slots.k[s, :, :], columns, product), transpose_B=True, policy=ROWS, clear_accum=True
    )
    T.wait_wgmma(0)
    for i, j in T.Parallel(chunk, chunk):
        product[i, j] *= -beta[s, i]
    for i, j in T.Parallel(chunk, chunk):
        product[i, j] = T.if_then_else(i - j > 0, product[i, j], 0)
    invert(product, blocks, slots.numbers, slots.half, (s,), join_below)
    T.copy(slots.half[s, :, :], whole)
    for i, j in T.Parallel(chunk, chunk):
        left[i, j] = whole[i, j] * beta[s, j]
    T.copy(left, slots.inverse[s, :, :])
    for first in [*range(0, d_key, 64)]:
        here = slice(first, first + 64)
        T.wgmma_gemm(left, slots.k[s, :, here], product, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(product, slots.k[s, :, here])
    # The chains' products see what threads wrote.
    T.fence_proxy_async()
    arrive(slots.solved, s)
    T.wgmma_gemm(
        *(slots.q[s, :, :], columns, product), transpose_B=True, policy=ROWS, clear_accum=True
    )
    T.wait_wgmma(0)
    for i, j in T.Parallel(chunk, chunk):
        product[i, j] = T.if_then_else(i - j >= 0, product[i, j], 0)
    T.copy(product, slots.weights[s, :, :])
    T.fence_proxy_async()
    arrive(slots.weighed, s)


@T.macro
def update(v, before, slots, s, product, updates):
    # Updates of a chunk, transposed, half of its rows at a time: that takes fewer registers. The
    # inverse is zero above its diagonal: rows need no values behind them.
    half = v.shape[0] // 2
    for part, into in enumerate(updates):
        rows, seen = slice(part * half, (part + 1) * half), slice(0, (part + 1) * half)
        T.wgmma_gemm(
            *(v[seen, :], slots.inverse[s, rows, seen], product),
            transpose_A=True,
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        T.wgmma_gemm(before, slots.k[s, rows, :], product, transpose_B=True, policy=ROWS)
        T.wait_wgmma(0)
        T.copy(product, into)


@T.macro
def step(slots, n, v, state, load_next, store, empty):
    # The state behind a chunk, but for its decay there, and its results, transposed, half of the
    # rows at a time.
    s, columns, half = n % SLOTS, v.shape[1], v.shape[0] // 2
    before = T.alloc_fragment(state.shape, "bfloat16")
    product = T.alloc_fragment((columns, half), "float32")
    updates = [T.alloc_fragment((columns, half), "bfloat16") for _ in range(2)]
    for j, d in T.Parallel(*state.shape):
        state[j, d] *= slots.decay[s, 0, d]
    T.copy(state, before)
    update(v, before, slots, s, product, updates)
    for part in [0, 1]:
        rows = slice(part * half, (part + 1) * half)
        T.wgmma_gemm(
            *(before, slots.q[s, rows, :], product),
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        if part == 0:
            # Beside the first results.
            for piece, first in zip(updates, [0, half], strict=True):
                k_column = slots.k_column[s, first : first + half, :]
                T.wgmma_gemm(piece, k_column, state, policy=ROWS)
            load_next()
            T.mbarrier_wait_parity(slots.weighed[s], n // SLOTS % 2)
        for piece in [*range(part + 1)]:
            weights = slots.weights[s, rows, piece * half : (piece + 1) * half]
            T.wgmma_gemm(updates[piece], weights, product, transpose_B=True, policy=ROWS)
        T.wait_wgmma(0)
        if part == 1:
            arrive(empty, s)
        store(part * half, product)


@T.macro
def store_columns(tensor, h, begin, column, first, tile):
    for j, i in T.Parallel(*tile.shape):
        tensor[begin + first + i, h, column + j] = tile[j, i]


@T.macro
def arrive(barriers, slot=0):
    """Each warp once, when all its lanes have come here."""
    T.sync_warp()
    if T.get_lane_idx() == 0:
        T.mbarrier_arrive(barriers[slot])


class Slots:
    """What chunks have in shared memory: rows that have their decays, and what is made of them."""

    def __init__(self, chunk, d_key):
        rows, system = (SLOTS, chunk, d_key), (SLOTS, chunk, chunk)
        self.q, self.k, self.k_column = [T.alloc_shared(rows, "bfloat16") for _ in range(3)]
        self.numbers, self.half = [T.alloc_shared(system, "float16") for _ in range(2)]
        # Written when the numbers on the way to them are not in use any more. Compilers know less
        # of what a view's stores touch: one barrier for each.
        self.inverse, self.weights = [
            T.view(numbers, system, "bfloat16") for numbers in (self.numbers, self.half)
        ]
        # In front of the chunk's middle, with the one behind the chunk before, and behind it.
        self.decay = T.alloc_shared((SLOTS, 2, d_key), "float32")
        # What updates follow from is there; what results follow from is, too.
        self.solved, self.weighed = [T.alloc_barrier([4] * SLOTS) for _ in range(2)]


class Rows:
    """Keys, queries, if they are wanted, and gates of the next chunk as they come."""

    def __init__(self, chunk, d_key, queries=True):
        self.k, *q = [T.alloc_shared((chunk, d_key), "bfloat16") for _ in range(1 + queries)]
        self.gate = T.alloc_shared((chunk, d_key), "float32")
        self.tiles = self.k, *q, self.gate
        if queries:
            (self.q,) = q
        # Only threads read them: whole rows, by one instruction of TMA each.
        T.annotate_layout({tile: make_linear_layout(tile) for tile in self.tiles})
        self.full = T.alloc_barrier([4] * SLOTS)


@T.macro
def load_rows(tensors, raw, h, n, chunks):
    """Ask for what chunk n has, if there is one."""
    if n < chunks:
        rows = slice(n * raw.k.shape[0], (n + 1) * raw.k.shape[0])
        for tensor, tile in zip(tensors, raw.tiles, strict=True):
            T.tma_copy(tensor[rows, h, :], tile, barrier=raw.full[n % SLOTS])
        arrive(raw.full, n % SLOTS)


@T.macro
def follow(load, free, n, chunks):
    """The next chunk's values, when all warps have used these."""
    arrive(free)
    if n + 1 < chunks:
        load(n + 1)


@T.macro
def load_values(V, v, full, free, h, first, n):
    chunk, columns = v.shape
    T.mbarrier_wait_parity(free, n % 2 ^ 1)
    T.tma_copy(V[n * chunk : (n + 1) * chunk, h, first : first + columns], v, barrier=full)
    arrive(full)


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
            slots, raw = Slots(chunk, d_key), Rows(chunk, d_key)
            values = T.alloc_shared((chunk, columns), "bfloat16")
            values_full, values_free = [T.alloc_barrier(4 * groups) for _ in range(2)]
            empty = T.alloc_barrier([4 * groups] * SLOTS)
            thread = T.get_thread_binding() % 128
            # Of each group that prepares. Their code stands once: two copies and the chains' are
            # more than an instruction cache holds, and need more registers.
            blocks = T.alloc_shared((SLOTS, chunk, BLOCK), "float32")
            beta, ahead = [T.alloc_shared((SLOTS, chunk), "float32") for _ in range(2)]
            with T.ws(groups, groups + 1, each=True) as s:
                T.set_max_nreg(REGISTERS[groups][1], False)
                if s == 0:
                    load_rows((K, Q, Gate), raw, h, 0, chunks)
                    for side, d in T.Parallel(2, d_key):
                        slots.decay[1, side, d] = 1
                T.async_copy(Beta[s * chunk : (s + 1) * chunk, h], ahead[s, :])
                for turn in T.serial(T.ceildiv(chunks - s, SLOTS)):
                    n = turn * SLOTS + s
                    T.mbarrier_wait_parity(empty[s], turn % 2 ^ 1)
                    T.ptx_wait_group(0)
                    for i in T.Parallel(chunk):
                        beta[s, i] = off_zero(ahead[s, i])
                    T.async_copy(
                        Beta[(n + SLOTS) * chunk : (n + SLOTS + 1) * chunk, h], ahead[s, :]
                    )
                    T.mbarrier_wait_parity(raw.full[s], turn % 2)
                    decay_rows(slots, s, raw, thread)
                    join_decays(slots.decay, s, thread)
                    # In front of the arrival below, which tells others of what threads wrote.
                    T.fence_proxy_async()
                    T.sync_threads(1, 128)
                    following = partial(load_rows, (K, Q, Gate), raw, h, n + 1, chunks)
                    prepare(slots, s, blocks, beta, following)
                T.ptx_wait_group(0)
            with T.ws(*range(groups)):
                T.set_max_nreg(REGISTERS[groups][0], True)
                state = T.alloc_fragment((columns, d_key), "float32")
                first = bx * columns
                load = partial(load_values, V, values, values_full, values_free, h, first)
                T.clear(state)
                if chunks > 0:
                    load(0)
                for n in T.serial(chunks):
                    s = n % SLOTS
                    T.mbarrier_wait_parity(values_full, n % 2)
                    T.mbarrier_wait_parity(slots.solved[s], n // SLOTS % 2)
                    following = partial(follow, load, values_free, n, chunks)
                    store = partial(store_columns, Out, h, n * chunk, first)
                    step(slots, n, values, state, following, store, empty)

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
