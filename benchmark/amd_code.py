"""What AMD's compiler makes of the examples: registers, LDS, spills, and their innermost loops.

``python benchmark/amd_code.py [--arch gfx942]`` compiles the programs of `amd_examples.py` for
AMD's architectures and prints a table; no GPU is needed. ``VGPRs`` are all vector registers of a
lane, those for accumulation (``AGPRs``) among them. ``waves`` are the wavefronts of a SIMD that
registers and LDS have room for, of 8. ``MFMA`` and ``other`` are instructions of the innermost loop
that multiplies, ``other`` without waits and without what most iterations leave out: code that a
branch on a scalar skips, as the mask of an attention's last tiles. ``bound`` is the share of its
cycles in which the matrix unit is busy if one wavefront runs it alone and nothing of it overlaps:
the cycles of its MFMA, and for each other instruction four, or sixteen for exponentials and their
like (CDNA3 ISA, "Matrix Arithmetic Instructions": passes of four cycles; a SIMD issues one
instruction of a wavefront of 64 every four cycles; LLVM, SISchedule.td: transcendental
instructions have a quarter of the rate). Latencies of memory, which other wavefronts hide, do not
count. ``busy`` is the same share where instructions begin in their order and some of it overlaps:
an MFMA waits for the one before, and what waits for LDS (``lgkmcnt``) for its reads and writes,
which four wavefronts, one of each SIMD, make at the same time. It tells orders of one loop apart.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

from amd_examples import ARCHS, EXAMPLES, Example

from tilelang._ffi import get_function

ISSUE_CYCLES, TRANSCENDENTAL_CYCLES = 4, 16
# Multiply-adds of a matrix unit in a cycle, by architecture and bits of an operand (CDNA2, CDNA3
# and CDNA4 ISA: passes of each MFMA).
MULTIPLY_ADDS = {
    "gfx90a": {16: 128, 8: 128, 32: 32, 64: 32},
    "gfx942": {16: 256, 8: 512, 32: 32, 64: 32},
    "gfx950": {16: 512, 8: 1024, 32: 32, 64: 16, 6: 2048, 4: 2048},
}
# Bytes of an operand that a lane has for an MFMA of 16 or 8 bits that gfx942 has, too; it is no
# faster on gfx950, whose own ones take 16 or more.
BYTES_OF_GFX942 = 8
SIMDS, WAVES_OF_SIMD, REGISTERS, REGISTER_UNIT = 4, 8, 512, 8
# LDS gives 128 bytes a cycle (CDNA3 ISA, "Local Data Share"), each to who asked for them some 64
# cycles before; the latter is an assumption, as is that wavefronts of different SIMDs are together.
LDS_BYTES, LDS_LATENCY = 128, 64

_MFMA = re.compile(r"^\s+v_mfma_(?:scale_)?\w+?_(\d+)x(\d+)x(\d+)_?([a-z]+\d*\w*)(.*)")
_LABEL = re.compile(r"^(\.LBB\d+_\d+):")
_BRANCH = re.compile(r"^\s+s_c?branch\w* (\.LBB\d+_\d+)")
_SKIP = re.compile(r"^\s+s_cbranch_(?:scc|vcc)\w* (\.LBB\d+_\d+)")
_TRANSCENDENTAL = re.compile(r"^\s+v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_")
_INSTRUCTION = re.compile(r"^\s+(?!s_waitcnt|s_barrier)[a-z]\w+")
_LDS = re.compile(r"^\s+ds_(?:read|write)(2?)\w*?_[bu](\d+)")
_LDS_WAIT = re.compile(r"^\s+s_waitcnt.*lgkmcnt\((\d+)\)")
_AGPRS = re.compile(r"^\s+- ?\.agpr_count: +(\d+)|^\s+\.agpr_count: +(\d+)", re.MULTILINE)


@dataclass
class Loop:
    """A loop: instructions of MFMA and others, cycles of the matrix unit, which of the others are
    transcendental, and the cycles of an iteration whose instructions begin in their order."""

    mfma: int
    other: int
    cycles: float
    transcendental: int = 0
    in_order: float = 0.0

    @property
    def bound(self) -> float:
        """The share of the cycles in which the matrix unit is busy."""
        more = (TRANSCENDENTAL_CYCLES - ISSUE_CYCLES) * self.transcendental
        return self.cycles / (self.cycles + ISSUE_CYCLES * self.other + more)

    @property
    def busy(self) -> float:
        """The same where instructions begin in their order."""
        return self.cycles / self.in_order


def loops(assembly: str, arch: str) -> Iterator[Loop]:
    """The loops of an assembly that multiply, without those around another of them: from a label
    to the last branch back to it."""
    lines = assembly.split("\n")
    labels = {m[1]: i for i, line in enumerate(lines) if (m := _LABEL.match(line))}
    last: dict[int, int] = {}
    for i, line in enumerate(lines):
        if (back := _BRANCH.match(line)) and labels.get(back[1], i) < i:
            last[labels[back[1]]] = i
    found = {(a, b): measured(lines[a : b + 1], arch) for a, b in last.items()}
    multiply = {place for place, loop in found.items() if loop.mfma}
    for a, b in multiply:
        if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in multiply):
            yield found[a, b]


def measured(lines: list[str], arch: str) -> Loop:
    """Counts the instructions of a loop."""
    loop = Loop(0, 0, 0.0)
    for line in not_skipped(lines):
        if _MFMA.match(line):
            loop.mfma += 1
            loop.cycles += mfma_cycles(line, arch)
        elif _INSTRUCTION.match(line):
            loop.other += 1
            loop.transcendental += bool(_TRANSCENDENTAL.match(line))
    loop.in_order = in_order(list(not_skipped(lines)), arch)
    return loop


def mfma_cycles(line: str, arch: str) -> float:
    """Cycles of the matrix unit for an MFMA."""
    found = _MFMA.match(line)
    assert found
    m, n, k = (int(x) for x in found.groups()[:3])
    bits = bits_of(found[4], found[5])
    return m * n * k / multiply_adds(arch, bits, m * k * bits // 8 // 64)


def in_order(lines: list[str], arch: str) -> float:
    """Cycles of an iteration behind others, if each instruction begins when the one before has and
    what it waits for is there."""
    now = matrix_free = lds_free = 0.0
    arrives: list[float] = []
    ends = []
    for _ in range(3):
        for line in lines:
            if _MFMA.match(line):
                now = max(now, matrix_free)
                matrix_free = now + mfma_cycles(line, arch)
            elif found := _LDS.match(line):
                of_lane = max(4, int(found[2]) // 8) * (2 if found[1] else 1)
                lds_free = max(now, lds_free) + SIMDS * 64 * of_lane / LDS_BYTES
                arrives.append(lds_free + LDS_LATENCY)
            elif wait := _LDS_WAIT.match(line):
                done = len(arrives) - int(wait[1])
                now = max([now, *arrives[done - 1 : done]]) if done > 0 else now
            now += ISSUE_CYCLES if _INSTRUCTION.match(line) else 0
        ends.append(now)
    return ends[-1] - ends[-2]


def not_skipped(lines: list[str]) -> Iterator[str]:
    """All lines but those between a branch on a scalar and its label, where they multiply nothing
    and have no branch out of them, as the first of two alternatives has."""
    labels = {m[1]: i for i, line in enumerate(lines) if (m := _LABEL.match(line))}
    i = 0
    while i < len(lines):
        yield lines[i]
        skip = _SKIP.match(lines[i])
        end = labels.get(skip[1], i) if skip else i
        between = lines[i + 1 : end]
        plain = not any(_MFMA.match(line) or _BRANCH.match(line) for line in between)
        i = end if end > i and plain else i + 1


def bits_of(types: str, operands: str) -> int:
    """Of an element of an operand, from the name of an MFMA's types and its operands."""
    if types.startswith("f8f6f4"):
        # cbsz is the format of A: 2 and 3 are those of 6 bits, 4 is that of 4 bits.
        found = re.search(r"cbsz:([234])", operands)
        return {"2": 6, "3": 6, "4": 4}[found[1]] if found else 8
    return {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "f64": 64}.get(types.split("_")[0], 8)


