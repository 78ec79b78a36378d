"""Decoding with latent attention beside what the chip allows: 600 TFLOP/s, or 80 % of the speed at
which the keys can be copied, whichever takes longer. One program leaves it to the compiler who does
what, the other one has two ping-pong warp groups."""

import itertools

import torch
from common import Row, example, main, norm_error

import tilelang.language as T
from tilelang.profiler import compare

SIZES = (132, 128, 8192)
CONFIG = {"block_H": 64, "block_N": 128, "num_stages": 1, "pieces": 4, "threads": 256}
CONFIGS = [
    {"block_H": 64, "block_N": n, "num_stages": s, "pieces": p, "threads": 256}
    for n, s, p in itertools.product([64, 96, 128], [1, 2], [1, 2, 4, 8])
]
TURNS, TURNS_CONFIGS = {"cluster": 2}, [{"cluster": 1}, {"cluster": 2}]
# Of an H200's tensor cores, and of what a copy reaches.
WANTED_FLOPS, WANTED_SHARE = 600e12, 0.8


def flops(batch, heads, length, dim=512, rope_dim=64):
    """A product over dim + rope_dim, and one that has dim results, for each head and position."""
    return 2.0 * batch * heads * length * (2 * dim + rope_dim)


def limit(work, tensors):
    """Milliseconds that are wanted: the longer of computing and of reading the keys."""
    keys = torch.cat([x.flatten() for x in tensors[2:]])
    to = torch.empty_like(keys)
    # A copy reads and writes each byte.
    copy = compare({"copy": lambda: to.copy_(keys)}).medians["copy"] / 2
    return max(work / WANTED_FLOPS * 1e3, copy / WANTED_SHARE)


def error(tensors, found):
    """The largest relative error of the first and the last token."""
    reference = example("mla_decode").reference
    last = max(1, found.shape[0] - 1)
    parts = zip(*(x[::last].split(1) for x in (*tensors, found)), strict=True)
    return max(norm_error(out, reference(*part)) for *part, out in parts)


def row(name, program, config, configs, dtype, small):
    """The size of the table, or a small one."""
    mla = example("mla_decode")
    # Two blocks for each token.
    batch, heads, length = (1, 128, 150) if small else SIZES
    # ||ours - reference|| / ||reference||, of rounded weights and results.
    bound = torch.finfo(dtype.as_torch()).eps
    return Row(
        name=f"{batch} x {heads} x {length} x (512 + 64) {dtype}{name}",
        program=program,
        arguments={"batch": batch, "heads": heads, "length": length, "dtype": dtype},
        config=config,
        configs=configs,
        inputs=lambda device: mla.inputs(batch, heads, length, dtype=dtype, device=device),
        error=lambda tensors, found: (error(tensors, found), bound),
        work=flops(batch, heads, length),
        limit=lambda tensors: limit(flops(batch, heads, length), tensors),
    )


def rows(small):
    """Both programs."""
    programs = [
        ("", example("mla_decode").mla_decode, CONFIG, CONFIGS),
        (" in turns", example("mla_decode_pingpong").mla_decode, TURNS, TURNS_CONFIGS),
    ]
    return [
        row(*program, dtype, small) for dtype in (T.float16, T.bfloat16) for program in programs
    ]


if __name__ == "__main__":
    main(__doc__, rows)
