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
    them up, or with `apart` a second kernel, whose blocks have a part each. `padded`: A and B are
    copied first, to rows of whole lines of L2: TMA takes rows of whole 16 bytes, but those across
    lines are read more slowly.
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
        return -(-self.M // (self.cluster * self.block_M))

    @property
    def columns(self):
        """Of tiles with all parts, and of those with one part."""
        wide = -(-self.N // (self.parts * self.block_N)) if self.wide is None else self.wide
        return wide, max(0, -(-self.N // self.block_N) - wide * self.parts)

    @property
    def shared(self):
        """Columns that share a scale of B, as those of a tile of 192 do in parts."""
        return math.gcd(self.block_N, self.group)

    @property
    def partial(self):
        """Shares of whole tiles, of which none is stored element by element in parts."""
        width = self.parts * self.block_N
        whole = self.rows * self.cluster * self.block_M, -(-self.N // width) * width
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
    def skips(self):
        """TMA begins at multiples of 16 bytes: then up to three scales in front of a tile's come
        along."""
        return self.M % 4 != 0


class Block(NamedTuple):
    """The memory of a block, and its number in the cluster."""

    A: Any
    B: Any
    scale_A: Any
    scale_B: Any
    C: Any
    partial: Any
    arrivals: Any
    A_shared: Any
    B_shared: Any
    scale: Any
    scale_of_B: Any
    C_shared: Any
    arrived: Any
    row: Any
    square: Any
    product: Any
    rank: Any


@T.macro
def load_scales(plan, block, k, first, at, left, width):
    """Those of step k: of rows from `first` on, which are at `at` among all of A, and of columns
    from `left` on."""
    if plan.skips:
        flat = T.reshape(block.scale_A, (plan.groups * plan.M,))
        T.copy(flat[at // 4 * 4 : at // 4 * 4 + plan.block_M + 32], block.scale)
    else:
        T.copy(block.scale_A[k, first : first + plan.block_M], block.scale)
    if plan.rows_of_B:
        T.copy(block.scale_B[k, left : left + width], block.scale_of_B[0:width])
    else:
        # Under way during the product.
        for p in T.unroll(width // plan.shared):
            block.square[p] = block.scale_B[(left + p * plan.shared) // plan.group, k]


@T.macro
def multiply(plan, block, C_local, first, left, share):
    """The product of a share of the steps, of rows from `first` on and columns from `left` on."""
    width, begin = len(C_local) * plan.block_N, share * plan.steps
    for sums in C_local:
        T.clear(sums)
    count = T.min(plan.steps, plan.groups - begin) if plan.groups % plan.split else plan.steps
    for step in T.Pipelined(count, num_stages=plan.num_stages):
        k = begin + step
        at = k * plan.M + first
        T.copy(block.A[first, k * plan.group], block.A_shared)
        T.copy(block.B[left : left + width, k * plan.group], block.B_shared[0:width, :])
        load_scales(plan, block, k, first, at, left, width)
        add_scaled_products(
            *(block.A_shared, block.B_shared, C_local, block.product),
            *(block.row, block.scale, at % 4 if plan.skips else 0),
            *((block.scale_of_B, 1) if plan.rows_of_B else (block.square, plan.shared)),
            T.GemmWarpPolicy.FullRow,
        )


@T.macro
def make_tile(plan, block, C_local, by, left, share):
    """The tile of row `by` from column `left` on, of as many parts as C_local has, or a share."""
    block_M, block_N, partial = plan.block_M, plan.block_N, block.partial
    first = (by * plan.cluster + block.rank) * block_M
    multiply(plan, block, C_local, first, left, share)
    if plan.split > 1:
        for n, sums in enumerate(C_local):
            at = left + n * block_N
            T.copy(sums, partial[share, first : first + block_M, at : at + block_N])
    tile = by * -(-plan.N // block_N) + left // block_N
    counts = partial, block.arrivals, block.arrived
    if plan.split == 1 or (plan.adds_up and add_up(C_local, *counts, tile, first, left, share)):
        for n, sums in enumerate(C_local):
            T.copy(sums, block.C_shared[n % plan.results])
            T.copy(block.C_shared[n % plan.results], block.C[first, left + n * block_N])


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
        partial = T.alloc_global(plan.partial, T.float32) if plan.split > 1 else None
        left, right = A, B
        if plan.padded:
            A_deep = T.alloc_global((M, deep), T.float8_e4m3fn)
            B_deep = T.alloc_global((N, deep), T.float8_e4m3fn)
            copy_rows((A, A_deep), (B, B_deep))
            left, right = A_deep, B_deep
        with T.Kernel(plan.clusters * cluster, threads=2 * block_M, cluster_dims=cluster) as index:
            A_shared = T.alloc_shared((block_M, group), T.float8_e4m3fn)
            B_shared = T.alloc_shared((parts * block_N, group), T.float8_e4m3fn)
            staged = 0 if plan.split > 1 and plan.apart else plan.results
            C_shared = [T.alloc_shared((block_M, block_N), plan.out_dtype) for _ in range(staged)]
            scale_of_B = T.alloc_shared((parts * block_N,), T.float32) if plan.rows_of_B else None
            scale = T.alloc_shared((block_M + 32 if plan.skips else block_M,), T.float32)
            row = T.alloc_fragment((block_M,), T.float32)
            square = T.alloc_local((parts * block_N // plan.shared,), T.float32)
            product = T.alloc_fragment((block_M, block_N), T.float32)
            C_local = [T.alloc_fragment((block_M, block_N), T.float32) for _ in range(parts)]
            arrived = T.alloc_shared((1,), T.int32) if plan.adds_up else None
            memory = (left, right, scale_A, scale_B, C, partial, arrivals)
            tiles = (A_shared, B_shared, scale, scale_of_B, C_shared, arrived)
            block = Block(*memory, *tiles, row, square, product, index % cluster)
            deal_tiles(plan, block, C_local, index // cluster)
        if plan.split > 1 and plan.apart:
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
LATENCY, ADDING = 900, 4000


def configurations(M, N, K, blocks=None):
    """Configurations of `scaled_matmul` for so many `blocks`, by default this GPU's number, the one
    that should be the fastest first, by counts of clocks: a step of a warp group is a chain of its
    products (four m64nNk32 of N / 2 clocks), of their additions and of waits; warp groups share
    tensor cores and shared memory."""
    found, groups, blocks = [], -(-K // 128), blocks or processors()

    def clocks(block_M, block_N, parts, split, apart, wide):
        width = parts * block_N
        down, across = -(-M // block_M), -(-N // block_N)
        narrow = 0 if wide is None else across - wide * parts
        steps = -(-groups // split)
        units = down * (-(-N // width) if wide is None else wide) * split
        adding, behind = 0, 0
        share = 4 * block_M * width
        if apart:  # a share is stored, and a second kernel loads them all
            adding = share / L2
            behind = ADDING + units * share / L2_OF_ALL
        elif split > 1:  # or the last one's block, one behind the other; of two the other one alone
            adding = 2500 + share / L2 + (split if split > 2 else 1) * (share / L2 + LATENCY)
        # What a step loads from the memory, if each operand comes once.
        bytes_of_step = (M + N) * K / ((units + down * narrow / parts) * steps)

        def wave(active, parts=parts):
            rows, columns = min(M, block_M), min(N, parts * block_N)
            chain = parts * (2 * block_N + 1.05 * block_N + 70) + 110 * (block_M // 64)
            products = 1.12 * (block_M // 64) * 2 * parts * block_N
            step = max(chain, products, (rows + columns) * 128 / L2)
            time = steps * max(step, active * bytes_of_step / MEMORY)
            return time + 600 + 4 * parts * block_N + adding if active else 0

        last = units % blocks
        narrow_rounds = -(-down * narrow // (blocks - last))
        return (
            2000
            + units // blocks * wave(blocks)
            + max(wave(last), narrow_rounds * wave(blocks, 1))
            + behind
        )

    for block_M, (block_N, parts), split, apart in itertools.product(
        (64, 128, 192),
        ((64, 1), (128, 1), (192, 1), (128, 2)),
        range(1, 33),
        (False, True),
    ):
        if block_M == 192 and ((block_N, parts, split) != (128, 1, 1) or M < 1024):
            continue  # three warp groups have less registers each; not measured with few rows
        if -(-groups // split) * (split - 1) >= groups or (apart and split == 1):
            continue  # the last share would have nothing
        stage = (block_M + parts * block_N) * 128 + (block_M + 32) * 4
        stages = min(8, (SHARED - block_M * block_N * 2 - 256) // stage)
        config = {"block_M": block_M, "block_N": block_N, "parts": parts, "split": split}
        config |= {"num_stages": stages, "panel": 16, "padded": K % 16 != 0, "apart": apart}
        # The widest of equal ones.
        narrower = range(N // (parts * block_N), 0, -1) if parts > 1 and split == 1 else ()
        time, wide = min(
            ((clocks(block_M, block_N, parts, split, apart, w), w) for w in (None, *narrower)),
            key=lambda entry: entry[0],
        )
        config |= {"wide": wide} if wide else {}
        found.append((time, config))
        if split == 1 and M > block_M == 128 and (M + N) * K > 50 * 2**20 and not wide:
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
