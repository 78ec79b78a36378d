"""Many small kernels in the emulator: each lowered by itself, all compiled as one library.

The emulator's headers are most of what the C++ compiler reads for a small kernel; together two
dozen kernels take as long as three alone.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import tvm

from tilelang.emulator.compiler import EmulatedModule, build_emulated
from tilelang.engine.lower import lower
from tilelang.engine.param import CompiledArtifact
from tilelang.jit.adapter import emulated_adapter

REFUSALS = (ValueError, TypeError, NotImplementedError, IndexError, AssertionError)
"""What a program that has no kernel is documented to raise."""


def refusal(error: Exception) -> str | None:
    """Why the compiler refuses a program, without places and numbers, so that equal reasons are
    equal texts; None for what is not a documented refusal (another class, or no place in a file).
    """
    text = str(error)
    if not isinstance(error, REFUSALS) or ".py:" not in text or "bug in tilelang" in text:
        return None
    line = re.sub(r"^\S+\.py:\d+: ", "", text.split("\n")[0])
    return re.sub(r"\d+", "N", line)[:160]


def lower_one(func: tvm.tirx.PrimFunc, index: int, arch: str = "sm_90a") -> CompiledArtifact:
    """The lowered function under a name that is its own among `index`."""
    return lower(func.with_attr("global_symbol", f"case{index}"), target=f"cuda -arch={arch}")


class Batch:
    """Kernels of several lowered functions in one library, which stays loaded.

    Example: ``Batch([lower_one(f, k) for k, f in enumerate(functions)]).run(0, [a, b])``

    Raises `RuntimeError` where the sources do not compile.
    """

    def __init__(self, artifacts: Sequence[CompiledArtifact]):
        self._plans = [artifact.launch_plan for artifact in artifacts]
        includes: dict[str, None] = {}
        bodies: list[str] = []
        for artifact in artifacts:
            for line in artifact.kernel_source.splitlines():
                if line.startswith("#include"):
                    includes[line] = None
                else:
                    bodies.append(line)
        names = [kernel.name for plan in self._plans for kernel in plan.kernels]
        with tempfile.TemporaryDirectory() as cache:
            source = "\n".join([*includes, *bodies, ""])
            self._module: EmulatedModule = build_emulated(source, names, Path(cache))

    def run(self, number: int, arguments: Sequence[torch.Tensor]) -> None:
        """Calls the function `number` on CPU tensors; raises what the kernel reports."""
        emulated_adapter(self._plans[number], self._module.address)(*arguments)
