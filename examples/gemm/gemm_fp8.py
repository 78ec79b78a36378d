"""A @ B^T in 8-bit floats, plain or with a scale for each 128 x 128 block: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from gemm import inputs, processors, relative_error
from gemm_any_shape import LINE

import tilelang
import tilelang.language as T
from tilelang.macros import add_scaled_products, add_shares, copy_rows


@T.macro
def add_up(C_local, partial, arrivals, arrived, tile, first, left, share):
    """Whether all of a tile's shares are there, and then `C_local` is their sum."""
    split, (block_M, block_N) = partial.shape[0], C_local[0].shape
    T.sync_threads()
    if T.get_thread_binding() == 0:
        arrived[0] = T.atomic_add(arrivals[tile], 1, memory_order="acq_rel", return_prev=True)
    is_last = T.alloc_var(T.bool)
    is_last = arrived[0] == split - 1
    if is_last:
        for n, sums in enumerate(C_local):
            if split == 2:  # the sum of two does not depend on their order
                for i, j in T.Parallel(block_M, block_N):
                    sums[i, j] += partial[1 - share, first + i, left + n * block_N + j]
            else:
                T.clear(sums)
                for s in T.serial(split):
                    for i, j in T.Parallel(block_M, block_N):
                        sums[i, j] += partial[s, first + i, left + n * block_N + j]
        if T.get_thread_binding() == 0:
            arrivals[tile] = 0
    return is_last


