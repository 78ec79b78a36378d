"""What a compiled kernel costs, counted without running it: the same for the same program."""

from __future__ import annotations

import re
from typing import Any

WEIGHED = ("executed", "instructions", "spills")
"""More of these is slower to who cannot time: each is work of a thread. More registers, shared
memory or source may be the price of speed."""

UNKNOWN_EXTENT = 16
"""Iterations of a loop whose number is not known: more than what is around it."""

NAMES = {
    "executed": "statements executed",
    "instructions": "machine instructions",
    "statements": "statements",
    "source": "lines of source",
    "cubin": "cubin, bytes",
    "registers": "registers",
    "spills": "spills, bytes",
    "shared": "shared memory, bytes",
}

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s", re.MULTILINE)


def kernel_costs(kernel: Any) -> dict[str, int]:
    """The costs of a `JITKernel` by the keys of `NAMES`; needs no GPU.

    ``executed`` counts the statements of one thread: those of a loop once for each of its
    iterations (`UNKNOWN_EXTENT` where their number is not known), those of all branches. Registers,
    spills and shared memory are the most of all kernels of a call. ``instructions`` needs nvdisasm
    and is left out without it.
    """
    launches = kernel.artifact.launch_plan.kernels
    usage = kernel.resource_usage
    shared = [
        found.shared_bytes + usage[found.name].static_shared
        for found in launches
        if isinstance(found.shared_bytes, int)
    ]
    bodies = [function.body for function in kernel.artifact.device_mod.functions.values()]
    costs = {
        "executed": sum(map(statements_executed, bodies)),
        "statements": sum(_statements(body, weighted=False) for body in bodies),
        "source": sum(bool(line.strip()) for line in kernel.kernel_source.splitlines()),
        "cubin": len(kernel.cubin),
        "registers": kernel.n_regs,
        "spills": kernel.n_spills,
        "shared": max(shared, default=0),
    }
    if _can_disassemble():
        costs["instructions"] = len(_INSTRUCTION.findall(kernel.sass))
    return costs


def statements_executed(body: Any) -> int:
    """How many statements of `body`, a thread program's, one thread executes: those of a loop once
    for each of its iterations (`UNKNOWN_EXTENT` where their number is not known), those of all
    branches."""
    return _statements(body, weighted=True)


def _statements(body: Any, weighted: bool) -> int:
    """How many statements there are, or are executed."""
    from tvm import tirx
    from tvm_ffi import WalkResult, structural_walk

    total = 0

    def count(_: Any) -> None:
        nonlocal total
        total += 1

    def loop(node: Any) -> Any:
        nonlocal total
        extent = int(node.extent) if isinstance(node.extent, tirx.IntImm) else UNKNOWN_EXTENT
        total += (extent if weighted else 1) * _statements(node.body, weighted)
        return WalkResult.SKIP

    single = (tirx.BufferStore, tirx.Evaluate, tirx.Bind)
    structural_walk(body, [(tirx.For, loop), (single, count)], order="pre")
    return total


def _can_disassemble() -> bool:
    from tilelang.cuda.disassembler import find_nvdisasm

    try:
        find_nvdisasm()
    except RuntimeError:
        return False
    return True
