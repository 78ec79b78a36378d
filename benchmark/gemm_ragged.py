"""GEMM of sizes that no tile divides, and of a few rows, beside cuBLAS; float16, B transposed."""

import itertools

from common import main
from gemm import CONFIGS, gemm_row, tile

import tilelang.language as T

RAGGED = (4000, 4104, 4040)
FEW_ROWS = [(m, 4096, 4096) for m in (1, 16, 64)]
# Bound by the reading of B: narrow tiles, of which each processor has one, and a deep pipeline.
NARROW = tile(16, 32, 128, 6, 128)
NARROWS = [
    tile(m, n, k, s, 128)
    for m, n, (k, s) in itertools.product(
        [16, 64], [16, 32, 64], [(64, 6), (128, 4), (128, 6), (256, 3)]
    )
]
WIDE = tile(64, 32, 128, 6, 128)
CONFIG = tile(256, 192, 64, 3, 256, parts=4)


def rows(small):
    """The sizes of the table, or small ones."""
    sizes = [(200, 264, 200)] if small else [RAGGED]
    few = [(m, 72, 520) for m in (1, 16)] if small else FEW_ROWS
    return [
        *(gemm_row(size, T.float16, True, CONFIG, CONFIGS, wanted=0.9) for size in sizes),
        *(
            gemm_row(size, T.float16, True, WIDE if size[0] > 16 else NARROW, NARROWS, wanted=0.9)
            for size in few
        ),
    ]


if __name__ == "__main__":
    main(__doc__, rows)
