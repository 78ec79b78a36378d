"""The gated delta rule (delta_rule.py) in one kernel by a schedule of four warp groups, for Hopper.
Two of them prepare chunks in turns, which wait for no state: of a chunk's system the inverse, W =
inverse diag(beta exp(G)) K, and the weights of its updates. The two others go from chunk to chunk
with 64 columns of the values each, by updates = inverse diag(beta) V - W S. They have the state
transposed and in registers, and so is all that is made of it: nothing goes through shared memory
from one product to the next. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import itertools

import torch
from delta_rule import BLOCK, FAST_MATH, LEAST_GATE, LOG2_E, check

import tilelang
import tilelang.language as T

ROWS = T.GemmWarpPolicy.FullRow
# Rows of a chunk, four blocks of its system. Values of a block of threads.
CHUNK, COLUMNS = 64, 128
# Warps of each role, and registers of a thread. What is prepared last comes first: the addresses
# of its tiles are then those of the others, or a constant off, which saves registers.
WARPS = {"prepare1": 4, "prepare0": 4, "chain": 8}
REGISTERS = {"prepare1": 96, "prepare0": 96, "chain": 160}
# Of queries and keys: two chunks are prepared while the states pass a third one.
SLOTS = 3


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
    all warps of the chain when they do not need it any more."""

    def __init__(self, d_key):
        self.q, self.k = [T.alloc_shared((SLOTS, CHUNK, d_key), "bfloat16") for _ in "qk"]
        self.v = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.rows_full = T.alloc_barrier([4] * SLOTS)
        self.rows_free = T.alloc_barrier([WARPS["chain"]] * SLOTS)
        self.values_full, self.values_free = [T.alloc_barrier(WARPS["chain"]) for _ in range(2)]


