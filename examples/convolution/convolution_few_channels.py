"""A 2-D convolution of an image of few channels, such as three, float16: each thread gathers a
window.

A window has so few elements that shared memory holds a tile of whole windows, the rows of the
matrix that is multiplied. A thread finds the place of its window once, and threads beside each
other read neighbouring pixels. TMA loads no such rows: it takes 16 bytes at least. A block loads
and multiplies one tile of filters after the other. Several blocks share a multiprocessor: while one
gathers, others store results, of which there are more bytes than of anything else.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import functools
import itertools
import math

import torch
from convolution import Problem, inputs, outputs, relative_error

import tilelang
import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch
from tilelang.carver.cost import BANDWIDTH_SHARE, together

PART = 32
"""Elements of a window that a thread has in registers at a time, and of a swizzled row of 64
bytes."""
ROWS = (128, 256)
COLUMNS = (16, 32, 64, 128)
BESIDE_ACCUMULATORS = 32
"""Registers of a thread: 90 to 96 with 64 columns, 154 to 168 with 128."""
START_CLOCKS, PART_CLOCKS = 300, 800
"""Of a block, besides its tiles, and for each part of a window. These and the next ones are of 24
configurations of four images of three channels on an H200."""
TILE_CLOCKS, COLUMN_CLOCKS, TILE_BYTES_PER_CLOCK = 1400, 7, 30
"""From a tile's product to that of the next tile in the same block, for each column, and for what
TMA stores: of a block alone, 31 tiles of 128 x 64 take 45 us, 31 of 256 x 64 52, 16 of 128 x 128
31."""
LINE = 128
"""Bytes of L2: a shorter row of a tile takes as long to store."""
ISSUED_PER_CLOCK = 1.8
"""Instructions of all warps of a multiprocessor."""
PART_INSTRUCTIONS, TILE_INSTRUCTIONS, COLUMN_INSTRUCTIONS = 400, 50, 1.6
"""Of a thread, to gather a part of its window, and for a tile and its columns: counted in the
SASS."""
ELEMENT_INSTRUCTIONS = 5
"""Of a thread for each element of weights and results whose rows are no whole 16 bytes. Assumed."""


@T.macro
def gather(image, window, first, kernel, stride, dilation, pad):
    """Rows of windows, from the window of number `first` on: columns are channels of pixels of a
    window, and zeros."""
    batch, height, width, channels = map(int, image.shape)
    rows, columns = outputs(height, width, kernel, stride, dilation, pad)
    count, block_K = (int(extent) for extent in window.shape)
    for p in T.unroll(block_K // PART, explicit=True):
        words = T.alloc_fragment((count, PART), image.dtype)
        place = tilelang.layout.Fragment((count, PART), lambda i, j: (i, j))
        for i, j in T.Parallel(count, PART, loop_layout=place):
            at = first + i
            tap, channel = (p * PART + j) // channels, (p * PART + j) % channels
            y = at // columns % rows * stride + tap // kernel * dilation - pad
            x = at % columns * stride + tap % kernel * dilation - pad
            inside = (tap < kernel * kernel) & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            words[i, j] = T.if_then_else(
                inside & (at < batch * rows * columns),
                image[at // (rows * columns), y, x, channel],
                T.cast(0, image.dtype),
            )
        T.copy(words, window[:, p * PART : (p + 1) * PART])


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
    columns=1,
):
    """Output (batch, rows, columns, filters) of image (batch, height, width, channels) and weight
    (kernel, kernel, channels, filters). A block has `columns` tiles beside each other."""
    height_out, width_out = outputs(height, width, kernel, stride, dilation, pad)
    M, N, K = batch * height_out * width_out, filters, kernel * kernel * channels
    block_K = T.ceildiv(K, PART) * PART
    groups = T.ceildiv(T.ceildiv(N, block_N), columns)
    # Weights of the next tile are loaded beside this one, where their rows are whole 16 bytes.
    ahead = N % 8 == 0
    load = T.async_copy if ahead else T.copy

    @T.prim_func
    def main(
        image: T.Tensor((batch, height, width, channels), T.float16),
        weight: T.Tensor((kernel, kernel, channels, filters), T.float16),
        output: T.Tensor((batch, height_out, width_out, filters), T.float16),
    ):
        with T.Kernel(groups, T.ceildiv(M, block_M), threads=block_M) as (bx, by):
            window = T.alloc_shared((block_M, block_K), T.float16)
            weight_shared = T.alloc_shared((block_K, block_N), T.float16)
            local = T.alloc_fragment((block_M, block_N), T.float32)
            tile = T.alloc_shared((block_M, block_N), T.float16)
            weights, result = T.view(weight, (K, N)), T.view(output, (M, N))
            first = bx * columns
            load(weights[0, first * block_N], weight_shared)
            gather(image, window, by * block_M, kernel, stride, dilation, pad)
            for c in T.serial(columns):
                column = (first + c) * block_N
                if ahead:
                    T.ptx_wait_group(0)
                T.gemm(window, weight_shared, local, clear_accum=True)
                if c + 1 < columns:
                    load(weights[0, column + block_N], weight_shared)
                T.copy(local, tile)
                T.copy(tile, result[by * block_M, column])

    return main


def seconds_of(arch, problem, block_M, block_N, columns):
    """What a configuration may take: infinite where it does not fit."""
    speeds = arch.speeds
    M, N, K = problem.results, problem.filters, problem.taps * problem.channels
    parts = math.ceil(K / PART)
    elements = block_M * parts * PART + parts * PART * block_N + block_M * block_N
    room = arch.blocks_per_sm(block_M, 2 * elements, block_N + BESIDE_ACCUMULATORS)
    if not room:
        return math.inf
    blocks = math.ceil(M / block_M) * math.ceil(math.ceil(N / block_N) / columns)
    own = math.ceil(blocks / speeds.sms)
    instructions = TILE_INSTRUCTIONS + COLUMN_INSTRUCTIONS * block_N
    if N % 8:
        moved = block_N * (1 + parts * PART / block_M)
        instructions += ELEMENT_INSTRUCTIONS * moved
    instructions = PART_INSTRUCTIONS * parts + columns * instructions
    issued = instructions * block_M / arch.warp_size / ISSUED_PER_CLOCK
    bandwidth = BANDWIDTH_SHARE * speeds.bandwidth / speeds.clock / speeds.sms
    stored = columns * block_M * max(LINE, 2 * block_N) / bandwidth
    tile = TILE_CLOCKS + COLUMN_CLOCKS * block_N + 2 * block_M * block_N / TILE_BYTES_PER_CLOCK
    chain = START_CLOCKS + PART_CLOCKS * parts + columns * tile
    # What blocks beside each other wait for, and what all of them do, is hidden in part.
    work = together(issued, stored)
    rounds, rest = divmod(own, room)
    clocks = rounds * math.hypot(chain, room * work)
    if rest:
        clocks += math.hypot(chain, rest * work)
    moved = 2.0 * (problem.pixels * problem.channels + K * N + M * N)
    return together(clocks / speeds.clock, moved / (BANDWIDTH_SHARE * speeds.bandwidth))


@functools.lru_cache(maxsize=256)
def _ranked(arch, problem):
    found = []
    for block_M, block_N in itertools.product(ROWS, COLUMNS):
        tiles = math.ceil(problem.filters / block_N)
        for columns in sorted({math.ceil(tiles / groups) for groups in range(1, tiles + 1)}):
            seconds = seconds_of(arch, problem, block_M, block_N, columns)
            config = {"block_M": block_M, "block_N": block_N, "columns": columns}
            if seconds < math.inf:
                found.append((seconds, len(found), config))
    return [config for *_, config in sorted(found, key=lambda entry: entry[:2])]


def configurations(problem, arch=None):
    """Parameters of `convolution`, the fastest first, as the cost model sees it; `arch` is by
    default the chip that is compiled for."""
    return _ranked(arch or auto_infer_current_arch(), problem)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    images = [[16, 64, 64, 3]] if gpu else [[2, 7, 6, 3], [1, 9, 8, 1]]
    parser.add_argument("--image", type=int, nargs=4, action="append")
    for image in parser.parse_args().image or images:
        for kernel, stride, pad, filters in [(3, 1, 1, 48), (5, 2, 2, 22), (1, 1, 0, 64)]:
            batch, height, width, channels = image
            problem = Problem(batch, height, width, channels, filters, kernel, stride, 1, pad)
            x, weight = inputs(problem, "cuda" if gpu else "cpu")
            config = configurations(problem)[0]
            found = convolution(**vars(problem), **config)(x, weight)
            error = relative_error(problem, x, weight, found)
            assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
            print(f"{problem}: {config}: relative error {error:.1e}")
