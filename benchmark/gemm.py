"""GEMM in float16 and bfloat16, B transposed (NT) or not (NN), beside cuBLAS."""

import itertools

import torch
from common import Row, example, main, norm_error

import tilelang.language as T

SIZES = [(4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 1024)]
CONFIG = {
    "block_M": 128,
    "block_N": 256,
    "block_K": 64,
    "num_stages": 3,
    "threads": 256,
    "panel": 8,
}
CONFIGS = [
    {"block_M": m, "block_N": n, "block_K": k, "num_stages": s, "threads": t, "panel": p}
    for (m, n, t), (k, s), p in itertools.product(
        [(128, 256, 256), (256, 128, 256), (128, 128, 128), (128, 128, 256), (192, 128, 384)],
        [(64, 3), (64, 4), (64, 5), (128, 2)],
        [4, 8, 16],
    )
]


def gemm_row(size, dtype, transpose_b, config, configs, wanted):
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


def rows(small):
    """Sizes of the table, or one that no tile divides."""
    return [
        gemm_row(size, dtype, transpose_b, CONFIG, CONFIGS, wanted=1.0)
        for size in ([(200, 264, 200)] if small else SIZES)
        for dtype in (T.float16, T.bfloat16)
        for transpose_b in (True, False)
    ]


if __name__ == "__main__":
    main(__doc__, rows)
