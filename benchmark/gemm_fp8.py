"""GEMM in float8_e4m3, B transposed, beside cuBLAS."""

import dataclasses
import itertools

import torch
from common import main, norm_error
from gemm import gemm_row, tile

import tilelang.language as T

SIZES = [(4096, 4096, 4096), (8192, 8192, 8192)]
CONFIG = tile(128, 256, 128, 4, 256, parts=4)
CONFIGS = [
    tile(*shape, group=group)
    for shape, group in itertools.product(
        [
            (128, 256, 128, 4, 256, 4),
            (256, 192, 128, 3, 256, 4),
            (256, 128, 128, 4, 256, 4),
            (128, 192, 128, 4, 256),
            (192, 128, 128, 4, 384),
            (128, 128, 128, 5, 128),
        ],
        [(4, 8), (4, 16), (8, 8)],
    )
]


def scaled_mm(a, b):
    """torch's product of 8-bit floats, with scales of one."""
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def row(size):
    """The product of M x K and K x N numbers; `size` is M, N and K."""
    plain = gemm_row(size, T.float8_e4m3fn, True, CONFIG, CONFIGS)
    return dataclasses.replace(
        plain,
        arguments={**plain.arguments, "out_dtype": T.bfloat16},
        # bfloat16 results, of sums that the tensor cores keep with fewer bits than float32.
        error=lambda ab, found: (norm_error(found, ab[0].double() @ ab[1].double().T), 1e-2),
        baseline=scaled_mm,
    )


def rows(small):
    """The sizes of the table, or a small one."""
    return [row(size) for size in ([(200, 272, 208)] if small else SIZES)]


if __name__ == "__main__":
    main(__doc__, rows)
