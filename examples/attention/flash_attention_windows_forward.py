"""Attention with short windows and sinks (flash_attention_windows.py) for Hopper: a block loads the
keys of a stretch of positions once, and groups of warps go through it, each with its own tiles, so
that some of them multiply while others compute exponentials. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import SimpleNamespace

from flash_attention import LOG2_E, NO_KEY, processors
from flash_attention_backward import FAST_MATH
from flash_attention_windows import case, check, largest_error, mask, reference

import tilelang
import tilelang.language as T

ROWS = T.GemmWarpPolicy.FullRow
# Rows of a tile: few positions of all heads that share keys.
TILE = 64
# Keys that a tile sees at most: a group has their scores in registers.
MOST_KEYS = 136
# Of warps that multiply.
GROUPS = 3
# Registers of a thread that loads, and of one of each group.
REGISTERS = {"load": 24, **{f"rows{g}": 160 for g in range(GROUPS)}}
# "keys" has the keys and values of a stretch, and "queries0" the queries of the first group's tile.
DEPTHS = {"keys": 2, **{f"queries{g}": 2 for g in range(GROUPS)}}


def schedule(registers, depths, groups=None):
    """A role for each name in `registers`, of as many warp groups as `groups` says, one where it
    says none, and pipelines of these depths."""
    ends = list(accumulate((4 * (groups or {}).get(name, 1) for name in registers), initial=0))
    return T.WSSchedule(
        num_warps=ends[-1],
        roles={
            name: T.WSRole(warps_lo=low, warps_hi=high, max_nreg=count)
            for (name, count), (low, high) in zip(registers.items(), pairwise(ends), strict=True)
        },
        pipelines={name: T.WSPipeline(depth) for name, depth in depths.items()},
    )


def check_heads(heads, key_heads, dim, length, window, counts, other):
    """Refuse what no tile can have; `counts` says how many heads may share keys, `other` what takes
    other heads."""
    for what, found in (("a window", window), ("a sequence", length), ("heads of keys", key_heads)):
        if found < 1:
            raise ValueError(f"found {what} of {found}, wanted at least 1")
    if heads % key_heads or heads // key_heads not in counts or dim != 64:
        raise ValueError(
            f"found {heads} heads of {dim} for {key_heads} of keys, wanted heads of 64, and one "
            f"of {counts} for each of keys; {other} takes others"
        )


@dataclass(frozen=True)
class Stretch:
    """`positions` that a block takes at a time: each group has `tiles` of `rows` positions, which
    see `seen` keys, the last ones of `padded` (products take 16 at once)."""

    packed: int
    rows: int
    tiles: int
    seen: int
    padded: int

    @staticmethod
    def of(heads, key_heads, window):
        packed = heads // key_heads
        rows = TILE // packed
        seen = -(-(rows + window - 1) // 8) * 8
        return Stretch(packed, rows, max(24 // rows, 1), seen, -(-seen // 16) * 16)

    @property
    def positions(self):
        return GROUPS * self.tiles * self.rows

    @property
    def keys(self):
        return self.padded - self.rows + self.positions


@T.macro
def fill(pipeline, version, source, tile):
    """Ask TMA for a tile."""
    T.tma_copy(source, tile, barrier=T.producer_barrier(pipeline, version))


def part_of(stretch, tensors, index):
    """What belongs to a stretch; of queries and results, to a tile that begins at a position."""
    length, key_heads = tensors.K.shape[1:3]
    stretches = -(-int(length) // stretch.positions)
    begin = index % stretches * stretch.positions
    by, bz = index // stretches % key_heads, index // stretches // key_heads
    end, head = begin + stretch.positions, by * stretch.packed
    group = slice(head, head + stretch.packed)
    return SimpleNamespace(
        begin=begin,
        head=head,
        K=tensors.K[bz, end - stretch.keys : end, by, :],
        V=tensors.V[bz, end - stretch.keys : end, by, :],
        Q=lambda first: tensors.Q[bz, first : first + stretch.rows, group, :],
        Output=lambda first: tensors.Output[bz, first : first + stretch.rows, group, :],
        batch=bz,
    )


@T.macro
def load(stretch, part, shared):
    """What the threads that load do for a stretch."""
    version = T.producer_acquire("keys")
    fill("keys", version, part.K, shared.K[version, :, :])
    fill("keys", version, part.V, shared.V[version, :, :])
    T.producer_commit("keys")
    for step in T.serial(stretch.tiles):
        for g in T.unroll(GROUPS, explicit=True):
            first = part.begin + (step * GROUPS + g) * stretch.rows
            slot = T.producer_acquire(f"queries{g}")
            fill(f"queries{g}", slot, part.Q(first), shared.Q[g][slot, :, :, :])
            T.producer_commit(f"queries{g}")


@T.macro
def weigh(stretch, tile, first, window, scale):
    """Weights of a tile's scores, and their sums. `first` is the tile's first position."""
    mask(tile.scores, first, first + stretch.rows - stretch.seen, stretch.packed, window, NO_KEY)
    T.reduce_max(tile.scores, tile.row_max, dim=1)
    for i, j in T.Parallel(TILE, stretch.seen):
        tile.scores[i, j] = T.exp2(tile.scores[i, j] * scale - tile.row_max[i] * scale)
    for i, j in T.Parallel(TILE, stretch.seen):
        tile.weights[i, stretch.padded - stretch.seen + j] = tile.scores[i, j]
    T.reduce_sum(tile.scores, tile.row_sum, dim=1)


@T.macro
def attend(g, stretch, part, shared, tensors, tile, window):
    """What group g does with its tiles of a stretch."""
    dim, length = shared.K.shape[2], tensors.Q.shape[1]
    unseen = stretch.padded - stretch.seen
    scale = LOG2_E / dim**0.5
    queries = T.reshape(shared.Q[g], (2, TILE, dim))
    out_rows = T.reshape(shared.out[g], (TILE, dim))
    for i in T.Parallel(TILE):
        tile.sinks[i] = tensors.Sinks[part.head + i % stretch.packed]
    version = T.consumer_wait("keys")
    for step in T.serial(stretch.tiles):
        own = (step * GROUPS + g) * stretch.rows
        first = part.begin + own
        slot = T.consumer_wait(f"queries{g}")
        T.wgmma_gemm(
            *(queries[slot, :, :], shared.K[version, own + unseen : own + stretch.padded, :]),
            *(tile.scores,),
            transpose_B=True,
            policy=ROWS,
            clear_accum=True,
        )
        T.wait_wgmma(0)
        T.consumer_release(f"queries{g}")
        weigh(stretch, tile, first, window, scale)
        T.wgmma_gemm(
            *(tile.weights, shared.V[version, own : own + stretch.padded, :], tile.out),
            policy=ROWS,
            clear_accum=True,
        )
        for i in T.Parallel(TILE):
            tile.row_sum[i] += T.exp2(tile.sinks[i] * LOG2_E - tile.row_max[i] * scale)
        T.wait_wgmma(0)
        for i, j in T.Parallel(TILE, dim):
            tile.out[i, j] = tile.out[i, j] / tile.row_sum[i]
        T.copy(tile.out, out_rows)
        T.copy(shared.out[g], part.Output(first))
        for i in T.Parallel(TILE):
            head, position = part.head + i % stretch.packed, first + i // stretch.packed
            if position < length:
                tensors.LogSum[part.batch, head, position] = (
                    T.log2(tile.row_sum[i]) + tile.row_max[i] * scale
                )
    T.consumer_release("keys")


@tilelang.jit(target={"kind": "cuda", "arch": "sm_90a"}, pass_configs=FAST_MATH)
def attention(batch, heads, length, dim, window, key_heads, dtype=T.float16):
    """Result and sums of flash_attention_windows.attention, for heads of 64 elements, of which 2, 4
    or 8 share keys, and windows of at most 105, 121 and 129 keys. As there, the
    sum is infinite where the sink is more than 88 above a row's largest score."""
    other = "flash_attention_windows.attention"
    check_heads(heads, key_heads, dim, length, window, (2, 4, 8), other)
    stretch = Stretch.of(heads, key_heads, window)
    if stretch.seen > MOST_KEYS:
        raise ValueError(
            f"found {stretch.seen} keys of a tile for a window of {window} where {stretch.packed} "
            f"heads share keys, wanted at most {MOST_KEYS}; {other} takes others"
        )
    shape, key_shape = (batch, length, heads, dim), (batch, length, key_heads, dim)
    blocks = processors()
    stretches = -(-length // stretch.positions) * key_heads * batch

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(key_shape, dtype),
        V: T.Tensor(key_shape, dtype),
        Sinks: T.Tensor((heads,), T.float32),
    ):
        Output, LogSum = T.empty(shape, dtype), T.empty((batch, heads, length), T.float32)
        tensors = SimpleNamespace(Q=Q, K=K, V=V, Sinks=Sinks, Output=Output, LogSum=LogSum)
        with T.Kernel(blocks, threads=128 + 128 * GROUPS) as block:
            T.annotate_ws_schedule(schedule(REGISTERS, DEPTHS))
            tile, keys = (stretch.rows, stretch.packed, dim), (2, stretch.keys, dim)
            shared = SimpleNamespace(
                Q=[T.alloc_shared((2, *tile), dtype) for _ in range(GROUPS)],
                out=[T.alloc_shared(tile, dtype) for _ in range(GROUPS)],
                K=T.alloc_shared(keys, dtype),
                V=T.alloc_shared(keys, dtype),
            )
            waves = (stretches - block + blocks - 1) // blocks
            with T.ws_role("load"):
                for wave in T.serial(waves):
                    load(stretch, part_of(stretch, tensors, wave * blocks + block), shared)
            for g, role in enumerate([f"rows{g}" for g in range(GROUPS)]):
                with T.ws_role(role):
                    rows = SimpleNamespace(
                        scores=T.alloc_fragment((TILE, stretch.seen), T.float32),
                        weights=T.alloc_fragment((TILE, stretch.padded), dtype),
                        out=T.alloc_fragment((TILE, dim), T.float32),
                        row_max=T.alloc_fragment((TILE,), T.float32),
                        row_sum=T.alloc_fragment((TILE,), T.float32),
                        sinks=T.alloc_fragment((TILE,), T.float32),
                    )
                    # Keys in front of those that a tile sees weigh nothing.
                    T.clear(rows.weights)
                    for wave in T.serial(waves):
                        part = part_of(stretch, tensors, wave * blocks + block)
                        attend(g, stretch, part, shared, tensors, rows, window)
        return Output, LogSum

    return main


def relative_error(batch, heads, key_heads, length, dim, window, device="cpu"):
    """||ours - float64|| / ||float64||."""
    tensors, _ = case(batch, heads, key_heads, length, dim, device)
    found, _ = attention(batch, heads, length, dim, window, key_heads)(*tensors)
    return largest_error([found], [reference(*(x.double() for x in tensors), window)])


if __name__ == "__main__":
    check(relative_error, __doc__, windows=([128], [50]), heads=([64, 8], [8, 1]))
