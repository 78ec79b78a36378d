"""A @ B^T with weights of 4 bits, beside torch's product with weights of 16 bits."""

import dataclasses
import itertools

import torch
from common import Row, example, main, norm_error

from tilelang.carver import DequantizedSchedule, dequantized_schedules_of

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


def config_of(schedule):
    """The parameters of `dequantize_gemm` that a schedule changes."""
    return {
        field.name: getattr(schedule, field.name)
        for field in dataclasses.fields(schedule)
        if field.name not in ("packed", "seconds")
        and (field.name == "split" or getattr(schedule, field.name) != field.default)
    }


SMALL = DequantizedSchedule(16, 64, 128, 2, 128, split=2)


def row(form, M, N, K, wanted, packed=False, small=False):
    """The product of M x K numbers and N x K weights, which may be packed. Its configuration is the
    first choice of the model."""
    dequantize = example("dequantize_gemm")
    schedules = [SMALL] if small else dequantized_schedules_of(form, M, N, K, packed)
    configs = [config_of(schedule) | ({"packed": True} if packed else {}) for schedule in schedules]
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
