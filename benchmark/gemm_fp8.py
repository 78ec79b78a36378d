"""GEMM in float8_e4m3, B transposed, beside cuBLAS."""

import itertools

import torch
from common import Row, example, main, norm_error

SIZES = [(4096, 4096, 4096), (8192, 8192, 8192)]
CONFIG = {
    "block_M": 128,
    "block_N": 256,
    "block_K": 128,
    "num_stages": 3,
    "threads": 256,
    "panel": 8,
}
CONFIGS = [
    {"block_M": m, "block_N": n, "block_K": k, "num_stages": s, "threads": t, "panel": p}
    for (m, n, t), (k, s), p in itertools.product(
        [(128, 256, 256), (256, 128, 256), (128, 128, 128), (128, 128, 256)],
        [(64, 5), (128, 3), (128, 4)],
        [4, 8, 16],
    )
]


def scaled_mm(a, b):
    """torch's product of 8-bit floats, with scales of one."""
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def row(size):
    """The product of M x K and K x N numbers; `size` is M, N and K."""
    gemm = example("gemm_fp8")
    M, N, K = size
    return Row(
        name=f"{M} x {N} x {K} float8_e4m3 NT",
        program=gemm.matmul,
        arguments={"M": M, "N": N, "K": K},
        config=CONFIG,
        configs=CONFIGS,
        inputs=lambda device: gemm.inputs(M, N, K, device=device),
        # bfloat16 results, of sums that the tensor cores keep with fewer bits than float32.
        error=lambda ab, found: (norm_error(found, gemm.reference(*ab)), 1e-2),
        work=2.0 * M * N * K,
        baseline=scaled_mm,
    )


def rows(small):
    """The sizes of the table, or a small one."""
    return [row(size) for size in ([(200, 272, 208)] if small else SIZES)]


if __name__ == "__main__":
    main(__doc__, rows)
