"""``add_scaled_products``: a step of a product of 8-bit floats that have scales for blocks.

Scales differ from step to step, so that a step's product is multiplied by them before it is added
to those of the others. A tile may have several parts, whose products are made one after the other:
then all sums, but the product of one part, are in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tilelang.language as T


@T.macro
def add_scaled_products(
    A_shared: Any,
    B_shared: Any,
    sums: Sequence[Any],
    product: Any,
    row: Any,
    scale_A: Any,
    skipped: Any,
    scale_B: Any,
    shared: int,
    policy: T.GemmWarpPolicy,
    skipped_B: Any = 0,
) -> None:
    """Adds to each part of a tile, one of the fragments `sums`, the product of A_shared and the
    part's rows of B_shared, times the scales of both.

    Args:
        A_shared, B_shared: the step's rows of A, and those of B for all parts.
        sums: a fragment of float32 for each part.
        product: a fragment for the product of a part, as large as it.
        row: a fragment for the scales of A's rows, or None where these have one scale.
        scale_A: one for each row of A in shared memory, behind `skipped` others; without `row` the
            one of all rows, in registers.
        scale_B: one for each `shared` rows of B, from B_shared's first one on, in registers or in
            shared memory, behind `skipped_B` others.
        shared: any number; one that divides no part has its scales in several.
        policy: how warps share a part.
    """
    height, width = product.shape
    for n, part in enumerate(sums):
        rows = B_shared[n * width : (n + 1) * width, :]
        T.gemm(A_shared, rows, product, transpose_B=True, clear_accum=True, policy=policy)
        if n == 0 and row is not None:
            # Beside the product, as the fence for these reads is.
            for i in T.Parallel(height):
                row[i] = scale_A[skipped + i]
        across = width if shared == 1 else math.gcd(width, shared)
        for p in T.unroll(width // across):
            for i, j in T.Parallel(height, across):
                column = p * across + j
                first = column if shared == 1 else p * across
                of_A = scale_A[0] if row is None else row[i]
                of_B = scale_B[skipped_B + (n * width + first) // shared]
                part[i, column] += product[i, column] * (of_A * of_B)
