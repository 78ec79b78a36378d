"""A 2-D convolution of stride 1 and few filters, float16: a tile of pixels is loaded once, with its
halo, for all taps.

With few filters the loads of pixels bind, and a product of windows and weights loads each pixel for
each tap. Here a block keeps all weights. A tap's part of the tile begins at another pixel, so it
goes to registers, which the first operand of a product may be in, while the product of the tap
before is made. Behind the edges of the image TMA writes zeros.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools
import math

import torch
from convolution import Problem, inputs, outputs, relative_error

import tilelang
import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch
from tilelang.carver.arch.cuda import (
    L2_BYTES_PER_CLOCK,
    L2_PORT_BYTES_PER_CLOCK,
    SHARED_BYTES_PER_CLOCK,
)
from tilelang.carver.cost import LATENCY_CLOCKS, together
from tilelang.layout import make_swizzled_layout

MOST_FILTERS = 64
"""With more, tensor cores take longer than the loads of pixels."""
TILES = ((4, 32), (8, 16), (4, 64), (8, 32))
"""Rows and columns of results."""
CHANNELS = (16, 32, 64)
"""Of a step."""
STAGES = 4
EIGHT = 8
"""Rows of a swizzle, of which a row of the tile of pixels has whole ones."""
TAP_CLOCKS = 60
"""Between the products of two taps. Assumed."""
BARRIER_BYTES = 1024
"""For mbarriers. Assumed."""


@T.macro
def multiply_taps(box, weights, part, operands, local, width, kernel, dilation):
    """All taps of a step's channels; two operands, so that one is filled beside a product."""
    for t in T.unroll(kernel * kernel, explicit=True):
        pixels = operands[t % 2]
        down, right = t // kernel * dilation, t % kernel * dilation
        for i, c in T.Parallel(*pixels.shape):
            pixels[i, c] = box[i // width + down, i % width + right, c]
        T.gemm(pixels, weights[part, t, :, :], local, policy=T.GemmWarpPolicy.FullRow)


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
    tile=(4, 32),
    block_K=32,
    stages=2,
    threads=256,
    blocks=4,
    beside=1,
):
    """Output (batch, rows, columns, filters) of image (batch, height, width, channels) and weight
    (kernel, kernel, channels, filters); channels and filters are multiples of 8.

    `tile`: rows and columns of results of a block, `beside` of which a multiprocessor has.
    """
    rows, columns = outputs(height, width, kernel, stride, dilation, pad)
    (tall, wide), taps = tile, kernel * kernel
    reach = (kernel - 1) * dilation
    box_tile = tall + reach, -(-(wide + reach) // EIGHT) * EIGHT, block_K
    down, across, parts = -(-rows // tall), -(-columns // wide), -(-channels // block_K)
    if stride != 1:
        raise ValueError(f"stride is {stride}, wanted 1")
    if pad and min(down, across) == 1:
        # A negative constant counts from the end, as in Python.
        raise ValueError(
            f"found tiles of {tile} as high or wide as the result, wanted smaller ones"
        )
    block_N = -(-filters // 16) * 16

    @T.prim_func
    def main(
        image: T.Tensor((batch, height, width, channels), T.float16),
        weight: T.Tensor((kernel, kernel, channels, filters), T.float16),
        output: T.Tensor((batch, rows, columns, filters), T.float16),
    ):
        with T.Kernel(blocks, threads=threads) as block:
            T.annotate_min_blocks_per_sm(beside)
            box = T.alloc_shared(box_tile, T.float16)
            weights = T.alloc_shared((parts, taps, block_K, block_N), T.float16)
            operands = [T.alloc_fragment((tall * wide, block_K), T.float16) for _ in range(2)]
            local = T.alloc_fragment((tall * wide, block_N), T.float32)
            T.annotate_layout({box: make_swizzled_layout(box)})
            by_tap = T.view(weight, (taps, channels, filters))
            for p in T.unroll(parts, explicit=True):
                first = p * block_K
                T.copy(by_tap[0:taps, first : first + block_K, 0:block_N], weights[p, :, :, :])
            for unit in T.Persistent([batch * down * across], blocks, block):
                n = unit // (down * across)
                y, x = unit // across % down * tall, unit % across * wide
                T.clear(local)
                for p in T.Pipelined(parts, num_stages=stages):
                    top, left, first = y - pad, x - pad, p * block_K
                    here = image[
                        n,
                        top : top + box_tile[0],
                        left : left + box_tile[1],
                        first : first + block_K,
                    ]
                    T.copy(here, box)
                    multiply_taps(box, weights, p, operands, local, wide, kernel, dilation)
                for i, f in T.Parallel(tall * wide, block_N):
                    row, column = y + i // wide, x + i % wide
                    if row < rows and column < columns and f < filters:
                        output[n, row, column, f] = local[i, f]

    return main


def configurations(problem, arch=None):
    """Parameters of `convolution`, the fastest first, as a model sees it; none where weights do not
    fit a block, or this is not the kernel for a problem."""
    arch, p = arch or auto_infer_current_arch(), problem
    suits = p.stride == 1 and p.kernel > 1 and p.filters <= MOST_FILTERS and arch.has_warp_groups
    if not suits or p.channels % EIGHT or p.filters % EIGHT:
        return []
    rows, columns = outputs(p.height, p.width, p.kernel, p.stride, p.dilation, p.pad)
    reach, block_N = (p.kernel - 1) * p.dilation, -(-p.filters // 16) * 16
    found = []
    for (tall, wide), block_K, beside in itertools.product(TILES, CHANNELS, (2, 1)):
        steps, M = -(-p.channels // block_K), tall * wide
        pixels = (tall + reach) * -(-(wide + reach) // EIGHT) * EIGHT
        kept = 2 * p.taps * steps * block_K * block_N
        room = arch.smem_cap // beside - BARRIER_BYTES - kept
        stages = min(STAGES, room // (2 * pixels * block_K))
        # A dimension of a box has 256 elements at most; two blocks have 80 registers a thread.
        edges = -(-rows // tall) == 1 or -(-columns // wide) == 1
        if (
            stages < 2
            or (p.pad and edges)
            or p.taps > 256
            or (beside > 1 and M * (block_N + block_K) > 8192)
        ):
            continue
        tiles = p.batch * -(-rows // tall) * -(-columns // wide)
        blocks = min(tiles, beside * arch.speeds.sms)
        shared = p.taps * steps * block_K * (2 * M + 2 * block_N * M // 64)
        way = min(L2_PORT_BYTES_PER_CLOCK, L2_BYTES_PER_CLOCK / arch.speeds.sms)
        loaded = 2 * pixels * block_K * steps / way
        edge = 2 * LATENCY_CLOCKS / beside + 2 * M * block_N / way
        # Another block, or nobody, works while products of a tap begin and end.
        starts = p.taps * steps * TAP_CLOCKS / beside
        of_tile = together(shared / SHARED_BYTES_PER_CLOCK, loaded) + starts + edge
        rounds = math.ceil(tiles / blocks) * max(1.0, blocks / arch.speeds.sms)
        config = {
            "tile": (tall, wide),
            "block_K": block_K,
            "stages": int(stages),
            "blocks": blocks,
            "beside": beside,
        }
        found.append((rounds * of_tile, len(found), config))
    return [config for *_, config in sorted(found, key=lambda entry: entry[:2])]


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    images = [[94, 14, 190, 80], [8, 92, 55, 64]] if gpu else [[2, 9, 37, 40]]
    parser.add_argument("--image", type=int, nargs=4, action="append")
    for image in parser.parse_args().image or images:
        for kernel, dilation, pad, filters in [(3, 1, 1, 48), (3, 2, 0, 24), (5, 1, 2, 32)]:
            problem = Problem(*image, filters, kernel, 1, dilation, pad)
            config = (configurations(problem) or [{}])[0]
            x, weight = inputs(problem, "cuda" if gpu else "cpu")
            found = convolution(**vars(problem), **config)(x, weight)
            error = relative_error(problem, x, weight, found)
            assert error < 1e-3, f"relative error {error:.1e}, wanted under 1e-3"
            print(f"{problem}: {config}: relative error {error:.1e}")
