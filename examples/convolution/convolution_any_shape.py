"""A 2-D convolution of any shape, float16: a cost model chooses tiles, and how blocks share them.

It is a product of windows and weights. A step along K has channels of one tap of the window, or of
a few: behind the last channel TMA writes zeros, so that any number of channels, in rows of whole 16
bytes, is loaded by it. Other images, and weights, are copied first, and so are images whose rows
end in half a sector of L2, if taps load each pixel often. Blocks that share a tile leave their sums
in a workspace, which a second kernel adds up.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import functools
import itertools
import math
from collections import Counter

import torch
from convolution import Problem, inputs, outputs, relative_error

import tilelang
import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch
from tilelang.carver.arch.cuda import L2_BYTES_PER_CLOCK, L2_PORT_BYTES_PER_CLOCK
from tilelang.carver.cost import (
    BANDWIDTH_SHARE,
    LATENCY_CLOCKS,
    Product,
    Tiling,
    blocks_per_sm,
    math_clocks,
    powered,
    step_clocks,
    together,
)
from tilelang.carver.schedules import BESIDE_ACCUMULATORS
from tilelang.layout import make_half_bank_swizzled_layout, make_quarter_bank_swizzled_layout
from tilelang.macros import copy_rows

EIGHT = 8
"""Elements of 16 bytes, of which TMA wants rows of a tensor to be multiples."""
SECTORS = 32
"""Elements of 64 bytes, two sectors, which L2 reads at once. Rows that are copied become multiples:
with 3 x 3 taps of 36 x 219 x 123 x 17 on an H200 rows of 24 took 211 us, rows of 32 took 119."""
LOADED = 3
"""Times that taps load a pixel, in a row of the window, from which on a copy of rows that end in
half a sector pays: of 24, 40 and 72 channels they took 188, 283 and 466 us, with the copy 132, 222
and 332."""
ROWS = ((64, 128), (128, 256), (192, 384), (256, 256))
"""Of a tile, with the threads that multiply: a warp group for 64 rows each, or 128."""
COLUMNS = (16, 32, 64, 96, 128, 160, 192, 224, 256)
CHANNELS = (16, 32, 48, 64, 96, 128)
GROUPS = (1, 2, 4)
"""Tiles of taps that a step has."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STAGES = 8
STEP_BYTES = 65536
"""Of the operands of a step, at most."""
MIN_STEPS = 4
"""Of a share."""
BARRIER_BYTES = 1024
"""For mbarriers. Assumed."""
SHARED_REGISTERS = 80
"""Of a thread at the launch, without which a multiprocessor has no room for another block."""
ROW_CLOCKS = 2.0
"""Of TMA for a row of a box, at most 128 bytes: of drawn convolutions with rows of 32 bytes on an
H200."""
LAUNCH_CLOCKS = 6000
"""Between kernels of a call, and of the first loads of the second one. Assumed."""
COPIED = 0.6
"""Of the bandwidth, that a copy reaches of which one side has rows of any length: 0.5 of 40 MB,
0.75 of 84 MB on an H200."""


