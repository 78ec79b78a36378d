"""A @ B^T of any shape, bfloat16 or float16: a cost model chooses how blocks share the work.

A block computes whole tiles of C, or a share of the steps along K. Shares of one tile meet in a
workspace: the last block to arrive adds them up in the order of K, so that results are the same
each time (of two, the order does not count), or a second kernel does. Nobody waits, so that any
number of blocks may run at a time.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from gemm_few_rows import multiply_rows
from gemm_odd_rows import multiply_odd_rows

import tilelang
import tilelang.language as T
from tilelang.carver import schedules_of
from tilelang.macros import add_shares, copy_rows

LINE = 128
"""Bytes of a line of L2."""
FEW = 8
"""Rows of a tile that threads store at a time; a divisor of a tile's extents."""


@dataclass(frozen=True)
class Plan:
    """C (M, N) of A (M, K) and B (N, K), all of `dtype`, or C of `out_dtype`; and how blocks share
    the work: a `tilelang.carver.Schedule` has the other fields, but `fetch`.

    `swap`: tiles of C have block_N rows and block_M columns, which come from B: instructions have
    64 rows or more, and as few columns as a short A has rows.
    `split`: so many blocks work on each tile; their sums are added up by the last of them, or with
    `apart` by a second kernel, whose blocks have a part each. `shared_tiles`: the first ones of all
    are one row of steps, of which each block has an equal share (stream K); the others are whole.
    `fetch`: blocks fetch the next tile, or share, from a counter; else they have every
    `blocks`-th.
    `cluster`: as many blocks work on tiles beside each other, or with `down` below each other, and
    load what these have in common once. `padded`: A and B are copied first, to rows of
    whole lines of L2: TMA takes rows of whole 16 bytes, but those across lines are read more
    slowly. Where TMA does not take rows of C, threads store them.
    `by_threads`: so many rows of B, a multiple of 8, that a block multiplies by all of a short A,
    loaded by threads; the others then count for nothing. `odd_rows`: rows of B are shifted by
    threads (`gemm_odd_rows.py`), of tiles of 128 of them and block_N rows of A.
    `parts`: in which a tile of C is stored, by way of `results` buffers in turn: more parts, and
    fewer buffers, take less shared memory. Tiles are taken down the columns of a `panel` of rows of
    tiles.
    """

    M: int
    N: int
    K: int
    dtype: T.dtype
    out_dtype: T.dtype
    block_M: int = 128
    block_N: int = 128
    block_K: int = 64
    stages: int = 4
    threads: int = 256
    blocks: int = 4
    panel: int = 8
    parts: int = 1
    results: int = 2
    swap: bool = False
    split: int = 1
    apart: bool = False
    shared_tiles: int = 0
    cluster: int = 1
    down: bool = False
    padded: bool = False
    fetch: bool = False
    by_threads: int = 0
    odd_rows: bool = False

    def __post_init__(self):
        if self.block_N % self.parts:
            raise ValueError(f"parts is {self.parts}, wanted a divisor of block_N, {self.block_N}")

    @property
    def cluster_tile(self):
        """Rows and columns of what a cluster works on: its blocks have a tile each."""
        down, beside = (self.cluster, 1) if self.down else (1, self.cluster)
        return self.block_M * down, self.block_N * beside

    @property
    def tile_rows(self):
        """Tiles of clusters below each other."""
        return -(-(self.N if self.swap else self.M) // self.cluster_tile[0])

    @property
    def tile_columns(self):
        """Tiles of clusters beside each other."""
        return -(-(self.M if self.swap else self.N) // self.cluster_tile[1])

    @property
    def tiles(self):
        """Of clusters."""
        return self.tile_rows * self.tile_columns

    @property
    def steps(self):
        """Of a tile, along K: of whole shares, so that the last may be behind the end."""
        return -(-self.K // (self.block_K * self.split)) * self.split

    @property
    def shared(self):
        """Tiles that have more than one block."""
        return self.tiles if self.split > 1 else self.shared_tiles

    @property
    def share(self):
        """Steps of a share, or of a tile where none is shared."""
        if self.split > 1 or not self.shared:
            return self.steps // self.split
        return -(-self.shared * self.steps // (self.blocks // self.cluster))

    @property
    def shares(self):
        """Of all shared tiles."""
        return -(-self.shared * self.steps // self.share)

    @property
    def units(self):
        """Shares, and tiles that are not shared: what a block takes at a time."""
        return self.shares + self.tiles - self.shared

    @property
    def units_are_equal(self):
        """Whether they are all tiles, or each an equal part of one."""
        return self.shared in (0, self.tiles) and self.steps % self.share == 0

    @property
    def added_apart(self):
        """Whether a second kernel adds up the shares."""
        return self.apart and self.split > 1

    @property
    def partial(self):
        """Shape of the shares in the workspace."""
        if not self.added_apart:
            # From one share to the next, and from one tile to the next, it is another place.
            return (self.shares + self.shared) * self.cluster, self.block_M, self.block_N
        # Of whole tiles of `add_shares`.
        below = -(-self.tile_rows * self.cluster_tile[0] // 128) * 128
        beside = -(-self.tile_columns * self.cluster_tile[1] // 128) * 128
        return (self.split, *((beside, below) if self.swap else (below, beside)))

    @property
    def width(self):
        """Columns of a part of a tile of C."""
        return self.block_N // self.parts

    @property
    def ragged(self):
        """Whether TMA does not take rows of C."""
        return self.N * T.dtype(self.out_dtype).bits % 128 != 0

    @property
    def C_tile(self):
        """Shape of a part of C in shared memory."""
        return (self.block_N, self.block_M) if self.swap else (self.block_M, self.width)


def eviction(tiles):
    """The policy of L2 for rows that so many tiles have in common. Those of one alone are not read
    again: they are to evict each other, not what others have left, which may have to be written
    back first."""
    return "evict_first" if tiles == 1 else None


class Block(NamedTuple):
    """What a block works with: tensors, its tiles of them, its number in the cluster."""

    X: Any
    Y: Any
    C: Any
    partial: Any
    arrivals: Any
    X_shared: Any
    Y_shared: Any
    local: Any
    C_shared: Any
    arrived: Any
    rank: Any


@T.macro
def place(plan, tile, rank):
    """Row and column of a tile."""
    tall = min(plan.panel, plan.tile_rows)
    above = tile // (tall * plan.tile_columns) * tall
    height = T.min(tall, plan.tile_rows - above) if plan.tile_rows % tall else tall
    inside = tile % (tall * plan.tile_columns)
    row, column = above + inside % height, inside // height
    if plan.down:
        return row * plan.cluster + rank, column
    return row, column * plan.cluster + rank


@T.macro
def multiply(plan, block, row, column, first, count):
    """The product of `count` steps from `first` on."""
    X_shared, Y_shared, local = block.X_shared, block.Y_shared, block.local
    T.clear(local)
    for k in T.Pipelined(count, num_stages=plan.stages):
        T.copy(
            block.X[row * plan.block_M, (first + k) * plan.block_K],
            X_shared,
            eviction_policy=eviction(plan.tile_columns),
        )
        T.copy(
            block.Y[column * plan.block_N, (first + k) * plan.block_K],
            Y_shared,
            eviction_policy=eviction(plan.tile_rows),
        )
        T.gemm(X_shared, Y_shared, local, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)


@T.macro
def store_part(plan, staged, C, above, beside):
    """A part of a tile of C: by TMA, or if C is ragged by threads, a few rows at a time: straight
    code for all of them would be fetched as it runs, which takes longer than the stores."""
    if plan.ragged:
        for r in T.serial(staged.shape[0] // FEW):
            some = staged[r * FEW : (r + 1) * FEW, :]
            T.copy(some, C[above + r * FEW, beside], disable_tma=True)
    else:
        T.copy(staged, C[above, beside])


@T.macro
def store(plan, block, row, column):
    """A tile of C, one part behind the other."""
    block_M, block_N, width = plan.block_M, plan.block_N, plan.width
    local, C, C_shared = block.local, block.C, block.C_shared
    above, beside = row * block_M, column * block_N
    for part in T.unroll(plan.parts, explicit=True):
        staged = C_shared[part % plan.results]
        if plan.swap:
            for i, j in T.Parallel(block_M, block_N):
                staged[j, i] = local[i, j]
            store_part(plan, staged, C, beside, above)
        else:
            T.copy(local[:, part * width : (part + 1) * width], staged)
            store_part(plan, staged, C, above, beside + part * width)


@T.macro
def leave(plan, block, share_of_tile, row, column):
    """A share, for the second kernel."""
    local, partial = block.local, block.partial
    for i, j in T.Parallel(plan.block_M, plan.block_N):
        above, left = row * plan.block_M + i, column * plan.block_N + j
        if plan.swap:
            partial[share_of_tile, left, above] = local[i, j]
        else:
            partial[share_of_tile, above, left] = local[i, j]


@T.macro
def add_up(plan, block, unit, tile):
    """Pass a share on; whether all of the tile's are there, and then `block.local` is their sum."""
    steps, share, cluster = plan.steps, plan.share, plan.cluster
    local, partial, arrivals, arrived = block.local, block.partial, block.arrivals, block.arrived
    first, last = tile * steps // share, (tile * steps + steps - 1) // share
    mine = tile * cluster + block.rank
    T.copy(local, partial[unit * cluster + mine, :, :])
    T.sync_threads()
    if T.get_thread_binding() == 0:
        arrived[0] = T.atomic_add(arrivals[mine], 1, memory_order="acq_rel", return_prev=True)
    is_last = T.alloc_var(T.bool)
    is_last = arrived[0] == last - first
    if is_last:
        if plan.split == 2:  # the sum of two does not depend on their order
            other = (first + last - unit) * cluster + mine
            for i, j in T.Parallel(plan.block_M, plan.block_N):
                local[i, j] += partial[other, i, j]
        else:
            T.clear(local)
            for s in T.serial(first, last + 1):
                for i, j in T.Parallel(plan.block_M, plan.block_N):
                    local[i, j] += partial[s * cluster + mine, i, j]
        if T.get_thread_binding() == 0:
            arrivals[mine] = 0
    return is_last


@T.macro
def work_on_part(plan, block, unit):
    """On a tile, or on one of the equal shares of one."""
    tile = unit * plan.share // plan.steps
    row, column = place(plan, tile, block.rank)
    multiply(plan, block, row, column, unit * plan.share % plan.steps, plan.share)
    if plan.added_apart:
        leave(plan, block, unit % plan.split, row, column)
    elif not plan.shares or add_up(plan, block, unit, tile):
        store(plan, block, row, column)


@T.macro
def work_on_row(plan, block, unit):
    """On a row of steps, which begins and ends anywhere in tiles, or on a tile behind those that
    have such rows."""
    share, steps, shares, shared = plan.share, plan.steps, plan.shares, plan.shared
    begin = T.if_then_else(unit < shares, unit * share, (unit - shares + shared) * steps)
    end = T.if_then_else(unit < shares, T.min(begin + share, shared * steps), begin + steps)
    for tile in T.serial(begin // steps, T.ceildiv(end, steps)):
        row, column = place(plan, tile, block.rank)
        first = T.max(begin - tile * steps, 0)
        count = T.min(end - tile * steps, steps) - first
        multiply(plan, block, row, column, first, count)
        complete = T.alloc_var(T.bool, init=True)
        if count < steps:
            complete = add_up(plan, block, unit, tile)
        if complete:
            store(plan, block, row, column)


@tilelang.jit
def matmul(M, N, K, dtype=T.bfloat16, out_dtype=None, **schedule):
    """C of A and B by a schedule, the fields of `Plan` from block_M on. `counter` and `arrivals`
    have to be 0, and are 0 again behind the kernel."""
    plan = Plan(M, N, K, dtype, out_dtype or dtype, **schedule)
    block_M, block_N, block_K, cluster = plan.block_M, plan.block_N, plan.block_K, plan.cluster

    def aligned(extent):
        """Of rows of operands that are whole lines."""
        multiple = 8 * LINE // T.dtype(dtype).bits
        return -(-extent // multiple) * multiple

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        counter: T.Tensor((1,), T.int32),
        arrivals: T.Tensor((max(plan.shared * cluster, 1),), T.int32),
    ):
        C = T.empty((M, N), plan.out_dtype)
        if plan.by_threads:
            multiply_rows(A, B, C, plan.by_threads // 8)
            return C
        if plan.odd_rows:
            tile = block_N, block_K, plan.stages, plan.threads, plan.split
            multiply_odd_rows(A, B, C, *tile)
            return C
        partial = T.alloc_global(plan.partial, T.float32) if plan.shares else None
        if plan.padded:
            A_wide = T.alloc_global((M, aligned(K)), dtype)
            B_wide = T.alloc_global((N, aligned(K)), dtype)
            copy_rows((A, A_wide), (B, B_wide))
        left, right = (A_wide, B_wide) if plan.padded else (A, B)
        X, Y = (right, left) if plan.swap else (left, right)
        with T.Kernel(plan.blocks, threads=plan.threads, cluster_dims=cluster) as block:
            X_shared = T.alloc_shared((block_M, block_K), dtype)
            Y_shared = T.alloc_shared((block_N, block_K), dtype)
            local = T.alloc_fragment((block_M, block_N), T.float32)
            staged = 0 if plan.added_apart else min(plan.parts, plan.results)
            C_shared = [T.alloc_shared(plan.C_tile, plan.out_dtype) for _ in range(staged)]
            adds_up = plan.shares and not plan.added_apart
            arrived = T.alloc_shared((1,), T.int32) if adds_up else None
            tensors = X, Y, C, partial, arrivals
            own = Block(*tensors, X_shared, Y_shared, local, C_shared, arrived, block % cluster)
            work = work_on_part if plan.units_are_equal else work_on_row
            for unit in T.Persistent(
                [plan.units],
                plan.blocks // cluster,
                block // cluster if cluster > 1 else block,
                counter=counter if plan.fetch else None,
            ):
                work(plan, own, unit)
        if plan.added_apart:
            add_shares(partial, C)
        return C

    return main


def schedule_of(M, N, K, dtype=T.bfloat16, out_dtype=None, arch=None):
    """The schedule that the cost model expects to be the fastest on `arch`, a
    `tilelang.carver.CUDA`, by default the chip that is compiled for."""
    return schedules_of(M, N, K, dtype, out_dtype, arch)[0]


def parameters(schedule):
    """Those of `matmul` that a schedule is."""
    return {name: value for name, value in vars(schedule).items() if name != "seconds"}


def counters(kernel, device):
    """What a kernel counts in: zeros; calls that may run at the same time need their own."""
    sizes = [int(parameter.shape[0]) for parameter in kernel.params[2:4]]
    return [torch.zeros(size, dtype=torch.int32, device=device) for size in sizes]


@functools.cache
def compiled(M, N, K, dtype, schedule, device):
    """The kernel of a schedule and its counters; compiled, and made, once."""
    kernel = matmul(M, N, K, dtype, **parameters(schedule))
    return kernel, counters(kernel, device)


def product(a, b, schedule=None):
    """a (M, K) @ b (N, K)^T by the schedule, or by the one that the model chooses."""
    (M, K), N, dtype = a.shape, b.shape[0], T.dtype(a.dtype)
    schedule = schedule or schedule_of(M, N, K, dtype)
    kernel, counts = compiled(M, N, K, dtype, schedule, a.device)
    return kernel(a, b, *counts)


def inputs(M, N, K, dtype=T.bfloat16, device="cpu"):
    """A and B, normally distributed."""
    torch.manual_seed(0)
    return [torch.randn(s, device=device).to(dtype.as_torch()) for s in ((M, K), (N, K))]


def relative_error(a, b, found):
    """||found - A B^T|| / ||A B^T||, the product in float64."""
    wanted = a.double() @ b.double().T
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [[5120] * 3, [256, 4096, 7168], [32, 8192, 8192]] if gpu else [[24, 320, 520]]
    parser.add_argument("--size", type=int, nargs=3, action="append", help="M, N and K")
    for M, N, K in parser.parse_args().size or sizes:
        for dtype in (T.float16, T.bfloat16):
            a, b = inputs(M, N, K, dtype, "cuda" if gpu else "cpu")
            schedule = schedule_of(M, N, K, dtype)
            error = relative_error(a, b, product(a, b, schedule))
            bound = torch.finfo(dtype.as_torch()).eps
            assert error < bound, f"relative error {error:.1e}, wanted under {bound:.1e}"
            tile = f"{schedule.block_M} x {schedule.block_N}"
            print(f"{M} x {N} x {K} {dtype}: {schedule.kind}, {tile}: relative error {error:.1e}")
