"""A 2-D convolution of any shape, float16: a cost model chooses tiles, and how blocks share them.

It is a product of windows and weights. A step along K has channels of one tap of the window, or of
a few: behind the last channel TMA writes zeros, so that any number of channels, in rows of whole 16
bytes, is loaded by it. Other images, and weights, are copied first. Blocks that share a tile leave
their sums in a workspace, which a second kernel adds up.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import functools
import itertools
import math
from dataclasses import dataclass, replace

import torch

import tilelang
import tilelang.language as T
from tilelang.carver.arch.cuda import L2_PORT_BYTES_PER_CLOCK, auto_infer_current_arch
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

EIGHT = 8
"""Elements of 16 bytes, of which TMA wants rows of a tensor to be multiples."""
ROWS = ((64, 128), (128, 256), (192, 384), (256, 256))
"""Of a tile, with the threads that multiply: a warp group for 64 rows each, or 128."""
COLUMNS = (16, 32, 64, 96, 128, 160, 192, 224, 256)
CHANNELS = (16, 32, 48, 64, 96, 128)
GROUPS = (1, 2, 4)
"""Tiles of taps that a step has."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STAGES = 8
STEP_BYTES = (8192, 65536)
"""Of the operands of a step: less is all barriers, of more there are few."""
MIN_STEPS = 4
"""Of a share."""
BARRIER_BYTES = 1024
"""For mbarriers. Assumed."""
ROW_CLOCKS = 1.5
"""Of TMA for a row of a box, at most 128 bytes. Assumed."""
LAUNCH_CLOCKS = 6000
"""Between kernels of a call, and of the first loads of the second one. Assumed."""
COPIED = 0.5
"""Of the bandwidth, that a copy reaches of which one side has rows of any length. Assumed."""


def outputs(height, width, kernel, stride, dilation, pad):
    """Rows and columns of the result."""
    window = dilation * (kernel - 1) + 1
    return [(extent + 2 * pad - window) // stride + 1 for extent in (height, width)]


def eights(extent):
    """The least multiple of 16 bytes."""
    return -(-extent // EIGHT) * EIGHT


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
    is_product = kernel == stride == 1 and pad == 0
    wide, wide_filters = eights(channels), eights(filters)

    @T.macro
    def widen(tensor, copy):
        """Rows with zeros at their ends."""
        found, wanted = tensor.shape[3], copy.shape[3]
        count = math.prod(tensor.shape[:3])
        with T.Kernel(T.ceildiv(count * wanted, 2048), threads=256) as block:
            source, target = T.view(tensor, (count, found)), T.view(copy, (count, wanted))
            for i, j in T.Parallel(256, EIGHT):
                row = (block * 256 + i) // (wanted // EIGHT)
                column = (block * 256 + i) % (wanted // EIGHT) * EIGHT + j
                if row < count:
                    target[row, column] = T.if_then_else(column < found, source[row, column], 0)

    @T.macro
    def place(tile):
        """Row and column of a tile."""
        above = tile // (tall * tile_columns) * tall
        tiles = T.min(tall, tile_rows - above) if tile_rows % tall else tall
        inside = tile % (tall * tile_columns)
        return above + inside % tiles, inside // tiles

    @T.macro
    def multiply(pixels, weights, window, weight_shared, local, row, column, first):
        """The product of a share of the steps."""
        pixel_rows = T.view(pixels, (batch * height * width, wide))
        taps_of = T.view(weights, (taps, channels, wide_filters))
        T.clear(local)
        for k in T.Pipelined(share, num_stages=stages):
            for g in T.unroll(group, explicit=True):
                at = (first + k) * group + g
                if is_product:
                    T.copy(pixel_rows[row * block_M, at * block_K], window[g])
                else:
                    T.im2col(
                        pixels, window[g], row, at, kernel, stride, dilation, pad, whole_taps=True
                    )
                channel = at % per_tap * block_K
                T.copy(taps_of[at // per_tap, channel, column * block_N], weight_shared[g])
            for g in T.unroll(group, explicit=True):
                T.gemm(window[g], weight_shared[g], local, policy=T.GemmWarpPolicy.FullRow)

    @T.macro
    def add_up(partial, total):
        """The sum of all shares."""
        with T.Kernel(T.ceildiv(M * N, 2048), threads=256) as block:
            terms, results = T.view(partial, (split, M * N)), T.view(total, (M * N,))
            local = T.alloc_fragment((2048,), T.float32)
            T.clear(local)
            for s in T.serial(split):
                for i in T.Parallel(2048):
                    if block * 2048 + i < M * N:
                        local[i] += terms[s, block * 2048 + i]
            T.copy(local, results[block * 2048])

    @T.prim_func
    def main(
        image: T.Tensor((batch, height, width, channels), T.float16),
        weight: T.Tensor((kernel, kernel, channels, filters), T.float16),
        output: T.Tensor((batch, rows, columns, filters), T.float16),
    ):
        pixels, weights = image, weight
        if wide != channels:
            pixels = T.alloc_global((batch, height, width, wide), T.float16)
            widen(image, pixels)
        if wide_filters != filters:
            weights = T.alloc_global((kernel, kernel, channels, wide_filters), T.float16)
            widen(weight, weights)
        if split > 1:
            partial = T.alloc_global((split, M, N), T.float32)
        with T.Kernel(blocks, threads=threads) as block:
            window = [T.alloc_shared((block_M, block_K), T.float16) for _ in range(group)]
            weight_shared = [T.alloc_shared((block_K, block_N), T.float16) for _ in range(group)]
            local = T.alloc_fragment((block_M, block_N), T.float32)
            result = T.view(output, (M, N))
            # Two, so that one is filled while the other one is stored.
            part = [T.alloc_shared((block_M, part_columns), T.float16) for _ in range(min(parts, 2))]
            for unit in T.Persistent([tile_rows * tile_columns * split], blocks, block):
                row, column = place(unit // split)
                multiply(
                    pixels, weights, window, weight_shared, local, row, column, unit % split * share
                )
                if split > 1:
                    T.copy(local, partial[unit % split, row * block_M, column * block_N])
                else:
                    for p in T.unroll(parts, explicit=True):
                        first = p * part_columns
                        T.copy(local[:, first : first + part_columns], part[p % 2])
                        T.copy(part[p % 2], result[row * block_M, column * block_N + first])
        if split > 1:
            add_up(partial, output)

    return main