class System:
    """What is prepared of a chunk, by each group in a slot of its own: W, negated, 64 columns of
    keys a tile; inverse diag(beta); weights; exp(G)."""

    def __init__(self, d_key):
        self.w = [T.alloc_shared((2, CHUNK, 64), "bfloat16") for _ in range(d_key // 64)]
        self.inverse, self.weights = [
            T.alloc_shared((2, CHUNK, CHUNK), "bfloat16") for _ in range(2)
        ]
        self.decays = T.alloc_shared((2, CHUNK), "float32")
        self.full = T.alloc_barrier([4] * 2)
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
    T.mbarrier_wait_parity(tiles.values_free, n % 2 ^ 1)
    T.tma_copy(V[rows, h, columns], tiles.v, barrier=tiles.values_full)
    arrive(tiles.values_full)


@T.macro
def weigh(left, right, slot, gates, product, strictly=0):
    """left right^T, times the decay from row j to row i where j is before i. What is above the
    diagonal, where a decay may be infinite, is left out at the end, and not behind a branch."""
    T.wgmma_gemm(
        *(left[slot, :, :], right[slot, :, :], product),
        transpose_B=True,
        policy=ROWS,
        clear_accum=True,
    )
    T.wait_wgmma(0)
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] *= T.exp2(gates[0, i] - gates[0, j])
    for i, j in T.Parallel(CHUNK, CHUNK):
        product[i, j] = T.if_then_else(i - j >= strictly, product[i, j], 0)


@T.macro
def invert_blocks(factors, inverse):
    """inverse = (1 + L)^-1 of the blocks L of 16 rows in `factors`, a row a thread: it is 1 + Z
    where Z + Z L = -L, so a column of Z follows from those behind it."""
    row = T.alloc_fragment((CHUNK, BLOCK), "float32")
    T.clear(inverse)
    for i in T.Parallel(CHUNK):
        for j in T.unroll(BLOCK):
            row[i, j] = -factors[i, j]
        for n in T.unroll(BLOCK - 1):
            for j in T.unroll(BLOCK - 1 - n):
                row[i, j] -= row[i, BLOCK - 1 - n] * factors[i // BLOCK * BLOCK + BLOCK - 1 - n, j]
        for j in T.unroll(BLOCK):
            inverse[i, i // BLOCK * BLOCK + j] = row[i, j]
        inverse[i, i] = 1


@T.macro
def join_blocks(system, inverse, size):
    """Of blocks on the diagonal of `inverse` make blocks of twice their size: [[A, 0], [B, C]] has
    the inverse [[A', 0], [-C' B A', C']]. Numbers are of float16, whose mantissa is that of tf32.
    """
    firsts = list(range(0, CHUNK, 2 * size))
    products = [T.alloc_fragment((CHUNK, size), "float32") for _ in firsts]
    factors, columns = [
        [T.alloc_fragment((CHUNK, size), "float16") for _ in firsts] for _ in range(2)
    ]
    for n, first in enumerate(firsts):
        here = slice(first, first + size)
        T.wgmma_gemm(inverse, system[:, here], products[n], policy=ROWS, clear_accum=True)
    T.wait_wgmma(0)
    for n, first in enumerate(firsts):
        here, below = slice(first, first + size), first // size + 1
        for i, j in T.Parallel(CHUNK, size):
            factors[n][i, j] = T.if_then_else(i // size == below, -products[n][i, j], 0)
        T.copy(inverse[:, here], columns[n])
        T.copy(columns[n], products[n])
    for n, first in enumerate(firsts):
        here = slice(first, first + size)
        T.wgmma_gemm(factors[n], inverse[here, here], products[n], policy=ROWS)
    T.wait_wgmma(0)
    for n, first in enumerate(firsts):
        T.copy(products[n], inverse[:, first : first + size])


@T.macro
def invert(product, system, factors, inverse):
    """inverse = (1 + product)^-1; `system` and `factors` are for its numbers on the way."""
    T.copy(product, system)
    for i, j in T.Parallel(CHUNK, CHUNK):
        if i // BLOCK == j // BLOCK:
            factors[i, j % BLOCK] = product[i, j]
    invert_blocks(factors, inverse)
    join_blocks(system, inverse, BLOCK)
    join_blocks(system, inverse, 2 * BLOCK)


@T.macro
def corrections(inverse, gates, beta, k, slot, system, g):
    """What updates follow from: inverse diag(beta), and W."""
    whole = T.alloc_fragment((CHUNK, CHUNK), "float16")
    scaled = T.alloc_fragment((CHUNK, CHUNK), "float32")
    left = T.alloc_fragment((CHUNK, CHUNK), "bfloat16")
    product = T.alloc_fragment((CHUNK, 64), "float32")
    T.copy(inverse, whole)
    for i in T.Parallel(CHUNK):
        system.decays[g, i] = T.exp2(gates[0, i])
    for i, j in T.Parallel(CHUNK, CHUNK):
        scaled[i, j] = whole[i, j] * beta[j]
    T.copy(scaled, system.inverse[g, :, :])
    for i, j in T.Parallel(CHUNK, CHUNK):
        left[i, j] = -scaled[i, j] * T.exp2(gates[0, j])
    for part, w in enumerate(system.w):
        columns = slice(part * 64, (part + 1) * 64)
        T.wgmma_gemm(left, k[slot, :, columns], product, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(product, w[g, :, :])


@T.macro
def prepare(g, pairs, h, tensors, tiles, system):
    """What group g of those that prepare does: every other chunk."""
    q, k = tiles.q, tiles.k
    gates, ahead = T.alloc_shared((1, CHUNK), "float32"), T.alloc_shared((2, CHUNK), "float32")
    beta = T.alloc_shared((CHUNK,), "float32")
    factors = T.alloc_shared((CHUNK, BLOCK), "float32")
    inverse, numbers = [T.alloc_shared((CHUNK, CHUNK), "float16") for _ in range(2)]
    product = T.alloc_fragment((CHUNK, CHUNK), "float32")
    if pairs > 0:
        load_rows(tensors, tiles, ahead, h, g)
    for pair in T.serial(pairs):
        n = 2 * pair + g
        slot = n % SLOTS
        T.ptx_wait_group(0)
        for i in T.Parallel(CHUNK):
            gates[0, i] = T.max(ahead[0, i] * LOG2_E, LEAST_GATE)
            beta[i] = ahead[1, i]
        T.cumsum(gates, dim=1)
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
        weigh(k, k, slot, gates, product, 1)
        for i, j in T.Parallel(CHUNK, CHUNK):
            product[i, j] *= beta[i]
        invert(product, numbers, factors, inverse)
        T.mbarrier_wait_parity(system.free[g], pair % 2 ^ 1)
        corrections(inverse, gates, beta, k, slot, system, g)
        weigh(q, k, slot, gates, product)
        T.copy(product, system.weights[g, :, :])
        # What is left of a row's update behind the chunk.
        for i, d in T.Parallel(*k.shape[1:]):
            kept = T.exp2(gates[0, CHUNK - 1] - gates[0, i])
            k[slot, i, d] *= T.cast(kept, "bfloat16")
        T.fence_proxy_async()
        arrive(system.full, g)
        # Into the slot of the chunk before this one: who waited for the chain earlier would keep
        # this chunk from it.
        if pair + 1 < pairs:
            load_rows(tensors, tiles, ahead, h, n + 2)


@T.macro
def update(before, v, system, g, product, updates):
    """inverse diag(beta) V - W S of a chunk, transposed, half of its rows at a time: that takes
    fewer registers."""
    for half, into in enumerate(updates):
        rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
        T.wgmma_gemm(
            *(v, system.inverse[g, rows, :], product),
            transpose_A=True,
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        for part, w in enumerate(system.w):
            T.wgmma_gemm(before[part], w[g, rows, :], product, transpose_B=True, policy=ROWS)
        T.wait_wgmma(0)
        T.copy(product, into)


@T.macro
def output(half, before, q, slot, system, g, product, updates):
    """Results of half of the rows, transposed."""
    rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
    for part, piece in enumerate(before):
        T.wgmma_gemm(
            *(piece, q[slot, rows, part * 64 : (part + 1) * 64], product),
            transpose_B=True,
            policy=ROWS,
            clear_accum=part == 0,
        )
    T.wait_wgmma(0)
    for d, i in T.Parallel(COLUMNS, CHUNK // 2):
        product[d, i] *= system.decays[g, half * CHUNK // 2 + i]
    for part, piece in enumerate(updates):
        columns = slice(part * CHUNK // 2, (part + 1) * CHUNK // 2)
        T.wgmma_gemm(
            *(piece, system.weights[g, rows, columns], product), transpose_B=True, policy=ROWS
        )
    T.wait_wgmma(0)


@T.macro
def chain(pairs, h, first, V, Out, tiles, system):
    """The states from chunk to chunk, transposed, of the values from column `first` on."""
    q, k, v = tiles.q, tiles.k, tiles.v
    d_key, length = k.shape[2], V.shape[0]
    state = T.alloc_fragment((COLUMNS, d_key), "float32")
    before = [T.alloc_fragment((COLUMNS, 64), "bfloat16") for _ in range(d_key // 64)]
    product = T.alloc_fragment((COLUMNS, CHUNK // 2), "float32")
    updates = [T.alloc_fragment((COLUMNS, CHUNK // 2), "bfloat16") for _ in range(2)]
    T.clear(state)
    if pairs > 0:
        load_values(V, tiles, h, first, 0)
    for n in T.serial(2 * pairs):
        slot, g = n % SLOTS, n % 2
        for part, piece in enumerate(before):
            for d, j in T.Parallel(COLUMNS, 64):
                piece[d, j] = state[d, part * 64 + j]
        T.mbarrier_wait_parity(tiles.values_full, n % 2)
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
        T.mbarrier_wait_parity(system.full[g], n // 2 % 2)
        update(before, v, system, g, product, updates)
        arrive(tiles.values_free)
        for d, j in T.Parallel(COLUMNS, d_key):
            state[d, j] *= system.decays[g, CHUNK - 1]
        for half, piece in enumerate(updates):
            rows = slice(half * CHUNK // 2, (half + 1) * CHUNK // 2)
            T.wgmma_gemm(piece, k[slot, rows, :], state, policy=ROWS)
        if n + 1 < 2 * pairs:
            load_values(V, tiles, h, first, n + 1)
        T.wait_wgmma(0)
        for half in T.unroll(2, explicit=True):
            output(half, before, q, slot, system, g, product, updates)
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
            for g, role in enumerate(["prepare0", "prepare1"]):
                with T.ws_role(role):
                    prepare(g, pairs, h, (Q, K, Gate, Beta), tiles, system)
            with T.ws_role("chain"):
                chain(pairs, h, bx * COLUMNS, V, Out, tiles, system)

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
