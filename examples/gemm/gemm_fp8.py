"""A @ B^T in 8-bit floats, plain or with a scale for each 128 x 128 block: check it.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from gemm import inputs, processors, relative_error
from gemm_any_shape import LINE

import tilelang
import tilelang.language as T
from tilelang.carver import ScaledSchedule, scaled_schedules_of
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
class Plan(ScaledSchedule):
    """C (M, N) of A (M, K) with a scale for each `group` of a row, (K / group, M) of them, and B
    (N, K) with one for each square of `group`, (N / group, K / group), or with `rows_of_B` as A has
    them, (K / group, N); the scales are applied to float32 sums of `group` products. And how blocks
    share the work, as `ScaledSchedule` tells:

    Blocks for all multiprocessors take the tiles in turn, so that the loads of one run during the
    end of another. The parts of a tile leave through `results` tiles in turn.
    """

    rows_of_B: bool = False
    results: int = 1
    out_dtype: T.dtype = T.bfloat16

    def __post_init__(self):
        if self.adds_up and (self.cluster > 1 or min(self.block_M, self.width) < 64):
            raise ValueError(
                f"found {self.split} shares that the last block adds up, tiles of {self.block_M} x "
                f"{self.width} and clusters of {self.cluster}, wanted tiles of 64 x 64 or more, "
                "whose counters `arrivals_of` gives, and no clusters; apart=True takes both"
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
    def clusters(self):
        """For all multiprocessors."""
        return processors() // self.cluster

    @property
    def shared(self):
        """Columns that share a scale of B, as those of a tile of 192 do in parts."""
        return math.gcd(self.block_N, self.group)

    @property
    def partial(self):
        """Shares of whole tiles, of which none is stored element by element in parts."""
        if self.last_shares > 1:
            return self.tail, self.last_tiles * self.cluster * self.block_M, self.width
        across = -(-self.extents[1] // self.width) * self.width
        whole = [self.rows * self.cluster * self.block_M, across]
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
        by, left = above * plan.tall + y, bx * plan.width
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
    return by, tile // tall % wide * plan.width


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
    columns = math.gcd(plan.width, 64)  # a part of a row of a tile
    grid = tiles, plan.block_M // rows, plan.width // columns
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
            Y_shared = T.alloc_shared((plan.width, group), T.float8_e4m3fn)
            staged = 0 if plan.split > 1 and plan.apart else plan.results
            C_shared = [T.alloc_shared(plan.C_tile, plan.out_dtype) for _ in range(staged)]
            scale_of_B = T.alloc_shared((plan.width,), T.float32) if plan.rows_of_B else None
            scale = T.alloc_shared((plan.room_for_scales,), T.float32)
            row = None if plan.swap else T.alloc_fragment((block_M,), T.float32)
            square = T.alloc_local((1 if plan.swap else plan.width // plan.shared,), T.float32)
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


def configurations(M, N, K, blocks=None):
    """Configurations of `scaled_matmul` for so many `blocks`, by default this GPU's number, the one
    that the cost model expects to be the fastest first."""
    own = [field for field in fields(ScaledSchedule) if field.name not in ("M", "N", "K")]
    return [
        {f.name: value for f in own if (value := getattr(schedule, f.name)) != f.default}
        for schedule in scaled_schedules_of(M, N, K, blocks or processors())
    ]


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
