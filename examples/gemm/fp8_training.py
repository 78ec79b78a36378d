"""A linear layer in 8-bit floats, forward and backward (DeepSeek-V3, 2024): a cast makes a tensor and
its transpose, each with scales along the dimension that its products sum over; three products
follow. Check each cast and product against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from gemm_fp8 import scaled_matmul

import tilelang
import tilelang.language as T

GROUP, LARGEST = 128, 448.0


@tilelang.jit
def cast_transpose(rows, columns, square=False, dtype=T.bfloat16, threads=256):
    """X (rows, columns) and its transpose in float8_e4m3fn, and the scales by which they are
    multiplied: one for each 128 elements of a row of either, (rows, columns / 128) and (columns,
    rows / 128), or with `square`, for weights, one for each 128 x 128 elements."""
    tiles = -(-rows // GROUP), -(-columns // GROUP)

    @T.prim_func
    def main(X: T.Tensor((rows, columns), dtype)):
        Y = T.empty((rows, columns), T.float8_e4m3fn)
        Y_transposed = T.empty((columns, rows), T.float8_e4m3fn)
        scales = T.empty((tiles[0] if square else rows, tiles[1]), T.float32)
        scales_transposed = T.empty((tiles[1] if square else columns, tiles[0]), T.float32)
        with T.Kernel(tiles[1], tiles[0], threads=threads) as (bx, by):
            x = T.alloc_fragment((GROUP, GROUP), dtype)
            y = T.alloc_fragment((GROUP, GROUP), T.float8_e4m3fn)
            turned = T.alloc_shared((GROUP, GROUP + 16), T.float8_e4m3fn)
            row_top = T.alloc_fragment((GROUP,), dtype)
            column_top = T.alloc_fragment((GROUP,), dtype)
            top = T.alloc_fragment((1,), dtype)
            T.copy(X[by * GROUP, bx * GROUP], x)
            T.reduce_absmax(x, row_top, dim=1)
            T.reduce_absmax(x, column_top, dim=0)
            if square:
                T.reduce_max(row_top, top, dim=0)
                for i in T.Parallel(GROUP):
                    row_top[i] = top[0]
                for j in T.Parallel(GROUP):
                    column_top[j] = top[0]
            for i in T.Parallel(GROUP):
                # Not zero where the row is.
                row_top[i] = T.max(row_top[i], 1e-4)
                if by * GROUP + i < rows:
                    scales[by * (1 if square else GROUP) + i, bx] = row_top[i] / LARGEST
    return main
