"""``add_shares``: a kernel that adds up what blocks have made of their shares of K.

Its blocks have a part of the result each, and load all shares of it: the last block of a tile
would read one share behind the other.
"""

from __future__ import annotations

from typing import Any

import tilelang.language as T

ROWS, COLUMNS = 8, 128
"""Rows and columns of the result that a block adds up."""


@T.macro
def add_shares(partial: Any, C: Any) -> None:
    """C = partial[0] + partial[1] + .., added in this order, in float32.

    It waits for the kernel in front of it by itself (``T.pdl_sync``), so that it may be launched
    beside that kernel's end.

    Args:
        partial: (shares, rows, columns) of float32, whose rows are a multiple of 8 and whose
            columns are one of 128; those behind C's are read and left out.
        C: (M, N) of any type. Sizes are constants.
    """
    with T.Kernel(T.ceildiv(C.shape[1], COLUMNS), T.ceildiv(C.shape[0], ROWS), threads=256) as (
        bx,
        by,
    ):
        sums = T.alloc_fragment((ROWS, COLUMNS), T.float32)
        T.clear(sums)
        T.pdl_sync()
        for share in T.unroll(partial.shape[0]):
            for i, j in T.Parallel(ROWS, COLUMNS):
                sums[i, j] += partial[share, by * ROWS + i, bx * COLUMNS + j]
        T.copy(sums, C[by * ROWS, bx * COLUMNS])
