"""The gradients of the gated delta rule (delta_rule_backward.py) for Hopper, the inverses and the
states in one kernel by a schedule of four warp groups, as in delta_rule_roles.py: two prepare
chunks in turns, two go from chunk to chunk, with the state transposed and in registers. It stores
what the kernels of delta_rule_backward.py read behind it. Check them against float64 autograd of
the recurrence.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import torch
from delta_rule import BLOCK, FAST_MATH, LEAST_GATE, LOG2_E, chunk_tensors, off_zero, roots_of
from delta_rule_backward import backward_of, check, gate_sums, gradients
from delta_rule_roles import (
    CHUNK,
    COLUMNS,
    ROWS,
    WARPS,
    arrive,
    invert,
    multiply,
    schedule,
    weigh,
)

import tilelang
import tilelang.language as T

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
        self.state = T.alloc_shared((d_key, COLUMNS), "bfloat16")
        self.updates = T.alloc_shared((CHUNK, COLUMNS), "bfloat16")
        self.rows_full = T.alloc_barrier([4] * SLOTS)
        self.rows_free = T.alloc_barrier([WARPS["chain"]] * SLOTS)
        self.values_full, self.values_free = [
            T.alloc_barrier([WARPS["chain"]] * 2) for _ in range(2)
        ]


class System:
    """What is prepared of a chunk, by each group in a slot of its own: W, negated; inverse
    diag(beta); exp(G) and exp(G[last] - G)."""

    def __init__(self, d_key):
        self.w = T.alloc_shared((2, CHUNK, d_key), "bfloat16")
        self.inverse = T.alloc_shared((2, CHUNK, CHUNK), "bfloat16")
        self.decays, self.kept = [T.alloc_shared((2, CHUNK), "float32") for _ in range(2)]
        self.full = T.alloc_barrier([4] * 2)
        self.free = T.alloc_barrier([WARPS["chain"]] * 2)


@T.macro
def load_keys(K, tiles, h, n):
    """Ask for the keys of chunk n, when the chain has left the slot."""
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    slot, turn = n % SLOTS, n // SLOTS
    T.mbarrier_wait_parity(tiles.rows_free[slot], turn % 2 ^ 1)
    T.tma_copy(K[rows, h, :], tiles.k[slot, :, :], barrier=tiles.rows_full[slot])
    arrive(tiles.rows_full, slot)


@T.macro
def load_gates(tensors, ahead, h, n):
    """Gates and beta of chunk n. Rows behind the end are zero: they decay nothing."""
    rows = slice(n * CHUNK, (n + 1) * CHUNK)
    for part, tensor in enumerate(tensors):
        T.async_copy(tensor[rows, h], ahead[part, :])


@T.macro
def load_values(V, tiles, h, n):
    """Ask for the values of chunk n, when the chain has left the slot."""
    slot, rows = n % 2, slice(n * CHUNK, (n + 1) * CHUNK)
    T.mbarrier_wait_parity(tiles.values_free[slot], n // 2 % 2 ^ 1)
    T.tma_copy(V[rows, h, :], tiles.v[slot, :, :], barrier=tiles.values_full[slot])
    arrive(tiles.values_full, slot)


@T.macro
def corrections(inverse, gates, roots, k, slot, system, g):
    """What updates follow from: inverse diag(beta), W and decays."""
    whole = T.alloc_fragment((CHUNK, CHUNK), "float16")
    scaled, product = [T.alloc_fragment((CHUNK, CHUNK), "float32") for _ in range(2)]
    left = T.alloc_fragment((CHUNK, CHUNK), "bfloat16")
    T.copy(inverse, whole)
    for i in T.Parallel(CHUNK):
        system.decays[g, i] = T.exp2(gates[0, i])
        system.kept[g, i] = T.exp2(gates[0, CHUNK - 1] - gates[0, i])
    for i, j in T.Parallel(CHUNK, CHUNK):
        scaled[i, j] = roots[0, i] * whole[i, j] * roots[1, j]
    T.copy(scaled, system.inverse[g, :, :])
    for i, j in T.Parallel(CHUNK, CHUNK):
        left[i, j] = -scaled[i, j] * T.exp2(gates[0, j])
    for first in [*range(0, k.shape[2], CHUNK)]:
        here = slice(first, first + CHUNK)
        T.wgmma_gemm(left, k[slot, :, here], product, policy=ROWS, clear_accum=True)
        T.wait_wgmma(0)
        T.copy(product, system.w[g, :, here])


@T.macro
def prepare(g, count, h, tensors, results, tiles, system):
    """What group g of those that prepare does: `count` chunks, every other one."""
    (K, *gate_and_beta), (Inverse, Rows), k = tensors, results, tiles.k
    gates, ahead, roots = [T.alloc_shared((2, CHUNK), "float32") for _ in range(3)]
    factors = T.alloc_shared((CHUNK, BLOCK), "float32")
    inverse, numbers = [T.alloc_shared((CHUNK, CHUNK), "float16") for _ in range(2)]
    product = T.alloc_fragment((CHUNK, CHUNK), "float32")
    if count > 0:
        load_keys(K, tiles, h, g)
        load_gates(gate_and_beta, ahead, h, g)
    for turn in T.serial(count):
        n = 2 * turn + g
        slot = n % SLOTS
        T.ptx_wait_group(0)
        for i in T.Parallel(CHUNK):
            gates[0, i] = T.max(ahead[0, i] * LOG2_E, LEAST_GATE)
            gates[1, i] = off_zero(ahead[1, i])
        if turn + 1 < count:
            load_gates(gate_and_beta, ahead, h, n + 2)
        roots_of(gates, roots)
        T.cumsum(gates[0:1, :], dim=1)
        for part, i in T.Parallel(2, CHUNK):
            Rows[n, h, part, i] = gates[part, i]
        T.mbarrier_wait_parity(tiles.rows_full[slot], n // SLOTS % 2)
        multiply(k, k, slot, product)
        T.wait_wgmma(0)
        weigh(gates, product, 1)
        for i, j in T.Parallel(CHUNK, CHUNK):
            product[i, j] *= roots[1, i] * roots[0, j]
        invert(product, factors, numbers, inverse)
        T.mbarrier_wait_parity(system.free[g], turn % 2 ^ 1)
        T.tma_store_wait()
        corrections(inverse, gates, roots, k, slot, system, g)
        T.fence_proxy_async()
        arrive(system.full, g)
        T.tma_copy(system.inverse[g, :, :], Inverse[n, h, :, :])
        # Into the slot of the chunk before this one: who waited for the chain earlier would keep
        # this chunk from it.
        if turn + 1 < count:
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
        store_turned(before, tiles.state, State[n, h, :, :])
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
        State: T.Tensor((chunks, heads, d_key, d_value), "bfloat16"),
        Updates: T.Tensor((chunks, heads, CHUNK, d_value), "bfloat16"),
    ):
        T.annotate_pass_configs(FAST_MATH)
        with T.Kernel(heads, threads=32 * sum(WARPS.values())) as h:
            T.annotate_ws_schedule(schedule())
            tiles, system = Tiles(d_key), System(d_key)
            for g, role in enumerate(["prepare0", "prepare1"]):
                with T.ws_role(role):
                    tensors, results = (K, Gate, Beta), (Inverse, Rows)
                    count = T.ceildiv(chunks - g, 2)
                    prepare(g, count, h, tensors, results, tiles, system)
            with T.ws_role("chain"):
                chain(chunks, h, V, (State, Updates), tiles, system)

    return main


def kernels_of(heads, chunk=CHUNK, key=128, value=COLUMNS, **options):
    """The three kernels; `options` are those of tilelang.compile."""
    if chunk != CHUNK:
        raise ValueError(f"found chunks of {chunk} rows, wanted {CHUNK}")
    programs = (
        states(heads, key, value),
        gradients(heads, chunk, key, value),
        gate_sums(heads, chunk, key),
    )
    return [tilelang.compile(program, **{"target": HOPPER, **options}) for program in programs]


def backward(q, k, v, gate, beta, d_out, kernels, chunk=CHUNK):
    """As delta_rule_backward.backward, by the kernels of this file's `kernels_of`."""
    key, value = k.shape[2], v.shape[2]
    shapes = (chunk, chunk), (key, value), (chunk, value)
    inverse, state, updates = chunk_tensors(k, chunk, *shapes)
    (rows,) = chunk_tensors(k, chunk, (2, chunk), dtype=torch.float32)
    kernels[0](k, v, gate, beta, inverse, rows, state, updates)
    return backward_of(q, k, v, d_out, (inverse, rows, state, updates), kernels[1:])


if __name__ == "__main__":
    check((kernels_of, backward), description=__doc__, sizes=(64, COLUMNS))
