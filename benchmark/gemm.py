"""GEMM in float16 and bfloat16, B transposed (NT) or not (NN), beside cuBLAS."""

import itertools

import torch
from common import Row, example, main, norm_error

import tilelang.language as T

SIZES = [(4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024)]


def tile(m, n, k, stages, threads, parts=1, group=(4, 8)):
    """A configuration of the program."""
    return {
        "block_M": m,
        "block_N": n,
        "block_K": k,
        "num_stages": stages,
        "threads": threads,
        "parts": parts,
        "group": group,
    }


def in_groups(*tiles):
    """Each of the tiles with each group of tiles that follow each other."""
    groups = [(4, 8), (4, 16), (8, 8)]
    return [tile(*shape, group=group) for shape, group in itertools.product(tiles, groups)]


CONFIG = tile(128, 256, 64, 4, 256, parts=4)
# Where operands stay in L2, groups of tiles may have more columns.
SMALL, SMALL_BYTES = {**CONFIG, "group": (4, 16)}, 2**25
CONFIGS = in_groups(
    (128, 256, 64, 4, 256, 4),
    (256, 192, 64, 3, 256, 4),
    (256, 128, 64, 4, 256, 4),
    (128, 192, 64, 4, 256),
    (192, 128, 64, 4, 384),
    (192, 192, 64, 4, 384, 3),
    (128, 128, 64, 5, 128),
    (128, 128, 64, 5, 256),
)


def gemm_row(size, dtype, transpose_b, config, configs, wanted=1.0):
    """The product of M x K and K x N numbers; `size` is M, N and K."""
    gemm = example("gemm")
    M, N, K = size
    bound = torch.finfo(dtype.as_torch()).eps
    return Row(
        name=f"{M} x {N} x {K} {dtype} {'NT' if transpose_b else 'NN'}",
        program=gemm.matmul,
        arguments={"M": M, "N": N, "K": K, "dtype": dtype, "transpose_B": transpose_b},
        config=config,
        configs=configs,
        inputs=lambda device: gemm.inputs(M, N, K, dtype, transpose_b, device),
        error=lambda ab, found: (norm_error(found, gemm.reference(*ab, transpose_b)), bound),
        work=2.0 * M * N * K,
        baseline=lambda a, b: torch.mm(a, b.T if transpose_b else b),
        wanted=wanted,
    )


def config_of(size):
    """By the bytes of A."""
    return SMALL if 2 * size[0] * size[2] <= SMALL_BYTES else CONFIG


def rows(small):
    """Sizes of the table, or one that no tile divides."""
    return [
        gemm_row(size, dtype, transpose_b, config_of(size), CONFIGS)
        for size in ([(200, 264, 200)] if small else SIZES)
        for dtype in (T.float16, T.bfloat16)
        for transpose_b in (True, False)
    ]


if __name__ == "__main__":
    main(__doc__, rows)
