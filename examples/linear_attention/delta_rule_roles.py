"""The gated delta rule (delta_rule.py) in one kernel by a schedule of four warp groups, for Hopper.
Two of them prepare chunks in turns, which wait for no state: of a chunk's system the inverse, W =
inverse diag(beta exp(G)) K, and the weights of its updates. The two others go from chunk to chunk
with 64 columns of the values each, by updates = inverse diag(beta) V - W S. They have the state
transposed and in registers, and so is all that is made of it: nothing goes through shared memory
from one product to the next. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import itertools
from functools import partial

import torch
from delta_rule import FAST_MATH, LEAST_GATE, LOG2_E, check, invert_by_warps

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

ROWS = T.GemmWarpPolicy.FullRow
# Rows of a chunk, as many as invert_by_warps takes. Values of a block of threads.
CHUNK, COLUMNS = 64, 128
# Warps of each role, and registers of a thread. What is prepared last comes first: the addresses
# of its tiles are then those of the others, or a constant off, which saves registers.
WARPS = {"prepare1": 4, "prepare0": 4, "chain": 8}
REGISTERS = {"prepare1": 96, "prepare0": 96, "chain": 160}
# Of queries and keys: two chunks are prepared while the states pass a third one, and the next one
# is on its way.
SLOTS = 4


def schedule(warps=WARPS, registers=REGISTERS):
    ends = list(itertools.accumulate(warps.values()))
    return T.WSSchedule(
        num_warps=ends[-1],
        roles={
            name: T.WSRole(warps_lo=end - warps[name], warps_hi=end, max_nreg=registers[name])
            for name, end in zip(warps, ends, strict=True)
        },
        pipelines={},
    )


def barriers_of(warps, *roles, slots=1):
    """At each mbarrier arrive all warps of the roles, whose numbers `warps` has."""
    return T.alloc_barrier([sum(warps[role] for role in roles)] * slots)


class Tiles:
    """What TMA fills. At the mbarriers arrive all warps of the group that has asked for a tile, and
    all warps of the chain when they do not need it any more. Values are free with W."""

    def __init__(self, d_key):
        self.q, self.k = [T.alloc_shared((SLOTS, CHUNK, d_key), "bfloat16") for _ in "qk"]
        self.v = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.rows_full = T.alloc_barrier([4] * SLOTS)
        self.rows_free = T.alloc_barrier([WARPS["chain"]] * SLOTS)
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
        # By the updates of each group's chunks, when they are there.
        self.solution_free = T.alloc_barrier([WARPS["chain"]] * 2)
        self.free = T.alloc_barrier([WARPS["chain"]] * 2)


@T.macro
def arrive(barriers, slot=0):
    """Each warp once, when all its lanes have come here."""
    T.sync_warp()
    if T.get_lane_idx() == 0:
        T.mbarrier_arrive(barriers[slot])


@T.macro
def load_rows(tensors, tiles, ahead, h, n):
    """Ask for queries and keys of chunk n, when the chain has left the slot, and for gates and
    beta. Rows behind the end are zero: they decay nothing."""
    Q, K, *gates = tensors
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    slot, turn = n % SLOTS, n // SLOTS
    T.mbarrier_wait_parity(tiles.rows_free[slot], turn % 2 ^ 1)
    for tensor, tile in zip((Q, K), (tiles.q, tiles.k), strict=True):
        T.tma_copy(tensor[rows, h, :], tile[slot, :, :], barrier=tiles.rows_full[slot])
    arrive(tiles.rows_full, slot)
    for part, tensor in enumerate(gates):
        T.async_copy(tensor[rows, h], ahead[part, :])


@T.macro
def load_values(V, tiles, h, first, n):
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
def prepare(g, pairs, h, tensors, load_values, tiles, system):
    """What group g of those that prepare does: every other chunk."""
    q, k = tiles.q, tiles.k
    gates, ahead = T.alloc_shared((1, CHUNK), "float32"), T.alloc_shared((2, CHUNK), "float32")
    beta = T.alloc_shared((CHUNK,), "float32")
    factors = T.alloc_shared((CHUNK,), "float32")
    inverse, numbers = [T.alloc_shared((CHUNK, CHUNK), "float16") for _ in range(2)]
    product = T.alloc_fragment((CHUNK, CHUNK), "float32")
    left, between, weights = [T.alloc_fragment((CHUNK, CHUNK), "bfloat16") for _ in range(3)]
    T.annotate_layout({tile: make_swizzled_layout(tile) for tile in (inverse, numbers)})
    T.clear(inverse)
    if pairs > 0:
        load_rows(tensors, tiles, ahead, h, g)
    for pair in T.serial(pairs):
        n = 2 * pair + g
        slot = n % SLOTS
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
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
        T.mbarrier_wait_parity(system.free[g], pair % 2 ^ 1)
        if pair + 1 < pairs:
            load_rows(tensors, tiles, ahead, h, n + 2)
        for i in T.Parallel(CHUNK):
            system.decays[g, i] = T.exp2(gates[0, i])
            factors[i] = -beta[i] * T.exp2(gates[0, i])
        T.wait_wgmma(0)
        T.copy(product, weights)
        for i, j in T.Parallel(CHUNK, CHUNK):
            weights[i, j] *= between[i, j]
        T.copy(weights, system.weights[g, :, :])
        # The chunk before, of the other group, has its updates.
        T.mbarrier_wait_parity(system.solution_free[1 - g], pair % 2 ^ (1 - g))
        corrections(inverse, factors, beta, system, left)
        for first in [*range(0, k.shape[2], 64)]:
            columns = slice(first, first + 64)
            T.wgmma_gemm(left, k[slot, :, columns], product, policy=ROWS, clear_accum=True)
            if first == 0:
                load_values(n)
            T.wait_wgmma(0)
            T.copy(product, system.w[:, columns])
        keep(k, slot, gates)
        T.fence_proxy_async()
        arrive(system.full, g)


@T.macro
def update(before, v, system, product, updates):
    """inverse diag(beta) V - W S of a chunk, transposed, half of its rows at a time: that takes
    fewer registers. The inverse is zero above its diagonal: rows need no values behind them."""
    for half, into in enumerate(updates):
        rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
        seen = slice(0, (half + 1) * CHUNK // 2)
        T.wgmma_gemm(
            *(v[seen, :], system.inverse[rows, seen], product),
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
    """The same, and what they have from the updates of these rows and of those before."""
    rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
    for d, i in T.Parallel(COLUMNS, CHUNK // 2):
        product[d, i] *= system.decays[g, half * CHUNK // 2 + i]
    for part, piece in enumerate(updates[: half + 1]):
        columns = slice(part * CHUNK // 2, (part + 1) * CHUNK // 2)
        T.wgmma_gemm(
            *(piece, system.weights[g, rows, columns], product), transpose_B=True, policy=ROWS
        )
    T.wait_wgmma(0)


@T.macro
def chain(pairs, h, first, Out, tiles, system):
    """The states from chunk to chunk, transposed, of the values from column `first` on."""
    q, k, v = tiles.q, tiles.k, tiles.v
    d_key, length = k.shape[2], Out.shape[0]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    before = T.alloc_fragment((COLUMNS, d_key), "bfloat16")
    product = T.alloc_fragment((COLUMNS, CHUNK // 2), "float32")
    updates = [T.alloc_fragment((COLUMNS, CHUNK // 2), "bfloat16") for _ in range(2)]
    T.clear(state)
    for n in T.serial(2 * pairs):
        slot, g = n % SLOTS, n % 2
        T.copy(state, before)
        T.mbarrier_wait_parity(tiles.values_full, n % 2)
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
        T.mbarrier_wait_parity(system.full[g], n // 2 % 2)
        update(before, v, system, product, updates)
        arrive(system.solution_free, g)
        # Beside the state's.
        begin_output(0, before, q, slot, product)
        for d, j in T.Parallel(COLUMNS, d_key):
            state[d, j] *= system.decays[g, CHUNK - 1]
        for half, piece in enumerate(updates):
            rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
            T.wgmma_gemm(piece, k[slot, rows, :], state, policy=ROWS)
        T.wait_wgmma(2)
        for half in [0, 1]:
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


def delta_rule_by_roles(heads, d_key=128, d_value=128):
    """The delta rule as in delta_rule.py: keys of 64 or 128, a multiple of 128 as values. A block
    has a head's state for 128 of its values. Gates are natural logarithms of decays, at most 0."""
    if d_value < 1 or d_value % COLUMNS or d_key not in (64, 128):
        raise ValueError(
            f"found keys of {d_key} and values of {d_value}, wanted keys of 64 or 128 and a "
            f"multiple of {COLUMNS} as values; delta_rule.by_inverses takes others"
        )
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
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(d_value // COLUMNS, heads, threads=32 * sum(WARPS.values())) as (bx, h):
            T.annotate_ws_schedule(schedule())
            tiles, system = Tiles(d_key), System(d_key)
            pairs = T.ceildiv(length, 2 * CHUNK)
            values = partial(load_values, V, tiles, h, bx * COLUMNS)
            for g, role in enumerate(["prepare0", "prepare1"]):
                with T.ws_role(role):
                    prepare(g, pairs, h, (Q, K, Gate, Beta), values, tiles, system)
            with T.ws_role("chain"):
                chain(pairs, h, bx * COLUMNS, Out, tiles, system)

    return main


def by_roles(q, k, v, gate, beta, chunk=CHUNK):
    """As delta_rule.by_inverses, by one kernel; chunks have 64 rows."""
    if chunk != CHUNK:
        raise ValueError(f"found chunks of {chunk} rows, wanted {CHUNK}")
    (length, heads, d_key), d_value = k.shape, v.shape[2]
    out = torch.empty(length, heads, d_value, device=k.device)
    program = delta_rule_by_roles(heads, d_key, d_value)
    kernel = tilelang.compile(program, target={"kind": "cuda", "arch": "sm_90a"})
    kernel(q, k, v, gate, beta, out)
    return out


if __name__ == "__main__":
    check((by_roles,), description=__doc__, sizes=(64, 128))
