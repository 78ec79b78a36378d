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


BLOCKS = 264  # two for each multiprocessor of an H200
LONG = [  # of A with many rows
    tile(*shape, threads, 1)
    for shape, threads in itertools.product(
        [(128, 128, 128, 4), (192, 128, 128, 3), (256, 128, 128, 2), (256, 128, 64, 4)], [256]
    )
] + [tile(128, 256, 64, 4, 512, 1), tile(192, 128, 64, 5, 256, 1), tile(256, 64, 128, 2, 128, 1)]
LONG += [{**tile(128, 128, 256, 2, 256, 1), "parts": 2}]
SPLITS = (2, 3, 4, 6, 8)


def long(M, N, K):
    """Of A with many rows; blocks share K where the result has few tiles."""
    found = list(LONG)
    for config in LONG:
        tiles = -(-M // config["block_M"]) * -(-N // config["block_N"])
        steps = -(-K // config["block_K"])
        found += [{**config, "split": s} for s in SPLITS if tiles * s <= BLOCKS and steps >= 4 * s]
    return found


def short(M, N, K, form):
    """Of a few rows of A, in one tile of as many columns of the instruction; more than one block of
    them share a multiprocessor, whose threads then wait for memory less."""
    # An instruction's columns are multiples of 8.
    columns = min(-(-M // 8) * 8, 128)
    found = []
    if columns <= 32:  # a block for each multiprocessor, and nothing to add up
        found += [tile(columns, 64, 128, 10, 128, 1)]
        found += [{**tile(columns, 64, 256, stages, 128, 1), "parts": 2} for stages in (5, 8)]
    for (block_N, block_K, num_stages, splits), threads, blocks in [
        ((128, 128, 3, (1, 2, 4)), 256, 2),
        ((128, 128, 6, (2, 4)), 256, 2),
        ((64, 128, 4, (2, 4)), 128, 4),
        ((128, 256, 3, (2, 4)), 256, 2),
        ((64, 256, 3, (2, 3, 4)), 128, 3),
        ((64, 256, 3, (4,)), 128, 4),
        *([((128, 256, 2, (1, 2, 4)), 256, 1)] if columns > 16 else []),
    ]:
        stage = (2 * columns + block_N // 2) * block_K
        room = min(blocks, 200_000 // (num_stages * stage))
        for split in splits if room else ():
            shape = tile(columns, block_N, block_K, num_stages, threads, split)
            if block_K == 256:  # one half is unpacked while the other one is multiplied
                shape["parts"] = 2
            found.append({**shape, "min_blocks": room} if columns < 128 and room > 1 else shape)
    if M > 128:
        shapes = [(256, 128, 128, 2), (256, 128, 128, 3), (128, 128, 128, 4), (128, 128, 128, 5)]
        found += [tile(*shape, 256, split) for shape in shapes for split in (1, 2)]
        # As many blocks by narrow tiles as by sharing K, and nothing to add up.
        found.append(tile(128, 64, 128, 6, 128, 1))
        found += [{**tile(128, 64, 256, stages, 128, 1), "parts": 2} for stages in (2, 3)]
    # A few tiles of a long K.
    for config in [c for c in found if c["split"] == 4]:
        tiles = -(-M // config["block_M"]) * -(-N // config["block_N"])
        room, steps = config.get("min_blocks", 1), -(-K // config["block_K"])
        found += [
            {**config, "split": s}
            for s in (6, 8, 12, 16)
            if tiles * s <= BLOCKS // 2 * room and steps >= 4 * s
        ]
    if form == "int4" and columns <= 32:
        found += [{**config, "scale_sums": True} for config in found]
    return found


def row(form, M, N, K, wanted, packed=False, small=False):
    """The product of M x K numbers and N x K weights, which may be packed."""
    dequantize = example("dequantize_gemm")
    configs = (
        [tile(16, 64, 128, 2, 128, 2)]
        if small
        else long(M, N, K)
        if M > 256
        else short(M, N, K, form)
    )
    if packed:
        configs = [{**c, "packed": True} for c in configs if c["block_K"] % dequantize.PACKED == 0]
    size = {"M": M, "N": N, "K": K}
    dtype = {"int4": torch.float16, "mxfp4": torch.bfloat16}[form]

    def baseline_inputs(device):
        return [torch.randn(rows, K, device=device).to(dtype) for rows in (M, N)]

    def inputs(device):
        a, pairs, *others = dequantize.inputs(form, M, N, K, device=device)
        return [a, dequantize.pack(pairs) if packed else pairs, *others]

    def error(given, found):
        a, pairs, scale, _ = given
        if packed:
            pairs = dequantize.unpack_order(pairs)[:, : K // 2]
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
