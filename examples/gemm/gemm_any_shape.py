"""A @ B^T of any shape, bfloat16 or float16: a cost model chooses how blocks share the work.

A block computes whole tiles of C, or a share of the steps along K. Shares of one tile meet in a
workspace: the last block to arrive adds them up in the order of K, so that results are the same
each time (of two, the order does not count), or a second kernel does. Nobody waits, so that any
number of blocks may run at a time.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import functools
import math

import torch
from gemm_few_rows import multiply_rows

import tilelang
import tilelang.language as T
from tilelang.carver import schedules_of
from tilelang.carver.arch.cuda import auto_infer_current_arch
from tilelang.macros import copy_rows

LINE = 128
"""Bytes of a line of L2."""


def may_overlap():
    """Whether a kernel may start before the one in front of it is complete, and wait for it by
    itself, on the chip that is compiled for."""
    return auto_infer_current_arch().sm >= 90


@T.macro
def add_shares(partial, C):
    """C of shares (split, rows, columns), of which all rows and columns are whole tiles; the sum is
    in the order of the shares."""
    split, M, N = int(partial.shape[0]), int(C.shape[0]), int(C.shape[1])
    with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 8), threads=256) as (bx, by):
        sums = T.alloc_fragment((8, 128), T.float32)
        T.clear(sums)
        if may_overlap():
            T.pdl_sync()
        for s in T.unroll(split):
            for i, j in T.Parallel(8, 128):
                sums[i, j] += partial[s, by * 8 + i, bx * 128 + j]
        T.copy(sums, C[by * 8, bx * 128])


@tilelang.jit
def matmul(
    M,
    N,
    K,
    dtype=T.bfloat16,
    out_dtype=None,
    block_M=128,
    block_N=128,
    block_K=64,
    stages=4,
    threads=256,
    blocks=4,
    panel=8,
    parts=1,
    results=2,
    swap=False,
    split=1,
    apart=False,
    shared_tiles=0,
    cluster=1,
    padded=False,
    wide=False,
    fetch=False,
    by_threads=0,
):
    """C (M, N) of A (M, K) and B (N, K); C is of `dtype` too, or `out_dtype`.

    `swap`: tiles of C have block_N rows and block_M columns, which come from B: instructions have
    64 rows or more, and as few columns as a short A has rows.
    `split`: so many blocks work on each tile; their sums are added up by the last of them, or with
    `apart` by a second kernel, whose blocks have a part each. `shared_tiles`: the first ones of all
    are one row of steps, of which each block has an equal share (stream K); the others are whole.
    `fetch`: blocks fetch the next tile, or share, from `counter`; else they have every
    `blocks`-th. `counter` and `arrivals` have to be 0, and are 0 again behind the kernel.
    `cluster`: as many blocks work on tiles beside each other, and load the rows of A, or with
    `swap` of B, that these have in common once. `padded`: A and B are copied first, to rows of
    whole lines of L2: TMA takes rows of whole 16 bytes, but those across lines are read more
    slowly. `wide`: C is stored with rows of whole 16 bytes first, and copied.
    `by_threads`: so many rows of B, a multiple of 8, that a block multiplies by all of a short A,
    loaded by threads; the others then count for nothing.
    `parts`: in which a tile of C is stored, by way of `results` buffers in turn: more parts, and
    fewer buffers, take less shared memory. Tiles are taken down the columns of a `panel` of rows of
    tiles.
    """
    out_dtype = out_dtype or dtype
    rows, columns = (N, M) if swap else (M, N)
    tile_rows = T.ceildiv(rows, block_M)
    # Of the tiles of a cluster.
    tile_columns = T.ceildiv(columns, block_N * cluster)
    tiles = tile_rows * tile_columns
    share, steps = steps_of(K, block_K, blocks // cluster, split, shared_tiles)
    shared_tiles = tiles if split > 1 else shared_tiles
    shares = T.ceildiv(shared_tiles * steps, share)
    units = shares + tiles - shared_tiles
    apart = apart and split > 1
    width = block_N // parts
    tall = min(panel, tile_rows)
    chunk = 128 // T.dtype(out_dtype).bits
    phases = 1 if wide or apart or swap or by_threads else chunk // math.gcd(chunk, N)

    def lead(row):
        """Elements of a row in front of its first whole chunk of 16 bytes."""
        return row * (-N % chunk) % chunk

    def aligned(extent, of, size=16):
        """Of rows of whole `size` bytes."""
        multiple = 8 * size // T.dtype(of).bits
        return -(-extent // multiple) * multiple

    def whole(extent):
        """Of whole tiles of `add_shares`."""
        return -(-extent // 128) * 128

    @T.macro
    def place(tile, rank):
        """Row and column of a tile."""
        above = tile // (tall * tile_columns) * tall
        height = T.min(tall, tile_rows - above) if tile_rows % tall else tall
        inside = tile % (tall * tile_columns)
        return above + inside % height, inside // height * cluster + rank

    @T.macro
    def multiply(X, Y, X_shared, Y_shared, local, row, column, first, count):
        """The product of `count` steps from `first` on."""
        T.clear(local)
        for k in T.Pipelined(count, num_stages=stages):
            T.copy(X[row * block_M, (first + k) * block_K], X_shared)
            T.copy(Y[column * block_N, (first + k) * block_K], Y_shared)
            T.gemm(X_shared, Y_shared, local, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def store_rows(local, C, C_shared, row, column):
        """A tile whose rows begin at other bytes of a chunk of 16 each: TMA stores whole chunks of
        every `phases`-th row, threads what is in front of these and behind them."""
        views = [T.view(C, (M // phases, (p + 1) * N), strides=(phases * N, 1)) for p in range(phases)]
        for part in T.unroll(parts, explicit=True):
            left = part * width
            T.tma_store_wait(0)
            T.sync_threads()
            for i, j in T.Parallel(block_M, width):
                if j >= lead(i) and j < lead(i) + width - chunk:
                    C_shared[i % phases, i // phases, j - lead(i)] = local[i, left + j]
            for phase in T.unroll(phases, explicit=True):
                T.tma_copy(
                    C_shared[phase, :, :],
                    views[phase][row * block_M // phases, phase * N + lead(phase) + column * block_N + left],
                )
            for i, j in T.Parallel(block_M, chunk):
                if j < lead(i):
                    C[row * block_M + i, column * block_N + left + j] = local[i, left + j]
            for i, j in T.Parallel(block_M, chunk):
                if j >= lead(i):
                    C[row * block_M + i, column * block_N + left + j + width - chunk] = local[i, left + j + width - chunk]
        if M % phases and row == tile_rows - 1:
            for i, j in T.Parallel(block_M, block_N):
                if row * block_M + i >= M // phases * phases:
                    C[row * block_M + i, column * block_N + j] = local[i, j]

    @T.macro
    def store(local, C, C_shared, row, column):
        if phases > 1:
            store_rows(local, C, C_shared, row, column)
        elif swap:
            for i, j in T.Parallel(block_M, block_N):
                C_shared[0][j, i] = local[i, j]
            T.copy(C_shared[0], C[column * block_N, row * block_M])
        else:
            for part in T.unroll(parts, explicit=True):
                T.copy(local[:, part * width : (part + 1) * width], C_shared[part % results])
                T.copy(C_shared[part % results], C[row * block_M, column * block_N + part * width])

    @T.macro
    def leave(local, partial, share_of_tile, row, column):
        """A share, for the second kernel."""
        for i, j in T.Parallel(block_M, block_N):
            above, left = row * block_M + i, column * block_N + j
            if swap:
                partial[share_of_tile, left, above] = local[i, j]
            else:
                partial[share_of_tile, above, left] = local[i, j]

    @T.macro
    def add_up(local, partial, arrivals, arrived, unit, tile, rank):
        """Pass a share on; whether all of the tile's are there, and then `local` is their sum."""
        first, last = tile * steps // share, (tile * steps + steps - 1) // share
        mine = tile * cluster + rank
        # From one share to the next, and from one tile to the next, it is another place.
        T.copy(local, partial[unit * cluster + mine, :, :])
        T.sync_threads()
        if T.get_thread_binding() == 0:
            arrived[0] = T.atomic_add(arrivals[mine], 1, memory_order="acq_rel", return_prev=True)
        is_last = T.alloc_var(T.bool)
        is_last = arrived[0] == last - first
        if is_last:
            if split == 2:  # the sum of two does not depend on their order
                other = (first + last - unit) * cluster + mine
                for i, j in T.Parallel(block_M, block_N):
                    local[i, j] += partial[other, i, j]
            else:
                T.clear(local)
                for s in T.serial(first, last + 1):
                    for i, j in T.Parallel(block_M, block_N):
                        local[i, j] += partial[s * cluster + mine, i, j]
            if T.get_thread_binding() == 0:
                arrivals[mine] = 0
        return is_last

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        counter: T.Tensor((1,), T.int32),
        arrivals: T.Tensor((max(shared_tiles * cluster, 1),), T.int32),
    ):
        C = T.empty((M, N), out_dtype)
        if by_threads:
            multiply_rows(A, B, C, by_threads // 8)
            return C
        if apart:
            below, beside = tile_rows * block_M, tile_columns * cluster * block_N
            if swap:
                below, beside = beside, below
            partial = T.alloc_global((split, whole(below), whole(beside)), T.float32)
        elif shares:
            places = (shares + shared_tiles) * cluster
            partial = T.alloc_global((places, block_M, block_N), T.float32)
        if padded:
            A_wide = T.alloc_global((M, aligned(K, dtype, LINE)), dtype)
            B_wide = T.alloc_global((N, aligned(K, dtype, LINE)), dtype)
            copy_rows((A, A_wide), (B, B_wide))
        left, right = (A_wide, B_wide) if padded else (A, B)
        X, Y = (right, left) if swap else (left, right)
        if wide and not apart:
            C_wide = T.alloc_global((M, aligned(N, out_dtype)), out_dtype)
        result = C_wide if wide and not apart else C
        with T.Kernel(blocks, threads=threads, cluster_dims=cluster) as block:
            X_shared = T.alloc_shared((block_M, block_K), dtype)
            Y_shared = T.alloc_shared((block_N, block_K), dtype)
            local = T.alloc_fragment((block_M, block_N), T.float32)
            C_tile = (block_N, block_M) if swap else (block_M, width)
            if phases > 1:
                C_tile = (phases, block_M // phases, width - chunk)
            C_shared = [
                T.alloc_shared(C_tile, out_dtype) for _ in range(min(parts, results) * (not apart))
            ]
            if phases > 1:
                C_shared = C_shared[0]
            arrived = T.alloc_shared((1,), T.int32) if shares and not apart else None
            next_unit = counter if fetch else None
            clusters, rank = blocks // cluster, block % cluster
            for unit in T.Persistent(
                [units], clusters, block // cluster if cluster > 1 else block, counter=next_unit
            ):
                if shared_tiles in (0, tiles) and steps % share == 0:
                    tile = unit * share // steps
                    row, column = place(tile, rank)
                    first = unit * share % steps
                    multiply(X, Y, X_shared, Y_shared, local, row, column, first, share)
                    if apart:
                        leave(local, partial, unit % split, row, column)
                    elif not shares or add_up(local, partial, arrivals, arrived, unit, tile, rank):
                        store(local, result, C_shared, row, column)
                else:
                    begin = T.if_then_else(
                        unit < shares, unit * share, (unit - shares + shared_tiles) * steps
                    )
                    end = T.if_then_else(
                        unit < shares, T.min(begin + share, shared_tiles * steps), begin + steps
                    )
                    for tile in T.serial(begin // steps, T.ceildiv(end, steps)):
                        row, column = place(tile, rank)
                        first = T.max(begin - tile * steps, 0)
                        count = T.min(end - tile * steps, steps) - first
                        multiply(X, Y, X_shared, Y_shared, local, row, column, first, count)
                        complete = T.alloc_var(T.bool, init=True)
                        if count < steps:
                            complete = add_up(local, partial, arrivals, arrived, unit, tile, rank)
                        if complete:
                            store(local, result, C_shared, row, column)
            if phases > 1:
                T.tma_store_wait(0)
        if apart:
            add_shares(partial, C)
        elif wide:
            copy_rows((C_wide, C))
        return C

    return main


def steps_of(K, block_K, sharers, split, shared_tiles):
    """Steps of a share, and of a tile: with `split` those of its shares, of which the last may be
    behind the end of K."""
    steps = -(-K // block_K)
    if split > 1:
        share = -(-steps // split)
        return share, share * split
    return -(-shared_tiles * steps // sharers) if shared_tiles else steps, steps


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