def multiply_adds(arch: str, bits: int, operand_bytes: int) -> int:
    """Of an MFMA in a cycle, by the bits of an element and the bytes that a lane has of an
    operand."""
    if arch == "gfx950" and bits <= 16 and operand_bytes <= BYTES_OF_GFX942:
        arch = "gfx942"
    return MULTIPLY_ADDS[arch][bits]


def waves(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """Wavefronts of a SIMD that there is room for."""
    target = get_function("target.Describe")("hip", arch)
    wavefronts = -(-threads // int(target["warp_threads"]))
    by_registers = REGISTERS // (-(-max(registers, 1) // REGISTER_UNIT) * REGISTER_UNIT)
    blocks = int(target["shared_bytes_per_block"]) // max(shared_bytes, 1)
    return min(WAVES_OF_SIMD, by_registers, max(1, blocks * wavefronts // SIMDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", choices=ARCHS, action="append")
    parser.add_argument("--only", default="", help="rows with this in their names")
    options = parser.parse_args()
    print(f"| {'program':18} | arch   | VGPRs | AGPRs |    LDS | spilled | waves", end="")
    print(" | MFMA | other | bound | busy |")
    print(
        f"|{'-' * 20}|--------|-------|-------|--------|---------|-------|------|-------|-------|"
        "------|"
    )
    for name, example in EXAMPLES.items():
        for arch in options.arch or ARCHS:
            if options.only in name and arch in example.archs:
                print(f"| {name:18} | {arch:6} | {row(example, arch)} |", flush=True)


def row(example: Example, arch: str) -> str:
    """A row of the table: of the kernel that takes the most registers."""
    kernel = example.kernel(arch)
    launches = kernel.launch_plan.kernels
    agprs = [int(a or b) for a, b in _AGPRS.findall(kernel.sass)]
    usages = [kernel.resource_usage[k.name] for k in launches]
    most = max(range(len(usages)), key=lambda i: usages[i].registers)
    usage, launch = usages[most], launches[most]
    shared = (launch.shared_bytes or 0) + usage.static_shared
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    cells = [f"{usage.registers:5}", f"{max(agprs, default=0):5}", f"{shared:6}"]
    cells += [f"{sum(u.spill_stores for u in usages):7}"]
    cells += [f"{waves(arch, threads, usage.registers, shared):5}"]
    loop = max(loops(kernel.sass, arch), key=lambda loop: loop.mfma, default=Loop(0, 0, 0))
    if loop.mfma:
        cells += [f"{loop.mfma:4}", f"{loop.other:5}", f"{loop.bound:5.0%}", f"{loop.busy:4.0%}"]
    else:
        cells += ["    ", "     ", "     ", "    "]
    return " | ".join(cells)


if __name__ == "__main__":
    main()
