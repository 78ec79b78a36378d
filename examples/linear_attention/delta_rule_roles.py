"""The gated delta rule (delta_rule.py) in one kernel by a schedule of four warp groups, for Hopper.
Two of them prepare chunks in turns, which wait for no state: of a chunk's system the inverse, W =
inverse diag(beta exp(G)) K, and the weights of its updates. The two others go from chunk to chunk
with 64 columns of the values each, by updates = inverse diag(beta) V - W S. They have the state
transposed and in registers, and so is all that is made of it: nothing goes through shared memory
from one product to the next. All blocks have equal shares of all chunks, one block for each
multiprocessor; where a share ends inside of a sequence, the state goes to the next block through
global memory. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import itertools

import torch
from chunk_scan_roles import part_of, processors, share_of
from delta_rule import FAST_MATH, LEAST_GATE, LOG2_E, check, invert_by_warps

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

ROWS = T.GemmWarpPolicy.FullRow
# Rows of a chunk, four blocks of its system. Values of a block of threads.
CHUNK, COLUMNS = 64, 128
# Warps of each role, and registers of a thread. What is prepared last comes first: the addresses
# of its tiles are then those of the others, or a constant off, which saves registers.
WARPS = {"prepare1": 4, "prepare0": 4, "chain": 8}
REGISTERS = {"prepare1": 96, "prepare0": 96, "chain": 160}
# Of a block: all of them take a state over.
CHAIN = WARPS["chain"]
# Of queries and keys: two chunks are prepared while the states pass a third one, and the next one
# is on its way.
SLOTS = 4


def schedule():
    ends = list(itertools.accumulate(WARPS.values()))
    return T.WSSchedule(
        num_warps=ends[-1],
        roles={
            name: T.WSRole(warps_lo=end - WARPS[name], warps_hi=end, max_nreg=REGISTERS[name])
            for name, end in zip(WARPS, ends, strict=True)
        },
        pipelines={},
    )


class Tiles:
    """What TMA fills. At the mbarriers arrive all warps of the group that has asked for a tile, and
    all warps of the chain when they do not need it any more. Values are free with W."""

    def __init__(self, d_key, parts):
        self.parts = parts
        self.q, self.k = [T.alloc_shared((SLOTS, CHUNK, d_key), "bfloat16") for _ in "qk"]
        self.v = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.rows_full = T.alloc_barrier([4] * SLOTS)
        self.rows_free = T.alloc_barrier([CHAIN] * SLOTS)
        self.values_full = T.alloc_barrier(4)


class System:
    """What is prepared of a chunk. W, negated, and inverse diag(beta) come late and go early, so
    there is one slot for both groups; weights and exp(G) are by each group in a slot of its own."""

    def __init__(self, d_key):
        self.w = T.alloc_shared((CHUNK, d_key), "bfloat16")
        self.inverse = T.alloc_shared((CHUNK, CHUNK), "bfloat16")
        self.weights = T.alloc_shared((2, CHUNK, CHUNK), "bfloat16")
        self.decays = T.alloc_shared((2, CHUNK), "float32")
        self.full = T.alloc_barrier([4] * 2)
        self.solution_free = T.alloc_barrier(CHAIN)
        self.free = T.alloc_barrier([CHAIN] * 2)


@T.macro
def arrive(barriers, slot=0):
    """Each warp once, when all its lanes have come here."""
    T.sync_warp()
    if T.get_lane_idx() == 0:
        T.mbarrier_arrive(barriers[slot])


class Place:
    """Where a group is in its block's share: which sequence of the chunks, which chunk of it, and
    the one behind the last that the block has of it."""

    def __init__(self, share):
        self.share = share
        self.numbers = T.alloc_local((3,), "int32")


@T.macro
def go_to_part(place, sequence):
    """To the begin of what the block has of a sequence."""
    first, end, chunks = place.share
    place.numbers[0] = sequence
    place.numbers[1] = T.max(first - sequence * chunks, 0)
    place.numbers[2] = T.min(end - sequence * chunks, chunks)


@T.macro
def go_on(place):
    """To the next chunk of the share."""
    place.numbers[1] += 1
    if place.numbers[1] == place.numbers[2]:
        go_to_part(place, place.numbers[0] - 1)


@T.macro
def load_rows(tensors, tiles, ahead, place, t):
    """Ask for queries and keys of the t-th chunk of a share, when the chain has left the slot, and
    for gates and beta. Rows behind the end are zero: they decay nothing."""
    Q, K, *gates = tensors
    h, n = place.numbers[0] // tiles.parts, place.numbers[1]
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    slot, turn = t % SLOTS, t // SLOTS
    T.mbarrier_wait_parity(tiles.rows_free[slot], turn % 2 ^ 1)
    for tensor, tile in zip((Q, K), (tiles.q, tiles.k), strict=True):
        T.tma_copy(tensor[rows, h, :], tile[slot, :, :], barrier=tiles.rows_full[slot])
    arrive(tiles.rows_full, slot)
    for part, tensor in enumerate(gates):
        T.async_copy(tensor[rows, h], ahead[part, :])


@T.macro
def load_values(V, tiles, sequence, n):
    """Ask for the values of chunk n of a sequence."""
    h, first = sequence // tiles.parts, sequence % tiles.parts * COLUMNS
    rows, columns = slice(n * CHUNK, (n + 1) * CHUNK), slice(first, first + COLUMNS)
    T.tma_copy(V[rows, h, columns], tiles.v, barrier=tiles.values_full)
    arrive(tiles.values_full)


@T.macro
def multiply(left, right, slot, product):
    """Begin left right^T."""
    T.wgmma_gemm(
        *(left[slot, :, :], right[slot, :, :], product),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )


@T.macro
def find_system(gates, beta, product, between):
    """Of the products of keys minus the system, and `between`: the decay from row j to row i, 0
    where j is behind i. There the system may be infinite: nothing reads it."""
    decay = T.alloc_fragment((CHUNK, CHUNK), "float32")
    for i, j in T.Parallel(CHUNK, CHUNK):
        decay[i, j] = T.exp2(gates[0, i] - gates[0, j])
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] *= decay[i, j] * -beta[i]
    for i, j in T.Parallel(CHUNK, CHUNK):
        decay[i, j] = T.if_then_else(i - j >= 0, decay[i, j], 0)
    T.copy(decay, between)


@T.macro
def corrections(inverse, factors, beta, system, left):
    """What updates follow from: inverse diag(beta), and what W is the product of."""
    whole = T.alloc_fragment((CHUNK, CHUNK), "float16")
    scaled = T.alloc_fragment((CHUNK, CHUNK), "bfloat16")
    T.copy(inverse, whole)
    for i, j in T.Parallel(CHUNK, CHUNK):
        scaled[i, j] = whole[i, j] * beta[j]
    for i, j in T.Parallel(CHUNK, CHUNK):
        left[i, j] = whole[i, j] * factors[j]
    T.copy(scaled, system.inverse)


@T.macro
def keep(k, slot, gates):
    """Keys, times what is left of their rows' updates behind the chunk."""
    rows = T.alloc_fragment(k.shape[1:], "bfloat16")
    T.copy(k[slot, :, :], rows)
    for i, d in T.Parallel(*k.shape[1:]):
        rows[i, d] *= T.cast(T.exp2(gates[0, CHUNK - 1] - gates[0, i]), "bfloat16")
    T.copy(rows, k[slot, :, :])


