"""A @ B^T with weights of 4 bits, beside torch's product with weights of 16 bits."""

import itertools

import torch
from common import Row, example, main, norm_error

ROWS = [  # form, M, N, K, times torch's speed
    ("int4", 4096, 4096, 4096, 0.85),
    ("int4", 256, 8192, 8192, 1.0),
    ("int4", 64, 8192, 8192, 1.0),
    ("int4", 16, 8192, 8192, 2.5),
    ("mxfp4", 4096, 4096, 4096, 0.85),
    ("mxfp4", 256, 4096, 4096, 1.0),
    ("mxfp4", 16, 8192, 8192, 2.5),
]
PACKED_K = 128
BOUND = {"int4": 1e-3, "mxfp4": 8e-3}


def tile(block_M, block_N, block_K, num_stages, threads, split):
    """A configuration by its numbers."""
    return {
        "block_M": block_M,
        "block_N": block_N,
        "block_K": block_K,
        "num_stages": num_stages,
        "threads": threads,
        "split": split,
    }


LONG = [  # of A with many rows
    tile(*shape, threads, 1)
    for shape, threads in itertools.product(
        [(128, 128, 128, 4), (192, 128, 128, 3), (256, 128, 128, 2), (256, 128, 64, 4)], [256]
    )
] + [tile(128, 256, 64, 4, 512, 1), tile(192, 128, 64, 5, 256, 1), tile(256, 64, 128, 2, 128, 1)]


def short(M):
    """Of a few rows of A, in one tile of as many columns of the instruction."""
    columns = min(M, 128)
    return [
        tile(columns, *shape, stages, threads, split)
        for (shape, threads), stages, split in itertools.product(
            [((128, 128), 256), ((64, 128), 128)], [3, 6], [1, 2, 4]
        )
        if columns * 128 * 2 * stages <= 120_000
    ]


def row(form, M, N, K, wanted, packed=False, small=False):
    """The product of M x K numbers and N x K weights, which may be packed for the kernel's tiles of
    `PACKED_K` elements."""
    dequantize = example("dequantize_gemm")
    configs = [tile(16, 64, 128, 2, 128, 2)] if small else LONG if M > 256 else short(M)
    if packed:
        configs = [{**c, "packed": True} for c in configs if c["block_K"] == PACKED_K]
    size = {"M": M, "N": N, "K": K}
    dtype = {"int4": torch.float16, "mxfp4": torch.bfloat16}[form]

    def baseline_inputs(device):
        return [torch.randn(rows, K, device=device).to(dtype) for rows in (M, N)]

    def inputs(device):
        a, pairs, scale = dequantize.inputs(form, M, N, K, device=device)
        return [a, dequantize.pack(pairs, PACKED_K) if packed else pairs, scale]

    def error(given, found):
        a, pairs, scale = given
        if packed:
            pairs = dequantize.unpack_tiles(pairs, K, PACKED_K)
        return norm_error(found, dequantize.reference(form, a, pairs, scale)), BOUND[form]

    return Row(
        name=f"{form}{' packed' if packed else ''} {M}x{N}x{K}",
        program=dequantize.PROGRAMS[form],
        arguments=size,
        config=configs[0],
        configs=configs,
        inputs=inputs,
        error=error,
        work=2.0 * M * N * K,
        baseline=lambda a, b: a @ b.T,
        baseline_inputs=baseline_inputs,
        wanted=wanted,
    )


def rows(small):
    """The sizes of the table, or small ones."""
    if small:
        forms = itertools.product(("int4", "mxfp4"), (False, True))
        return [row(form, 24, 72, 160, 1.0, packed, small=True) for form, packed in forms]
    return [row(*sizes, packed) for sizes in ROWS for packed in (False, True)]


if __name__ == "__main__":
    main(__doc__, rows)
