"""What AMD's compiler makes of the examples: registers, LDS, spills, and their innermost loops.

``python benchmark/amd_code.py [--arch gfx942]`` compiles examples for AMD's architectures and
prints a table; no GPU is needed. ``MFMA`` and ``other`` are instructions of the innermost loop that
multiplies. ``bound`` is the share of its cycles in which the matrix unit is busy if one wavefront
runs it alone: the cycles of its MFMA, and four for each other instruction (CDNA3 ISA, "Matrix
Arithmetic Instructions": passes of four cycles; a SIMD issues one instruction of a wavefront of 64
every four cycles). Latencies of memory, which other wavefronts hide, do not count.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from common import example

from tilelang.hip.compile import compile_code_object
from tilelang.utils.target import determine_target

ARCHS = ("gfx90a", "gfx942", "gfx950")
ISSUE_CYCLES = 4
# Multiply-adds of a matrix unit in a cycle, by architecture and bits of an operand (CDNA2, CDNA3
# and CDNA4 ISA: passes of each MFMA).
MULTIPLY_ADDS = {
    "gfx90a": {16: 128, 8: 128, 32: 32, 64: 32},
    "gfx942": {16: 256, 8: 512, 32: 32, 64: 32},
    "gfx950": {16: 512, 8: 1024, 32: 32, 64: 16},
}
_MFMA = re.compile(r"^\s+v_mfma_\w+?_(\d+)x(\d+)x(\d+)_?([a-z]+\d*)")
_LABEL = re.compile(r"^(\.LBB\d+_\d+):")
_INSTRUCTION = re.compile(r"^\s+[a-z]\w+")


@dataclass
class Loop:
    """An innermost loop: instructions of MFMA and others, cycles of the matrix unit."""

    mfma: int
    other: int
    cycles: float

    @property
    def bound(self) -> float:
        """The share of the cycles in which the matrix unit is busy."""
        return self.cycles / (self.cycles + ISSUE_CYCLES * self.other)


def loops(assembly: str, arch: str) -> Iterator[Loop]:
    """The loops of an assembly without loops inside: from a label to the last branch back to it."""
    lines = assembly.split("\n")
    for first, line in enumerate(lines):
        label = _LABEL.match(line)
        if not label or "Inner Loop Header" not in line + lines[first + 1]:
            continue
        back = re.compile(rf"s_c?branch\w* {re.escape(label[1])}$")
        last = max((i for i, text in enumerate(lines) if back.search(text.strip())), default=first)
        yield measured(lines[first : last + 1], arch)


def measured(lines: list[str], arch: str) -> Loop:
    """Counts the instructions of a loop."""
    loop = Loop(0, 0, 0.0)
    for line in lines:
        if found := _MFMA.match(line):
            m, n, k = (int(x) for x in found.groups()[:3])
            bits = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "f64": 64}.get(found[4], 8)
            loop.mfma += 1
            loop.cycles += m * n * k / MULTIPLY_ADDS[arch][bits]
        elif _INSTRUCTION.match(line):
            loop.other += 1
    return loop


def rows() -> dict[str, Callable[[str], Any]]:
    """The examples by name, each a function from an architecture to a kernel."""
    attention, gemm = example("flash_attention").flash_attention, example("gemm").matmul
    dequantize, mla = example("dequantize_gemm").matmul_int4, example("mla_decode").mla_decode
    softmax, rms_norm = example("softmax").softmax, example("rms_norm").rms_norm
    size = 4096
    tiles = {"block_M": 128, "block_N": 128, "block_K": 32, "num_stages": 2}
    return {
        "gemm float16": lambda arch: gemm(size, size, size, transpose_B=True, **tiles),
        "gemm bfloat16": lambda arch: gemm(
            size, size, size, dtype="bfloat16", transpose_B=True, **tiles
        ),
        "gemm int8": lambda arch: gemm(
            size, size, size, dtype="int8", transpose_B=True, out_dtype="int32", **tiles
        ),
        "attention 64": lambda arch: attention(4, 32, size, 64, True),
        "attention 128": lambda arch: attention(4, 32, size, 128, True, block_M=64, block_N=32),
        "int4 gemm": lambda arch: dequantize(size, size, size, block_K=32, num_stages=2),
        "mla decode": lambda arch: mla(8, 128, size, block_H=16, block_N=16, threads=256),
        "softmax": lambda arch: softmax(size, size),
        "rms_norm": lambda arch: rms_norm(size, size),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", choices=ARCHS, action="append")
    parser.add_argument("--only", default="", help="rows with this in their names")
    options = parser.parse_args()
    print(f"{'kernel':16} {'arch':7} {'VGPRs':>5} {'LDS':>6} {'spilled':>7} {'MFMA':>5}", end="")
    print(f" {'other':>6} {'bound':>6}")
    for name, make in rows().items():
        for arch in options.arch or ARCHS if options.only in name else ():
            print(f"{name:16} {arch:7} {measured_row(make, arch)}")


def measured_row(make: Callable[[str], Any], arch: str) -> str:
    """A row of the table, or why there is none."""
    try:
        with determine_target(f"hip -mcpu={arch}", return_object=True):
            kernel = make(arch)
    except (ValueError, RuntimeError) as error:
        return str(error).split("\n")[0][-110:]
    launches = kernel.launch_plan.kernels
    code = compile_code_object(kernel.get_kernel_source(), arch, [k.name for k in launches])
    usage = list(code.resource_usage.values())
    text = f"{max(u.registers for u in usage):5}"
    text += f" {max(k.shared_bytes or 0 for k in launches):6}"
    text += f" {sum(u.spill_stores for u in usage):7}"
    loop = max(loops(code.assembly, arch), key=lambda loop: loop.mfma, default=Loop(0, 0, 0))
    if not loop.mfma:
        return text
    return text + f" {loop.mfma:5} {loop.other:6} {loop.bound:6.0%}"


if __name__ == "__main__":
    main()