@T.macro
def prepare(g, share, tensors, V, tiles, system):
    """What group g of those that prepare does: every other chunk."""
    first, end, chunks = share
    q, k = tiles.q, tiles.k
    gates, ahead = T.alloc_shared((1, CHUNK), "float32"), T.alloc_shared((2, CHUNK), "float32")
    beta = T.alloc_shared((CHUNK,), "float32")
    factors = T.alloc_shared((CHUNK,), "float32")
    inverse, numbers = [T.alloc_shared((CHUNK, CHUNK), "float16") for _ in range(2)]
    product = T.alloc_fragment((CHUNK, CHUNK), "float32")
    left, between, weights = [T.alloc_fragment((CHUNK, CHUNK), "bfloat16") for _ in range(3)]
    T.annotate_layout({tile: make_swizzled_layout(tile) for tile in (inverse, numbers)})
    T.clear(inverse)
    here, following = Place(share), Place(share)
    go_to_part(following, T.ceildiv(end, chunks) - 1)
    if g == 1:
        go_on(following)
    if g < end - first:
        load_rows(tensors, tiles, ahead, following, g)
    for turn in T.serial(T.ceildiv(end - first - g, 2)):
        t = 2 * turn + g
        slot = t % SLOTS
        for i in T.unroll(3):
            here.numbers[i] = following.numbers[i]
        go_on(following)
        go_on(following)
        T.mbarrier_wait_parity(tiles.rows_full[slot], t // SLOTS % 2)
        multiply(k, k, slot, product)
        T.ptx_wait_group(0)
        for i in T.Parallel(CHUNK):
            gates[0, i] = T.max(ahead[0, i] * LOG2_E, LEAST_GATE)
            beta[i] = ahead[1, i]
        T.cumsum(gates, dim=1)
        T.wait_wgmma(0)
        find_system(gates, beta, product, between)
        invert_by_warps(product, numbers, inverse, T.get_warp_idx() % 4)
        # Beside what follows.
        multiply(q, k, slot, product)
        # All of this group's last chunk is done.
        T.mbarrier_wait_parity(system.free[g], turn % 2 ^ 1)
        if t + 2 < end - first:
            load_rows(tensors, tiles, ahead, following, t + 2)
        for i in T.Parallel(CHUNK):
            system.decays[g, i] = T.exp2(gates[0, i])
            factors[i] = -beta[i] * T.exp2(gates[0, i])
        T.wait_wgmma(0)
        T.copy(product, weights)
        for i, j in T.Parallel(CHUNK, CHUNK):
            weights[i, j] *= between[i, j]
        T.copy(weights, system.weights[g, :, :])
        # The chunk before has its updates. The one before it had them in a phase of the same parity
        # as those of the next one: that phase is waited for first.
        if turn > 0:
            T.mbarrier_wait_parity(system.solution_free, t % 2)
        T.mbarrier_wait_parity(system.solution_free, t % 2 ^ 1)
        corrections(inverse, factors, beta, system, left)
        for first in [*range(0, k.shape[2], 64)]:
            columns = slice(first, first + 64)
            T.wgmma_gemm(left, k[slot, :, columns], product, policy=ROWS, clear_accum=True)
            if first == 0:
                load_values(V, tiles, here.numbers[0], here.numbers[1])
            T.wait_wgmma(0)
            T.copy(product, system.w[:, columns])
        keep(k, slot, gates)
        T.fence_proxy_async()
        arrive(system.full, g)


@T.macro
def update(before, v, system, product, updates):
    """inverse diag(beta) V - W S of a chunk, transposed, half of its rows at a time: that takes
    fewer registers."""
    for half, into in enumerate(updates):
        rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
        T.wgmma_gemm(
            *(v, system.inverse[rows, :], product),
            transpose_A=True,
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        T.wgmma_gemm(before, system.w[rows, :], product, transpose_B=True, policy=ROWS)
        T.wait_wgmma(0)
        T.copy(product, into)


@T.macro
def begin_output(half, before, q, slot, product):
    """Begin what results of half of the rows, transposed, have from the state before."""
    rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
    T.wgmma_gemm(
        *(before, q[slot, rows, :], product), transpose_B=True, policy=ROWS, clear_accum=True
    )


@T.macro
def end_output(half, system, g, product, updates):
    """The same, and what they have from the updates."""
    rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
    for d, i in T.Parallel(COLUMNS, CHUNK // 2):
        product[d, i] *= system.decays[g, half * CHUNK // 2 + i]
    for part, piece in enumerate(updates):
        columns = slice(part * CHUNK // 2, (part + 1) * CHUNK // 2)
        T.wgmma_gemm(
            *(piece, system.weights[g, rows, columns], product), transpose_B=True, policy=ROWS
        )
    T.wait_wgmma(0)


@T.macro
def take_over(states, counts, block, state):
    """The state that the block in front of this one hands over. The last warp that has waited
    clears the count, for the next launch."""
    ready = T.alloc_var("int32")
    ready = 0
    if T.get_lane_idx() == 0:
        while ready < CHAIN:
            ready = T.atomic_load(counts[block], "acquire")
    T.sync_warp()
    T.copy(states[block, :, :], state)
    T.sync_warp()
    if T.get_lane_idx() == 0:
        ready = T.atomic_add(counts[block], 1, return_prev=True)
        if ready == 2 * CHAIN - 1:
            T.atomic_store(counts[block], 0, memory_order="relaxed")


@T.macro
def hand_over(states, counts, block, state):
    """The state to a block behind this one."""
    T.copy(state, states[block, :, :])
    T.sync_warp()
    if T.get_lane_idx() == 0:
        T.atomic_add(counts[block], 1, memory_order="release")


@T.macro
def chain(share, parts, block, Out, passed, tiles, system):
    """The states from chunk to chunk, transposed."""
    q, k, v = tiles.q, tiles.k, tiles.v
    d_key, length, chunks = k.shape[2], Out.shape[0], share[2]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    before = T.alloc_fragment((COLUMNS, d_key), "bfloat16")
    product = T.alloc_fragment((COLUMNS, CHUNK // 2), "float32")
    updates = [T.alloc_fragment((COLUMNS, CHUNK // 2), "bfloat16") for _ in range(2)]
    t = T.alloc_var("int32")
    t = 0
    for part in T.serial(parts):
        sequence, begin, end = part_of(share, part)
        h, first = sequence // tiles.parts, sequence % tiles.parts * COLUMNS
        T.clear(state)
        if begin > 0:
            take_over(*passed, block, state)
        for n in T.serial(begin, end):
            slot, g = t % SLOTS, t % 2
            T.copy(state, before)
            T.mbarrier_wait_parity(tiles.values_full, t % 2)
            T.mbarrier_wait_parity(tiles.rows_full[slot], t // SLOTS % 2)
            T.mbarrier_wait_parity(system.full[g], t // 2 % 2)
            update(before, v, system, product, updates)
            arrive(system.solution_free)
            # Beside the state's.
            begin_output(0, before, q, slot, product)
            for d, j in T.Parallel(COLUMNS, d_key):
                state[d, j] *= system.decays[g, CHUNK - 1]
            for half, piece in enumerate(updates):
                rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
                T.wgmma_gemm(piece, k[slot, rows, :], state, policy=ROWS)
            T.wait_wgmma(2)
            for half in T.unroll(2, explicit=True):
                if half == 1:
                    begin_output(half, before, q, slot, product)
                    T.wait_wgmma(0)
                end_output(half, system, g, product, updates)
                if half == 1:
                    arrive(system.free, g)
                    arrive(tiles.rows_free, slot)
                for d, i in T.Parallel(COLUMNS, CHUNK // 2):
                    row = n * CHUNK + half * CHUNK // 2 + i
                    if row < length:
                        Out[row, h, first + d] = product[d, i]
            t += 1
        if end < chunks:
            hand_over(*passed, block + 1, state)


def delta_rule_by_roles(heads, blocks, d_key=128, d_value=128):
    """The delta rule as in delta_rule.py by at most `blocks` blocks: keys of 64 or 128, a multiple
    of 128 as values. A sequence is a head's state for 128 of its values. Gates are natural
    logarithms of decays, at most 0. Counts are zero in front of a launch and behind it. A block
    waits for nothing but the block in front of it, and not before it has done what the block
    behind it waits for."""
    if heads < 1 or blocks < 1:
        raise ValueError(f"found {heads} heads and {blocks} blocks, wanted at least one of each")
    if d_value < 1 or d_value % COLUMNS or d_key not in (64, 128):
        raise ValueError(
            f"found keys of {d_key} and values of {d_value}, wanted keys of 64 or 128 and a "
            f"multiple of {COLUMNS} as values; delta_rule.by_inverses takes others"
        )
    length = T.dynamic("length")
    parts = d_value // COLUMNS
    blocks = shares(heads, blocks, d_value)

    @T.prim_func
    def main(
        Q: T.Tensor((length, heads, d_key), "bfloat16"),
        K: T.Tensor((length, heads, d_key), "bfloat16"),
        V: T.Tensor((length, heads, d_value), "bfloat16"),
        Gate: T.Tensor((length, heads), "float32"),
        Beta: T.Tensor((length, heads), "float32"),
        Out: T.Tensor((length, heads, d_value), "float32"),
        States: T.Tensor((blocks, COLUMNS, d_key), "float32"),
        Counts: T.Tensor((blocks,), "int32"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        chunks = T.ceildiv(length, CHUNK)
        # None for an empty sequence.
        grid = T.min(blocks, heads * parts * chunks)
        with T.Kernel(grid, threads=32 * sum(WARPS.values())) as block:
            T.annotate_ws_schedule(schedule())
            tiles, system = Tiles(d_key, parts), System(d_key)
            share, count = share_of(block, blocks, heads * parts, chunks)
            for g, role in enumerate(["prepare0", "prepare1"]):
                with T.ws_role(role):
                    prepare(g, share, (Q, K, Gate, Beta), V, tiles, system)
            with T.ws_role("chain"):
                chain(share, count, block, Out, (States, Counts), tiles, system)

    return main


def shares(heads, blocks, d_value):
    """How many of at most `blocks` blocks have something to do."""
    return min(blocks, heads * (d_value // COLUMNS))


def room(blocks, d_key, device, empty=torch.empty):
    """Where states and counts of `blocks` blocks are handed over. One launch at a time uses it."""
    states = empty(blocks, COLUMNS, d_key, device=device)
    return states, torch.zeros(blocks, dtype=torch.int32, device=device)


def by_roles(q, k, v, gate, beta, chunk=CHUNK, blocks=None):
    """As delta_rule.by_inverses, by one kernel; chunks have 64 rows. Without `blocks`, one for each
    multiprocessor."""
    if chunk != CHUNK:
        raise ValueError(f"found chunks of {chunk} rows, wanted {CHUNK}")
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    blocks = shares(heads, processors() if blocks is None else blocks, d_value)
    out = torch.empty(length, heads, d_value, device=k.device)
    program = delta_rule_by_roles(heads, blocks, d_key, d_value)
    kernel = tilelang.compile(program, target={"kind": "cuda", "arch": "sm_90a"})
    kernel(q, k, v, gate, beta, out, *room(blocks, d_key, k.device))
    return out


if __name__ == "__main__":
    check((by_roles,), description=__doc__, sizes=(64, 128))