@dataclass(frozen=True)
class Plan:
    """C (M, N) of A (M, K) with a scale for each `group` of a row, (K / group, M) of them, and B
    (N, K) with one for each square of `group`, (N / group, K / group), or with `rows_of_B` as A has
    them, (K / group, N); the scales are applied to float32 sums of `group` products. And how blocks
    share the work:

    Blocks for all multiprocessors take the tiles in turn, so that the loads of one run during the
    end of another. `panel` tiles of rows go through the columns together. A tile has `parts` times
    `block_N` columns, one product after the other: the wider it is, the fewer bytes come from L2,
    and the sums of all parts, but the product of one, are in registers. They leave through
    `results` tiles in turn. Only the first `wide` columns of tiles have all parts, if it is given:
    tiles of one part follow for the blocks that would have none in the last round. Blocks of a
    `cluster` work on neighbours in M, and each loads a part of B's tile for all.

    `split`: so many shares of K are units of their own; the last one that arrives at a tile adds
    them up, or with `apart` a second kernel, whose blocks have a part each. `tail`: only tiles
    behind the last whole round, in which all clusters have one, have so many shares, and the second
    kernel adds up theirs. `swap`: tiles have block_M rows of B, and block_N of A are their columns:
    instructions have 64 rows or more, and as few columns as a short A has rows. `padded`: A and B
    are copied first, to rows of whole lines of L2: TMA takes rows of whole 16 bytes, but those
    across lines are read more slowly.
    """

    M: int
    N: int
    K: int
    rows_of_B: bool = False
    block_M: int = 128
    block_N: int = 128
    num_stages: int = 4
    group: int = 128
    panel: int = 8
    parts: int = 1
    wide: int | None = None
    results: int = 1
    cluster: int = 1
    split: int = 1
    apart: bool = False
    tail: int = 1
    swap: bool = False
    padded: bool = False
    out_dtype: T.dtype = T.bfloat16

    def __post_init__(self):
        width = self.parts * self.block_N
        if self.adds_up and (self.cluster > 1 or min(self.block_M, width) < 64):
            raise ValueError(
                f"found {self.split} shares that the last block adds up, tiles of {self.block_M} x "
                f"{width} and clusters of {self.cluster}, wanted tiles of 64 x 64 or more, whose "
                "counters `arrivals_of` gives, and no clusters; apart=True takes both"
            )
        if self.tail > 1 and (self.split > 1 or self.wide is not None or self.swap):
            raise ValueError(
                f"found {self.tail} shares of the last tiles with split={self.split}, "
                f"wide={self.wide}, swap={self.swap}, wanted tiles of one kind and of one share"
            )
        if self.swap and (self.rows_of_B or self.adds_up or self.group % self.block_M):
            raise ValueError(
                f"found swapped tiles of {self.block_M} rows of B with rows_of_B={self.rows_of_B}, "
                f"split={self.split} and apart={self.apart}, wanted rows that have one scale a "
                f"group of {self.group}, and shares that a second kernel adds up"
            )

    @property
    def extents(self):
        """Rows and columns of what tiles cover: C, or with `swap` its transpose."""
        return (self.N, self.M) if self.swap else (self.M, self.N)

    @property
    def adds_up(self):
        """The last block that arrives at a tile adds up its shares."""
        return self.split > 1 and not self.apart

    @property
    def groups(self):
        """Of a row of A."""
        return -(-self.K // self.group)

    @property
    def steps(self):
        """Groups of a share of K; the last one may have less."""
        return -(-self.groups // self.split)

    @property
    def clusters(self):
        """For all multiprocessors."""
        return processors() // self.cluster

    @property
    def rows(self):
        """Tiles of clusters below each other."""
        return -(-self.extents[0] // (self.cluster * self.block_M))

    @property
    def columns(self):
        """Of tiles with all parts, and of those with one part."""
        across = self.extents[1]
        wide = -(-across // (self.parts * self.block_N)) if self.wide is None else self.wide
        return wide, max(0, -(-across // self.block_N) - wide * self.parts)

    @property
    def shared(self):
        """Columns that share a scale of B, as those of a tile of 192 do in parts."""
        return math.gcd(self.block_N, self.group)

    @property
    def partial(self):
        """Shares of whole tiles, of which none is stored element by element in parts."""
        width = self.parts * self.block_N
        if self.last_shares > 1:
            return self.tail, self.last_tiles * self.cluster * self.block_M, width
        whole = [self.rows * self.cluster * self.block_M, -(-self.extents[1] // width) * width]
        whole = whole[::-1] if self.swap else whole
        return (self.split, *(-(-extent // 128) * 128 for extent in whole))

    @property
    def tall(self):
        """Rows of tiles of a panel: of those up to `panel` the number whose last panel is fullest.
        A lower last panel would take divisions by a variable, in each step of the producer."""
        heights = range(-(-self.panel // 2), self.panel + 1)
        return min(min(heights, key=lambda t: (-(-self.rows // t) * t, -t)), self.rows)

    @property
    def panels(self):
        """Below each other."""
        return -(-self.rows // self.tall)

    @property
    def whole_tiles(self):
        """Of clusters, in rounds in which all have one; some are behind the last row."""
        tiles = self.panels * self.columns[0] * self.tall
        return tiles // self.clusters * self.clusters

    @property
    def last_tiles(self):
        """Behind these."""
        return self.panels * self.columns[0] * self.tall - self.whole_tiles

    @property
    def last_shares(self):
        """Of each of them."""
        return self.tail if self.last_tiles else 1

    @property
    def skips(self):
        """TMA begins at multiples of 16 bytes: then up to three scales in front of a tile's come
        along."""
        return self.M % 4 != 0

    @property
    def room_for_scales(self):
        """Of A's rows in a step."""
        rows = self.parts * self.block_N if self.swap else self.block_M
        return rows + 32 if self.skips else rows

    @property
    def C_tile(self):
        """Shape of a part of C in shared memory."""
        shape = self.block_M, self.block_N
        return shape[::-1] if self.swap else shape


class Block(NamedTuple):
    """The memory of a block, and its number in the cluster."""

    A: Any
    B: Any
    scale_A: Any
    scale_B: Any
    C: Any
    partial: Any
    arrivals: Any
    X_shared: Any
    Y_shared: Any
    scale: Any
    scale_of_B: Any
    C_shared: Any
    arrived: Any
    row: Any
    square: Any
    product: Any
    rank: Any


@T.macro
def load_scales(plan, block, k, first, left, width):
    """Those of step k, of rows from `first` on and of columns from `left` on."""
    begin = left if plan.swap else first  # among A's rows
    at = k * plan.M + begin
    if plan.skips:
        flat = T.reshape(block.scale_A, (plan.groups * plan.M,))
        T.copy(flat[at // 4 * 4 : at // 4 * 4 + plan.room_for_scales], block.scale)
    else:
        T.copy(block.scale_A[k, begin : begin + plan.room_for_scales], block.scale)
    if plan.rows_of_B:
        T.copy(block.scale_B[k, left : left + width], block.scale_of_B[0:width])
    elif plan.swap:
        block.square[0] = block.scale_B[first // plan.group, k]
    else:
        # Under way during the product.
        for p in T.unroll(width // plan.shared):
            block.square[p] = block.scale_B[(left + p * plan.shared) // plan.group, k]


@T.macro
def multiply(plan, block, C_local, first, left, begin, count):
    """The product of `count` steps from `begin` on, of rows from `first` on and columns from `left`
    on."""
    width = len(C_local) * plan.block_N
    X, Y = (block.B, block.A) if plan.swap else (block.A, block.B)
    for sums in C_local:
        T.clear(sums)
    for step in T.Pipelined(count, num_stages=plan.num_stages):
        k = begin + step
        T.copy(X[first, k * plan.group], block.X_shared)
        T.copy(Y[left : left + width, k * plan.group], block.Y_shared[0:width, :])
        load_scales(plan, block, k, first, left, width)
        skipped = (k * plan.M + (left if plan.swap else first)) % 4 if plan.skips else 0
        of_B = (block.scale_of_B, 1) if plan.rows_of_B else (block.square, plan.shared)
        add_scaled_products(
            *(block.X_shared, block.Y_shared, C_local, block.product, block.row),
            *((block.square, 0, block.scale, 1) if plan.swap else (block.scale, skipped, *of_B)),
            T.GemmWarpPolicy.FullRow,
            skipped if plan.swap else 0,
        )


@T.macro
def store(plan, block, C_local, first, left):
    """A tile of C."""
    for n, sums in enumerate(C_local):
        staged = block.C_shared[n % plan.results]
        if plan.swap:
            for i, j in T.Parallel(plan.block_M, plan.block_N):
                staged[j, i] = sums[i, j]
            T.copy(staged, block.C[left + n * plan.block_N, first])
        else:
            T.copy(sums, staged)
            T.copy(staged, block.C[first, left + n * plan.block_N])


@T.macro
def leave(plan, block, C_local, share, first, left):
    """A share of a tile, which begins there in `partial`."""
    block_M, block_N, partial = plan.block_M, plan.block_N, block.partial
    for n, sums in enumerate(C_local):
        at = left + n * block_N
        if plan.swap:
            for i, j in T.Parallel(block_M, block_N):
                partial[share, at + j, first + i] = sums[i, j]
        else:
            T.copy(sums, partial[share, first : first + block_M, at : at + block_N])


@T.macro
def make_tile(plan, block, C_local, by, left, share):
    """The tile of row `by` from column `left` on, of as many parts as C_local has, or a share."""
    first, begin = (by * plan.cluster + block.rank) * plan.block_M, share * plan.steps
    count = T.min(plan.steps, plan.groups - begin) if plan.groups % plan.split else plan.steps
    multiply(plan, block, C_local, first, left, begin, count)
    if plan.split > 1:
        leave(plan, block, C_local, share, first, left)
    tile = by * -(-plan.N // plan.block_N) + left // plan.block_N
    counts = block.partial, block.arrivals, block.arrived
    if plan.split == 1 or (plan.adds_up and add_up(C_local, *counts, tile, first, left, share)):
        store(plan, block, C_local, first, left)


@T.macro
def deal_tiles(plan, block, C_local, number):
    """The tiles of a cluster: first those with all parts, then some of those with one part, if the
    last round of the others has none for it."""
    parts, block_N, (wide, narrow) = plan.parts, plan.block_N, plan.columns
    for above, bx, y, share in T.Persistent(
        [plan.panels, wide, plan.tall, plan.split], plan.clusters, number
    ):
        by, left = above * plan.tall + y, bx * parts * block_N
        if by < plan.rows:
            make_tile(plan, block, C_local, by, left, share)
    busy = plan.panels * wide * plan.tall * plan.split % plan.clusters
    if narrow and number >= busy:
        for above, bx, y, share in T.Persistent(
            [plan.panels, narrow, plan.tall, plan.split], plan.clusters - busy, number - busy
        ):
            by, left = above * plan.tall + y, (wide * parts + bx) * block_N
            if by < plan.rows:
                make_tile(plan, block, C_local[:1], by, left, share)


@T.macro
def place(plan, tile):
    """Row and first column of a tile, in the order of `deal_tiles`."""
    tall, (wide, _) = plan.tall, plan.columns
    by = tile // (wide * tall) * tall + tile % tall
    return by, tile // tall % wide * (plan.parts * plan.block_N)


@T.macro
def deal_tiles_and_shares(plan, block, C_local, number):
    """The tiles of a cluster in whole rounds, then its shares of the last tiles. These have a loop
    of their own: a number of steps that differs, and where they begin, would be computed in each
    step of all tiles."""
    whole, last, steps = plan.whole_tiles, plan.last_tiles, -(-plan.groups // plan.tail)
    for tile in T.Persistent([whole], plan.clusters, number):
        by, left = place(plan, tile)
        if by < plan.rows:
            first = (by * plan.cluster + block.rank) * plan.block_M
            multiply(plan, block, C_local, first, left, 0, plan.groups)
            store(plan, block, C_local, first, left)
    for unit in T.Persistent([last * plan.tail], plan.clusters, number):
        share, tile = unit // last, unit % last
        by, left = place(plan, whole + tile)
        if by < plan.rows:
            first = (by * plan.cluster + block.rank) * plan.block_M
            begin = share * steps
            count = T.min(steps, plan.groups - begin) if plan.groups % plan.tail else steps
            multiply(plan, block, C_local, first, left, begin, count)
            at = (tile * plan.cluster + block.rank) * plan.block_M
            leave(plan, block, C_local, share, at, 0)


@T.macro
def add_last_tiles(plan, partial, C):
    """A kernel that adds up the shares of the last tiles, in this order."""
    tiles, rows = plan.last_tiles * plan.cluster, 16
    columns = math.gcd(plan.parts * plan.block_N, 64)  # a part of a row of a tile
    grid = tiles, plan.block_M // rows, plan.parts * plan.block_N // columns
    with T.Kernel(*grid, threads=256) as (tile, y, x):
        sums = T.alloc_fragment((rows, columns), T.float32)
        T.clear(sums)
        T.pdl_sync()
        for share in T.unroll(plan.tail):
            for i, j in T.Parallel(rows, columns):
                at = tile * plan.block_M + y * rows + i
                sums[i, j] += partial[share, at, x * columns + j]
        by, left = place(plan, plan.whole_tiles + tile // plan.cluster)
        first = (by * plan.cluster + tile % plan.cluster) * plan.block_M
        if by < plan.rows:
            T.copy(sums, C[first + y * rows, left + x * columns])


@tilelang.jit
def scaled_matmul(M, N, K, **schedule):
    """C of A, B and their scales by a schedule, the fields of `Plan` from rows_of_B on. `arrivals`
    are zeros, and zeros again behind the kernel."""
    plan = Plan(M, N, K, **schedule)
    block_M, block_N, parts, groups = plan.block_M, plan.block_N, plan.parts, plan.groups
    cluster, group, deep = plan.cluster, plan.group, -(-K // LINE) * LINE

    @T.prim_func
    def main(
        A: T.Tensor((M, K), T.float8_e4m3fn),
        B: T.Tensor((N, K), T.float8_e4m3fn),
        scale_A: T.Tensor((groups, M), T.float32),
        scale_B: T.Tensor((groups, N) if plan.rows_of_B else (-(-N // group), groups), T.float32),
        arrivals: T.Tensor((arrivals_of(M, N),), T.int32),
    ):
        C = T.empty((M, N), plan.out_dtype)
        shares = max(plan.split, plan.last_shares)
        partial = T.alloc_global(plan.partial, T.float32) if shares > 1 else None
        left, right = A, B
        if plan.padded:
            A_deep = T.alloc_global((M, deep), T.float8_e4m3fn)
            B_deep = T.alloc_global((N, deep), T.float8_e4m3fn)
            copy_rows((A, A_deep), (B, B_deep))
            left, right = A_deep, B_deep
        with T.Kernel(plan.clusters * cluster, threads=2 * block_M, cluster_dims=cluster) as index:
            X_shared = T.alloc_shared((block_M, group), T.float8_e4m3fn)
            Y_shared = T.alloc_shared((parts * block_N, group), T.float8_e4m3fn)
            staged = 0 if plan.split > 1 and plan.apart else plan.results
            C_shared = [T.alloc_shared(plan.C_tile, plan.out_dtype) for _ in range(staged)]
            scale_of_B = T.alloc_shared((parts * block_N,), T.float32) if plan.rows_of_B else None
            scale = T.alloc_shared((plan.room_for_scales,), T.float32)
            row = None if plan.swap else T.alloc_fragment((block_M,), T.float32)
            square = T.alloc_local((1 if plan.swap else parts * block_N // plan.shared,), T.float32)
            product = T.alloc_fragment((block_M, block_N), T.float32)
            C_local = [T.alloc_fragment((block_M, block_N), T.float32) for _ in range(parts)]
            arrived = T.alloc_shared((1,), T.int32) if plan.adds_up else None
            memory = (left, right, scale_A, scale_B, C, partial, arrivals)
            tiles = (X_shared, Y_shared, scale, scale_of_B, C_shared, arrived)
            block = Block(*memory, *tiles, row, square, product, index % cluster)
            deal = deal_tiles_and_shares if plan.last_shares > 1 else deal_tiles
            deal(plan, block, C_local, index // cluster)
        if plan.last_shares > 1:
            add_last_tiles(plan, partial, C)
        elif plan.split > 1 and plan.apart:
            add_shares(partial, C)
        return C

    return main


def arrivals_of(M, N):
    """Counters for tiles of 64 x 64 or more, of any configuration of `scaled_matmul`."""
    return -(-M // 64) * -(-N // 64)


def counters(M, N, device="cpu"):
    """What `scaled_matmul` counts in; calls that may run at the same time need their own."""
    return torch.zeros(arrivals_of(M, N), dtype=torch.int32, device=device)


# Bytes a clock of an H200, from the memory to all multiprocessors, from L2 to one of them and to
# all, and bytes of shared memory of a block.
MEMORY, L2, L2_OF_ALL, SHARED = 2200, 40, 5120, 227 * 1024
# Clocks of a load, and of a kernel that adds up shares, besides their bytes.
LATENCY, ADDING = 900, 2500
# More clocks of a step, for each part but one, and where short instructions hide none of its waits:
# both fitted to measurements of an H200 (docs/measurements.md).
OTHER_PART, SHORT = 290, 300
# Power of the share of multiprocessors that are busy, with which the memory's speed grows. As in
# the carver's model.
SPREAD = 0.2
# Clocks of a load where the memory is busy: what is on its way bounds the speed. Fitted.
BUSY_LATENCY = 7500
# How much longer rows behind A's end take in a tile of which they are half or more. Fitted.
FEW_ROWS = 1.06
# Columns of an instruction, which fewer do not make faster. Assumed.
FEW_COLUMNS = 32
# Rows of A, at most, that are columns of tiles.
MOST_COLUMNS = 64


@dataclass(frozen=True)
class Clocks:
    """What a plan may take, by counts of clocks: a step of a warp group is a chain of its products
    (four m64nNk32 of N / 2 clocks), of their additions and of waits; warp groups share tensor cores
    and shared memory."""

    plan: Plan
    blocks: int

    @property
    def share(self):
        """Bytes of sums of a tile."""
        return 4 * self.plan.block_M * self.plan.parts * self.plan.block_N

    def tiles(self, parts):
        """Of blocks, with all parts or with one."""
        plan = self.plan
        return plan.rows * plan.cluster * plan.columns[parts != plan.parts]

    def step(self, parts):
        """Of one step, without the memory's."""
        plan = self.plan
        groups, wide = plan.block_M // 64, max(plan.block_N, FEW_COLUMNS)
        chain = parts * (2 * wide + 1.05 * plan.block_N + 70) + 110 * groups
        chain += OTHER_PART * (parts - 1) + SHORT * plan.swap
        products = 1.12 * groups * 2 * parts * wide
        return max(chain, products, self.received(parts) * plan.group / L2)

    def loading(self, active, parts, steps):
        """Of the memory for so many steps of so many blocks, if each operand comes once: of its
        bytes, and of a block's pipeline behind its first fill."""
        plan = self.plan
        tiles = self.tiles(plan.parts) + (self.tiles(1) / plan.parts if plan.columns[1] else 0)
        loaded = (plan.M + plan.N) * plan.K / (tiles * plan.groups)
        moved = active * loaded / (MEMORY * (active / self.blocks) ** SPREAD)
        share = min(1.0, loaded / (self.received(parts) * plan.group))
        waits = share * BUSY_LATENCY / plan.num_stages
        return max(steps * moved, (steps - plan.num_stages) * waits)

    def received(self, parts):
        """Rows of both operands, in a step."""
        height, breadth = self.plan.extents
        return min(height, self.plan.block_M) + min(breadth, parts * self.plan.block_N)

    def wave(self, active, parts, steps):
        """Of so many steps of so many blocks at a time, and of storing their sums."""
        if not active:
            return 0.0
        stored = 600 + 8 * parts * self.plan.block_N + self.adding
        return max(steps * self.step(parts) + stored, self.loading(active, parts, steps))

    @property
    def adding(self):
        """Of the last one of a tile's shares, which adds them up, one behind the other; of two the
        other one alone."""
        split = self.plan.split
        if not self.plan.adds_up:
            return self.share / L2 if split > 1 else 0.0
        return 2500 + self.share / L2 + (split if split > 2 else 1) * (self.share / L2 + LATENCY)

    def of_shares(self):
        """Of whole rounds, then of the last tiles' shares."""
        plan, blocks = self.plan, self.blocks
        rounds, last = divmod(self.tiles(plan.parts), blocks)
        steps, units = -(-plan.groups // plan.tail), last * plan.tail
        waves = rounds * self.wave(blocks, plan.parts, plan.groups)
        for active in units // blocks * [blocks] + [units % blocks]:
            stored = self.share / L2 if active else 0
            waves += self.wave(active, plan.parts, steps) + stored
        return waves + ADDING + units * self.share / L2_OF_ALL

    def __float__(self):
        is_empty = not self.plan.swap and self.plan.block_M > 2 * self.plan.M
        return self.of_all() * (FEW_ROWS if is_empty else 1.0)

    def of_all(self):
        """Of all blocks."""
        plan, blocks, parts = self.plan, self.blocks, self.plan.parts
        if plan.tail > 1:
            return 2000 + self.of_shares()
        units = self.tiles(parts) * plan.split
        last, narrow = units % blocks, self.tiles(1) if plan.columns[1] else 0
        rounds = -(-narrow // (blocks - last))
        behind = ADDING + units * self.share / L2_OF_ALL if plan.split > 1 and plan.apart else 0
        return (
            2000
            + units // blocks * self.wave(blocks, parts, plan.steps)
            + max(
                self.wave(last, parts, plan.steps),
                rounds * self.wave(blocks, 1, plan.steps),
            )
            + behind
        )


def swapped_tiles(M, groups):
    """Of rows of B and columns of a short A."""
    width = max(16, -(-M // 8) * 8)
    for block_M, split in itertools.product((64, 128), range(1, 33)):
        if M <= MOST_COLUMNS and -(-groups // split) * (split - 1) < groups:
            yield {"block_M": block_M, "block_N": width, "split": split} | {
                "swap": True,
                "apart": split > 1,
            }


def tiles_of_rows(M, N, groups, blocks):
    """Of rows of A, or shares of them."""
    for block_M, (block_N, parts) in itertools.product(
        (64, 128, 192), ((64, 1), (128, 1), (192, 1), (128, 2))
    ):
        if block_M == 192 and (block_N, parts) != (128, 1):
            continue  # three warp groups have less registers each
        tile = {"block_M": block_M, "block_N": block_N, "parts": parts}
        for split, apart in itertools.product(range(1, 33), (False, True)):
            if -(-groups // split) * (split - 1) >= groups or (apart and split == 1):
                continue  # the last share would have nothing
            if split == 1 or block_M < 192:
                yield {**tile, "split": split, "apart": apart}
        if parts > 1:
            yield from ({**tile, "wide": w} for w in range(1, (N - 1) // (parts * block_N) + 1))
        tiles = -(-M // block_M) * -(-N // (parts * block_N))
        if tiles > blocks and tiles % blocks:
            shares = range(2, min(16, groups // 3) + 1)
            yield from ({**tile, "tail": n} for n in shares if -(-groups // n) * (n - 1) < groups)


def configurations(M, N, K, blocks=None):
    """Configurations of `scaled_matmul` for so many `blocks`, by default this GPU's number, the one
    that should be the fastest first."""
    groups, blocks = -(-K // 128), blocks or processors()
    best = {}
    for tile in itertools.chain(swapped_tiles(M, groups), tiles_of_rows(M, N, groups, blocks)):
        config = {**tile, "panel": 16, "padded": K % 16 != 0}
        plan = Plan(M, N, K, **config)
        width = plan.parts * plan.block_N
        stage = (plan.block_M + width) * 128 + (plan.room_for_scales + 32) * 4
        left = SHARED - plan.block_M * plan.block_N * 2 - 256
        config["num_stages"] = min(12 if plan.swap else 8, left // stage)
        plan = Plan(M, N, K, **config)
        time = float(Clocks(plan, blocks))
        # Of those that differ in the share of tiles that are wide, or in how many shares the last
        # tiles have, the best one.
        kind = plan.block_M, plan.block_N, plan.parts, plan.split, plan.apart, plan.swap
        kind += plan.wide is None, plan.tail > 1
        if kind not in best or time < best[kind][0]:
            best[kind] = time, config
    found = list(best.values())
    for time, config in best.values():
        whole = config.get("split", 1) == 1 and "wide" not in config and "swap" not in config
        if whole and M > config["block_M"] == 128 and (M + N) * K > 50 * 2**20:
            # Less comes from L2 and the memory, but blocks wait for each other.
            found.append((time * 1.001, {**config, "cluster": 2, "panel": 8}))
    return [config for _, config in sorted(found, key=lambda entry: entry[0])]


def scaled_inputs(M, N, K, device="cpu", group=128):
    """A, B, scales for each `group` of a row of A and each square of B, and counters."""
    torch.manual_seed(0)
    a, b = inputs(M, N, K, T.float8_e4m3fn, True, device)
    blocks = -(-K // group)
    scale_a = torch.rand(blocks, M, device=device) + 0.5
    scale_b = torch.rand(-(-N // group), blocks, device=device) + 0.5
    return a, b, scale_a, scale_b, counters(M, N, device)


def scaled_reference(a, b, scale_a, scale_b, *_, group=128):
    """The same product in float64."""
    (N, K) = b.shape
    x = a.double() * scale_a.double().T.repeat_interleave(group, 1)[:, :K]
    y = scale_b.double().repeat_interleave(group, 0)[:N].repeat_interleave(group, 1)[:, :K]
    return x @ (y * b.double()).T


def scaled_relative_error(M, N, K, device="cpu", group=128, **tile):
    """||ours - reference|| / ||reference|| of the product with scales."""
    tensors = scaled_inputs(M, N, K, device, group)
    found = scaled_matmul(M, N, K, group=group, **tile)(*tensors).double()
    wanted = scaled_reference(*tensors, group=group)
    assert not tensors[-1].any(), "the counters of a kernel with split K are not 0 again"
    return float((found - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    device = "cuda" if gpu else "cpu"
    tile = {"block_K": 128, "out_dtype": T.bfloat16}
    for name, error in [
        ("plain e4m3", relative_error(M, N, K, T.float8_e4m3fn, True, device, **tile)),
        ("plain e5m2", relative_error(M, N, K, T.float8_e5m2, True, device, **tile)),
        ("scaled e4m3", scaled_relative_error(M, N, K, device, **configurations(M, N, K)[0])),
        ("scaled e4m3, split K", scaled_relative_error(M, N, K, device, block_M=64, split=2)),
    ]:
        # The tensor cores of some chips keep fewer bits of a sum of 8-bit products than float32.
        assert error < 1e-2, f"{name}: relative error {error:.1e}, wanted under 1e-2"
        print(f"{M} x {N} x {K} {name}: relative error {error:.1e}")
