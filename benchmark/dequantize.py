"""A @ B^T with weights of 4 bits, beside torch's product with weights of 16 bits."""

import itertools

import torch
from common import H200_PROCESSORS, Row, example, main, norm_error
from dequantize_model import seconds

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


SHARED = 233_472
"""Bytes of shared memory of a multiprocessor, for the tiles of its blocks."""
LONG = 128
"""Rows of A, above which there are several tiles of them."""
MOST_SPLIT = 16


def shared_bytes(config, N, form):
    """Of a stage of a pipeline, and of the result."""
    m, n, k = (config[name] for name in ("block_M", "block_N", "block_K"))
    # Rows of single bytes that begin anywhere in a chunk take twice theirs.
    scales = n * k // (16 if form == "mxfp4" and N % 16 else 32)
    return (2 * m + n // 2) * k + scales, 2 * m * n


def with_stages(config, most, steps, N, form):
    """As many stages as there is room for, steps, or `most`; None where two do not fit, or three of
    several parts, of which one in flight keeps its stage: two take twice the time."""
    stage, result = shared_bytes(config, N, form)
    # A block takes 1 KB itself, and some for its barriers.
    room = SHARED // config.get("min_blocks", 1) - result - 1024 - 256
    stages = min(most, room // stage, max(steps, 3))
    least = 3 if config.get("parts", 1) > 1 else 2
    return {**config, "num_stages": stages} if stages >= least else None


def heights(M):
    """Rows of tiles of A, of several ranges the one that leaves fewest of the last tile empty."""
    found = []
    for least, most in ((64, 88), (96, 136), (144, 184), (192, 200), (208, 256)):
        fit = range(least, most + 1, 8)
        found.append(min(fit, key=lambda m: (-(-M // m) * m, -m)))
    return found


def shares(tiles, steps, room, least):
    """Numbers of blocks that share a tile's K: one, and those with which 1 to `room` of all blocks
    are on each multiprocessor; each has `least` steps."""
    most = max(min(steps // least, MOST_SPLIT), 1)
    wanted = {1, *(min(H200_PROCESSORS * beside // tiles, most) for beside in range(1, room + 1))}
    return sorted(wanted - {0})


def long(M, N, K, form):
    """Of A with many rows. Blocks share K where the result has few tiles, and stay where it has
    many: the loads of the next tile run beside the end of one."""
    found = []
    shapes = [
        (128, 128, 256, 1),
        (128, 128, 256, 2),
        (128, 256, 256, 2),
        (64, 128, 128, 2),
        (64, 256, 128, 2),
    ]
    for m, (n, k, threads, parts) in itertools.product(heights(M), shapes):
        # The smallest tile that is worth its loads.
        if m * n < 64 * 128:
            continue
        tiles, steps = -(-M // m) * -(-N // n), -(-K // k)
        for split in shares(tiles, steps, 2, 4):
            config = tile(m, n, k, 0, threads, split)
            if parts > 1:
                config["parts"] = parts
            config = with_stages(config, 5, -(-steps // split), N, form)
            if config is None:
                continue
            found.append(config)
            if split == 1 and tiles > H200_PROCESSORS:
                found.append({**config, "blocks": H200_PROCESSORS})
    return found


def has_sums(config):
    """Has a thread registers for the sums of parts, too? Where 128 rows of two blocks share a
    multiprocessor it has 80, and ptxas else lets all products wait for each other (C7512)."""
    m, n, k = (config[name] for name in ("block_M", "block_N", "block_K"))
    used = m // 2 * (1 + config.get("parts", 1)) + k // 4
    return used <= (80 if n == 128 and config.get("min_blocks") == 2 else 128)


def short(M, N, K, form):
    """Of a few rows of A, in one tile of as many columns of the instruction. Several blocks of them
    share a multiprocessor, whose threads unpack while others wait."""
    # An instruction's columns are multiples of 8.
    columns = -(-M // 8) * 8
    found = []
    for (n, threads, most), (k, parts) in itertools.product(
        [(64, 128, 4), (128, 256, 2)], [(128, 1), (128, 2), (256, 2)]
    ):
        tiles, steps = -(-N // n), -(-K // k)
        for split in shares(tiles, steps, most, 2):
            for room in range(min(most, -(-tiles * split // H200_PROCESSORS)), 0, -1):
                # Registers: accumulators, and the weights of all parts, beside a producer's warps.
                most_registers = {1: 128, 2: 128 if n == 64 else 72, 3: 96, 4: 64}[room]
                config = tile(columns, n, k, 0, threads, split)
                if parts > 1:
                    config["parts"] = parts
                if room > 1:
                    config["min_blocks"] = room
                config = with_stages(config, 8, -(-steps // split), N, form)
                if config is not None and columns // 2 + k // 4 <= most_registers:
                    found.append(config)
                    break
    if form == "int4" and columns <= 32:
        found += [{**config, "scale_sums": True} for config in found if has_sums(config)]
    return found + [{**config, "apart": True} for config in found if config["split"] > 1]


def row(form, M, N, K, wanted, packed=False, small=False):
    """The product of M x K numbers and N x K weights, which may be packed. Its configuration is the
    first choice of the model."""
    dequantize = example("dequantize_gemm")
    configs = (
        [tile(16, 64, 128, 2, 128, 2)]
        if small
        else long(M, N, K, form)
        if M > LONG
        else short(M, N, K, form)
    )
    if M > 1 and K % 8:  # rows of A that TMA does not take
        configs = [{**config, "padded": True} for config in configs]
    if packed:
        configs = [{**c, "packed": True} for c in configs if c["block_K"] % dequantize.PACKED == 0]
    configs.sort(key=lambda config: seconds(form, M, N, K, config))
    arguments = {"form": form, "M": M, "N": N, "K": K}
    dtype = {"int4": torch.float16, "mxfp4": torch.bfloat16}[form]

    def baseline_inputs(device):
        return [torch.randn(rows, K, device=device).to(dtype) for rows in (M, N)]

    def inputs(device):
        a, pairs, *others = dequantize.inputs(form, M, N, K, device=device)
        return [a, dequantize.pack(form, pairs, others[0]) if packed else pairs, *others]

    def error(given, found):
        a, pairs, scale, _ = given
        if packed:
            pairs = dequantize.unpack_order(form, pairs)[:, : K // 2]
        return norm_error(found, dequantize.reference(form, a, pairs, scale)), BOUND[form]

    return Row(
        name=f"{form}{' packed' if packed else ''} {M}x{N}x{K}",
        program=dequantize.matmul,
        arguments=arguments,
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