def eights(extent):
    """The least multiple of 16 bytes."""
    return -(-extent // EIGHT) * EIGHT


def wide_row(channels, kernel, stride):
    """Elements of a row of pixels as TMA loads it."""
    copied = channels % EIGHT or (channels % (2 * EIGHT) and kernel >= LOADED * stride)
    return -(-channels // SECTORS) * SECTORS if copied else channels


@T.macro
def add_up(partial, total):
    """`total` of all shares."""
    split, M, N = (int(extent) for extent in partial.shape)
    with T.Kernel(T.ceildiv(M * N, 2048), threads=256) as block:
        terms, results = T.view(partial, (split, M * N)), T.view(total, (M * N,))
        local = T.alloc_fragment((2048,), T.float32)
        T.clear(local)
        if auto_infer_current_arch().has_dependent_launches:
            T.pdl_sync()
        for s in T.serial(split):
            for i in T.Parallel(2048):
                if block * 2048 + i < M * N:
                    local[i] += terms[s, block * 2048 + i]
        T.copy(local, results[block * 2048])


@T.macro
def place(tile, tile_rows, tile_columns, tall):
    """Row and column of a tile, of panels of `tall` rows of tiles."""
    if tile_columns == 1:
        return tile, 0
    above = tile // (tall * tile_columns) * tall
    tiles = T.min(tall, tile_rows - above) if tile_rows % tall else tall
    inside = tile % (tall * tile_columns)
    return above + inside % tiles, inside // tiles


@T.macro
def multiply(pixels, weights, tiles, local, row, column, first, count, group, steps_apart, stages):
    """The product of `count` steps from `first` on, of which each has `group` parts of a tap's
    channels. `steps_apart`: stride, dilation and pad.

    A part of the channels comes with all of its taps, which read most of its pixels again: few
    steps later these are in L2, and behind all channels of a tap they no longer are.
    """
    (window, weight_shared), (kernel, _, channels, filters) = tiles, map(int, weights.shape)
    (block_M, width), block_N = window.shape, weight_shared.shape[1]
    (stride, dilation, pad), block_K = steps_apart, int(width) // group
    per_tap = -(-channels // block_K)
    is_product = kernel == stride == 1 and pad == 0
    if is_product:
        pixel_rows = T.view(pixels, (math.prod(map(int, pixels.shape[:3])), pixels.shape[3]))
    count_taps = kernel * kernel
    taps = T.view(weights, (count_taps, channels, filters))
    T.clear(local)
    for k in T.Pipelined(count, num_stages=stages):
        for g in T.unroll(group, explicit=True):
            at = (first + k) * group + g
            # Behind the last part there are zeros, as behind the last tap.
            part = at // count_taps % per_tap
            tap = at % count_taps + at // (count_taps * per_tap) * count_taps
            begin, end = g * block_K, (g + 1) * block_K
            tile = window[:, begin:end]
            if is_product:
                T.copy(pixel_rows[row * block_M, at * block_K], tile)
            else:
                place = row, tap * per_tap + part
                T.im2col(pixels, tile, *place, kernel, stride, dilation, pad, whole_taps=True)
            T.copy(taps[tap, part * block_K, column * block_N], weight_shared[begin:end, :])
        T.gemm(window, weight_shared, local, policy=T.GemmWarpPolicy.FullRow)


@T.macro
def store(local, part, result, row, column, parts):
    """A tile, through one buffer while the other one is stored, if there are two."""
    width = part[0].shape[1]
    for p in T.unroll(parts, explicit=True):
        first = p * width
        T.copy(local[:, first : first + width], part[p % 2])
        T.copy(part[p % 2], result[row, column + first])


@tilelang.jit(out_idx=[-1])
def convolution(
    batch,
    height,
    width,
    channels,
    filters,
    kernel,
    stride=1,
    dilation=1,
    pad=0,
    block_M=128,
    block_N=128,
    block_K=64,
    stages=4,
    threads=256,
    blocks=4,
    group=1,
    split=1,
    parts=1,
    panel=8,
):
    """Output (batch, rows, columns, filters) of image (batch, height, width, channels) and weight
    (kernel, kernel, channels, filters).

    A step has `group` times `block_K` channels of a tap. `split`: so many blocks work on each tile.
    `parts`: in which a tile is stored. Tiles are taken down the columns of a `panel` of rows of
    tiles.
    """
    rows, columns = outputs(height, width, kernel, stride, dilation, pad)
    M, N, taps = batch * rows * columns, filters, kernel * kernel
    per_tap = T.ceildiv(channels, block_K)
    share = T.ceildiv(taps * per_tap, group * split)
    tile_rows, tile_columns = T.ceildiv(M, block_M), T.ceildiv(N, block_N)
    tall = min(panel, tile_rows)
    part_columns = block_N // parts
    narrow = (make_quarter_bank_swizzled_layout, make_half_bank_swizzled_layout)[block_K % 32 == 0]
    wide, wide_filters = wide_row(channels, kernel, stride), eights(filters)

    @T.prim_func
    def main(
        image: T.Tensor((batch, height, width, channels), T.float16),
        weight: T.Tensor((kernel, kernel, channels, filters), T.float16),
        output: T.Tensor((batch, rows, columns, filters), T.float16),
    ):
        pixels, weights = image, weight
        if wide != channels:
            pixels = T.alloc_global((batch, height, width, wide), T.float16)
        if wide_filters != filters:
            weights = T.alloc_global((kernel, kernel, channels, wide_filters), T.float16)
        if wide != channels or wide_filters != filters:
            pairs = (image, pixels), (weight, weights)
            copy_rows(*[(x, y) for x, y in pairs if x.shape[3] != y.shape[3]])
        if split > 1:
            partial = T.alloc_global((split, M, N), T.float32)
        with T.Kernel(blocks, threads=threads) as block:
            window = T.alloc_shared((block_M, group * block_K), T.float16)
            weight_shared = T.alloc_shared((group * block_K, block_N), T.float16)
            if block_K % 64:
                # A tap's channels are whole rows of the swizzle.
                T.annotate_layout({window: narrow(window)})
            local = T.alloc_fragment((block_M, block_N), T.float32)
            result = T.view(output, (M, N))
            # Two, so that one is filled while the other one is stored.
            part_tile = block_M, part_columns
            part = [T.alloc_shared(part_tile, T.float16) for _ in range(min(parts, 2))]
            for unit in T.Persistent([tile_rows * tile_columns * split], blocks, block):
                row, column = place(unit // split, tile_rows, tile_columns, tall)
                multiply(
                    *(pixels, weights, (window, weight_shared), local, row, column),
                    *(unit % split * share, share, group, (stride, dilation, pad), stages),
                )
                if split > 1:
                    T.copy(local, partial[unit % split, row * block_M, column * block_N])
                else:
                    store(local, part, result, row * block_M, column * block_N, parts)
        if split > 1:
            add_up(partial, output)

    return main


def copies(arch, problem):
    """Seconds of the copies in front of the product."""
    found = 0.0
    wide_pixel = wide_row(problem.channels, problem.kernel, problem.stride)
    for rows, extent, wide in (
        (problem.pixels, problem.channels, wide_pixel),
        (problem.taps * problem.channels, problem.filters, eights(problem.filters)),
    ):
        if extent != wide:
            moved = 2.0 * rows * (extent + wide)
            found += moved / (COPIED * arch.speeds.bandwidth)
    return found + (LAUNCH_CLOCKS / arch.speeds.clock if found else 0.0)


def span(extent):
    """Elements of a row of a box: the widest swizzle that divides a tile's row."""
    return math.gcd(extent, 64)


def staging(block_M, block_N, room):
    """The fewest parts of a result of which the bytes that wait for their store fit `room`."""
    found = 1, 2 * block_M * block_N
    for parts in (2, 4):
        if found[1] > room and block_N // parts % 64 == 0:
            found = parts, 4 * block_M * block_N // parts
    return found


def tilings(arch, problem):
    """Tiles, steps and stages that fit a multiprocessor `room` times."""
    groups = arch.has_warp_groups
    rows = [(m, t) for m, t in ROWS if m < 2 * max(problem.results, 64)]
    columns = [n for n in COLUMNS if n < 2 * max(problem.filters, 16)]
    depths = [k for k in CHANNELS if k < 2 * max(problem.channels, 16)]
    if not groups:
        # Products of warps, four or eight of which share the rows.
        rows, depths = rows[:2], [64]
        columns = [n for n in columns if n in (16, 32, 64, 128)]
    for (m, threads), n, k, group in itertools.product(rows, columns, depths, GROUPS):
        step_bytes = 2 * (m + n) * k * group
        if group > max(1, problem.taps) or step_bytes > STEP_BYTES:
            continue
        for room in (1, 2, 3):
            registers = arch.reg_cap // ((threads + 128) * room)
            if room > 1 and registers < SHARED_REGISTERS:
                continue
            if n // 2 * max(1, m * 128 // (64 * threads)) + BESIDE_ACCUMULATORS > registers:
                continue
            share = arch.smem_cap // room - BARRIER_BYTES * room
            parts, waiting = staging(m, n, share // 6)
            stages = min(STAGES, (share - waiting) // step_bytes)
            if stages >= 2:
                tiling = Tiling(m, n, k * group, stages, threads, 8, groups)
                yield tiling, group, parts, room


def seconds_of(arch, problem, tiling, group, room, split):
    """What a configuration may take: infinite where it does not fit."""
    speeds = arch.speeds
    per_tap = math.ceil(problem.channels / (tiling.k // group))
    steps = math.ceil(problem.taps * per_tap / (group * split))
    M, N = problem.results, problem.filters
    product = Product(M, N, steps * tiling.k, "float16", 2, 4 if split > 1 else 2)
    tiles = math.ceil(M / tiling.m) * math.ceil(N / tiling.n) * split
    if blocks_per_sm(arch, product, tiling) < room or (split > 1 and steps < MIN_STEPS):
        return math.inf
    beside = min(room, math.ceil(tiles / speeds.sms))
    k = tiling.k // group
    loaded = tiling.m * tiling.k / span(k) + tiling.k * tiling.n / span(tiling.n)
    way = float(L2_PORT_BYTES_PER_CLOCK)
    if tiles == math.ceil(M / tiling.m) * split:
        # No two blocks want the same pixels: of such convolutions on an H200, multiprocessors
        # received 34 to 40 bytes a clock.
        way = min(way, L2_BYTES_PER_CLOCK / min(tiles, speeds.sms))
    step = together(step_clocks(arch, product, tiling, beside, way), ROW_CLOCKS * loaded)
    stored = tiling.m * tiling.n * product.result
    edge = LATENCY_CLOCKS + stored / L2_PORT_BYTES_PER_CLOCK
    tile = max(steps * step, (steps * step + edge) / beside)
    multiplying = math_clocks(arch, product, tiling)
    whole, rest = divmod(tiles, speeds.sms)
    clocks = whole * powered(arch, tile, multiplying)
    if rest:
        clocks += powered(arch, tile, multiplying * rest / speeds.sms)
    clocks += edge
    step_bytes = 2 * (tiling.m + tiling.n) * tiling.k
    flight = min(tiles, speeds.sms) * beside * min(tiling.stages, steps) * step_bytes
    reached = min(BANDWIDTH_SHARE * speeds.bandwidth, flight / (LATENCY_CLOCKS / speeds.clock))
    moved = 2.0 * (problem.pixels * problem.channels + problem.taps * problem.channels * N + M * N)
    seconds = together(clocks / speeds.clock, moved / reached + LATENCY_CLOCKS / speeds.clock)
    if split > 1:
        summed = (8.0 * split + 2.0) * M * N / (BANDWIDTH_SHARE * speeds.bandwidth)
        seconds += summed + LAUNCH_CLOCKS / speeds.clock
    return seconds + copies(arch, problem)


@functools.lru_cache(maxsize=256)
def _ranked(arch, problem):
    found, tiles_of = [], Counter()
    for tiling, group, parts, room in tilings(arch, problem):
        tiles = math.ceil(problem.results / tiling.m) * math.ceil(problem.filters / tiling.n)
        for split in SPLITS:
            if split > 1 and tiles * split > 2 * arch.speeds.sms * room:
                break
            seconds = seconds_of(arch, problem, tiling, group, room, split)
            if seconds == math.inf:
                continue
            config = {
                "block_M": tiling.m,
                "block_N": tiling.n,
                "block_K": tiling.k // group,
                "stages": tiling.stages,
                "threads": tiling.threads,
                "blocks": min(tiles * split, arch.speeds.sms * room),
                "group": group,
                "split": split,
                "parts": parts if split == 1 else 1,
            }
            found.append((seconds, len(found), config))
    ranked = []
    for *_, config in sorted(found, key=lambda entry: entry[:2]):
        names = "block_M", "block_N", "threads", "blocks", "split"
        tile = *(config[name] for name in names), span(config["block_K"])
        # Different tiles come first, each with the steps that suit it best.
        ranked.append((tiles_of[tile], len(ranked), config))
        tiles_of[tile] += 1
    return [config for *_, config in sorted(ranked, key=lambda entry: entry[:2])]


def configurations(problem, arch=None):
    """Parameters of `convolution`, the fastest first, as the cost model sees it; `arch` is by
    default the chip that is compiled for."""
    return _ranked(arch or auto_infer_current_arch(), problem)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    images = [[16, 64, 64, 272], [8, 32, 32, 1824]] if gpu else [[2, 7, 6, 40], [1, 5, 6, 17]]
    parser.add_argument("--image", type=int, nargs=4, action="append")
    for image in parser.parse_args().image or images:
        for kernel, stride, pad, filters in [(3, 1, 1, 48), (5, 2, 2, 22), (1, 1, 0, 64)]:
            batch, height, width, channels = image
            problem = Problem(batch, height, width, channels, filters, kernel, stride, 1, pad)
            config = configurations(problem)[0]
            x, weight = inputs(problem, "cuda" if gpu else "cpu")
            found = convolution(**vars(problem), **config)(x, weight)
            error = relative_error(problem, x, weight, found)
            assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
            print(f"{problem}: {config}: relative error {error:.1e}")
