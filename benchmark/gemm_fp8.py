"""GEMM in float8_e4m3, B transposed, beside cuBLAS: plain, and with scales for blocks, beside the
product with one scale a tensor."""

import dataclasses

import torch
from common import H200_PROCESSORS, Row, example, main, norm_error
from gemm import gemm_row, in_groups, tile

import tilelang.language as T

SIZES = [(4096, 4096, 4096), (8192, 8192, 8192)]
CONFIG = tile(128, 256, 128, 4, 256, parts=4)
CONFIGS = in_groups(
    (128, 256, 128, 4, 256, 4),
    (256, 192, 128, 3, 256, 4),
    (256, 128, 128, 4, 256, 4),
    (128, 192, 128, 4, 256),
    (192, 128, 128, 4, 384),
    (128, 128, 128, 5, 128),
)
SCALED_SIZES = [(4096, 7168, 2048), (4096, 4096, 7168), (8192, 8192, 8192)]
TRIED = 8


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


def scaled_row(size, most=TRIED, blocks=H200_PROCESSORS):
    """The same with a scale for each 128 elements of a row of A, and for each 128 x 128 of B, by
    the model's first configurations for so many `blocks`. The table is that of an H200, and who
    lists its rows leaves the GPU alone; None are those of the GPU that is here."""
    own, (M, N, K) = example("gemm_fp8"), size
    configs = own.configurations(M, N, K, blocks)[:most]
    return Row(
        name=f"{M} x {N} x {K} scales of 1 x 128 and 128 x 128",
        program=own.scaled_matmul,
        arguments={"M": M, "N": N, "K": K},
        config=configs[0],
        configs=configs,
        inputs=lambda device: list(own.scaled_inputs(M, N, K, device)),
        error=lambda given, found: (norm_error(found, own.scaled_reference(*given)), 1e-2),
        work=2.0 * M * N * K,
        baseline=lambda a, b, *_: scaled_mm(a, b),
        wanted=0.9,
    )


def rows(small):
    """The sizes of the table, or small ones."""
    sizes = [[(200, 272, 208)]] * 2 if small else [SIZES, SCALED_SIZES]
    return [row(size) for size in sizes[0]] + [scaled_row(size) for size in sizes[1]]


if __name__ == "__main__":
    main(__doc__, rows)
