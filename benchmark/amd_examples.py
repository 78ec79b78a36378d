"""The examples with tiles for AMD's chips: how each is compiled, and checked with small sizes.

`EXAMPLES` is what `amd_code.py` prints and `testing/python/hip/test_examples.py` runs. A tile has
at most the 64 KiB of LDS of gfx90a and gfx942, and gives a wavefront as much of the result as its
registers hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from common import example

import tilelang.language as T
from tilelang.utils.target import determine_target

dequantize_gemm = example("dequantize_gemm")
flash_attention = example("flash_attention")
flash_attention_backward = example("flash_attention_backward")
gemm = example("gemm")
gemm_mxfp = example("gemm_mxfp")
mla_decode = example("mla_decode")
rms_norm = example("rms_norm")
softmax = example("softmax")

ARCHS = ("gfx90a", "gfx942", "gfx950")
SIZE = 4096


@dataclass(frozen=True)
class Example:
    """A program of `examples`.

    Attributes:
        compile: gives the kernel at its full size for an architecture.
        error: what the example's own check finds with small sizes.
        bound: what it has to be below.
        archs: those that multiply its types.
    """

    compile: Callable[[str], Any]
    error: Callable[[str], float]
    bound: float
    archs: tuple[str, ...] = ARCHS

    def kernel(self, arch: str) -> Any:
        """The kernel for `arch`."""
        with determine_target(f"hip -mcpu={arch}", return_object=True):
            return self.compile(arch)

    def check(self, arch: str) -> float:
        """The error on `arch`, in the emulator."""
        with determine_target(f"hip -mcpu={arch}", return_object=True):
            return self.error(arch)


# C is stored in parts, which take less LDS. A wavefront has 128 x 128 of it.
WIDE = {"block_M": 256, "block_N": 256, "threads": 256, "parts": 8}


def product(
    dtype: Any,
    accum: Any,
    out: Any,
    block_K: int,
    bound: float,
    *archs: str,
    transpose_B: bool = True,
) -> Example:
    """A @ B^T of the type, or A @ B; gfx950 has the LDS for twice the K."""

    def tiles(arch: str) -> dict[str, Any]:
        depth = {"block_K": block_K * (2 if arch == "gfx950" else 1), "num_stages": 2}
        return WIDE | depth | {"out_dtype": out, "accum_dtype": accum}

    return Example(
        lambda arch: gemm.matmul(SIZE, SIZE, SIZE, dtype, transpose_B=transpose_B, **tiles(arch)),
        lambda arch: gemm.relative_error(300, 280, 4 * block_K, dtype, transpose_B, **tiles(arch)),
        bound,
        archs or ARCHS,
    )


def attention(dim: int, causal: bool, **tiles: int) -> Example:
    return Example(
        lambda arch: flash_attention.flash_attention(4, 32, SIZE, dim, causal, **tiles),
        lambda arch: flash_attention.relative_error(1, 1, 200, dim, causal, **tiles),
        1e-3,
    )


def backward(**tiles: int) -> Example:
    return Example(
        lambda arch: flash_attention_backward.gradients(4, 32, SIZE, 64, True, **tiles),
        lambda arch: flash_attention_backward.relative_error(1, 1, 130, 64, True, **tiles),
        2e-3,
    )


def mxfp(dtype: Any, **tiles: int) -> Example:
    return Example(
        lambda arch: gemm_mxfp.matmul(SIZE, SIZE, SIZE, dtype, **tiles),
        lambda arch: gemm_mxfp.relative_error(144, 130, 1024, dtype, **tiles),
        1e-6,
        ("gfx950",),
    )


def int4(**tiles: int) -> Example:
    return Example(
        lambda arch: dequantize_gemm.matmul("int4", SIZE, SIZE, SIZE, **tiles),
        lambda arch: dequantize_gemm.relative_error("int4", 140, 130, 320, **tiles),
        1e-3,
    )


def decode(**tiles: int) -> Example:
    return Example(
        lambda arch: mla_decode.mla_decode(8, 128, SIZE, **tiles),
        lambda arch: mla_decode.relative_error(
            mla_decode.mla_decode(1, 32, 70, **tiles), 1, 32, 70
        ),
        1e-3,
    )


EXAMPLES = {
    "gemm float16": product(T.float16, T.float32, None, 32, 2e-3),
    "gemm float16 NN": product(T.float16, T.float32, None, 32, 2e-3, transpose_B=False),
    "gemm bfloat16": product(T.bfloat16, T.float32, None, 32, 8e-3),
    "gemm float8 fnuz": product(T.float8_e4m3fnuz, T.float32, T.float16, 64, 2e-3, "gfx942"),
    "gemm float8": product(T.float8_e4m3fn, T.float32, T.float16, 64, 2e-3, "gfx950"),
    "gemm int8": product(T.int8, T.int32, T.int32, 64, 1e-12),
    "gemm int8 NN": product(T.int8, T.int32, T.int32, 64, 1e-12, transpose_B=False),
    "gemm mxfp4": mxfp(T.float4_e2m1fn, block_M=256, block_N=256, block_K=256, num_stages=2),
    "gemm mxfp6": mxfp(T.float6_e2m3fn, block_M=256, block_N=128, block_K=256, num_stages=2),
    "int4 gemm": int4(block_K=32, num_stages=2),
    "attention 64": attention(64, True),
    "attention 128": attention(128, True, block_M=64, block_N=32),
    "attention backward": backward(block_M=32, block_N=128, num_stages=1, threads=256),
    "mla decode": decode(block_H=16, block_N=16, threads=256),
    "softmax": Example(
        lambda arch: softmax.softmax(SIZE, SIZE),
        lambda arch: softmax.error(33, 1000, T.float32, "cpu"),
        8.0,
    ),
    "rms_norm": Example(
        lambda arch: rms_norm.rms_norm(SIZE, SIZE),
        lambda arch: rms_norm.error(33, 1000, T.float16, "cpu"),
        8.0,
    ),
}
