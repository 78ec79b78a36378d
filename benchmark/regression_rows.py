"""The rows of the benchmarks as cases: ``python -m tilelang.testing.perf_regression`` compares two
commits by them, and run as a script this prints what each takes here."""

import importlib

import torch
from common import compile_as_for_an_h200, example
from row_kernels import COLUMNS, ROWS, rms_norm_row

import tilelang.language as T
from tilelang.testing import process_func, regression

MODULES = [
    "gemm",
    "gemm_ragged",
    "gemm_fp8",
    "dequantize",
    "attention_forward",
    "attention_backward",
    "attention_varlen",
    "mla",
]


def of_row(row):
    """The kernel of a row, and what makes a call of it."""
    kernel = row.kernel(row.config)

    def prepare(device):
        inputs = row.inputs(device)
        return lambda: row.call(kernel, *inputs)

    return kernel, prepare


def of_rows_kernel(program, inputs, **arguments):
    """The same of a kernel that goes over the rows of a matrix."""
    kernel = program(ROWS, COLUMNS, dtype=T.bfloat16, **arguments)

    def prepare(device):
        tensors = [torch.randn(shape, device=device).bfloat16() for shape in inputs]
        return lambda: kernel(*tensors)

    return kernel, prepare


if not torch.cuda.is_available():
    compile_as_for_an_h200()
for module in MODULES:
    for row in importlib.import_module(module).rows(False):
        process_func(of_row, f"{module} {row.name}", row=row)
for threads in (256, 512, 1024):
    process_func(
        of_rows_kernel,
        f"softmax {ROWS} x {COLUMNS}, {threads} threads",
        program=example("softmax").softmax,
        inputs=[(ROWS, COLUMNS)],
        block_M=1,
        threads=threads,
    )
    process_func(
        of_rows_kernel,
        f"rms_norm {ROWS} x {COLUMNS}, {threads} threads",
        program=rms_norm_row,
        inputs=[(ROWS, COLUMNS), (COLUMNS,)],
        threads=threads,
    )


if __name__ == "__main__":
    regression()
