"""Compiles tile programs, runs them, and compares with the interpreter."""

from __future__ import annotations

import dataclasses
import linecache
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import tvm

from tilelang.emulator import schedule
from tilelang.engine.param import CompiledArtifact
from tilelang.testing import batch
from tilelang.testing.batch import Batch
from tilelang.testing.forms import recorder
from tilelang.testing.fuzz.emit import emit
from tilelang.testing.fuzz.interpret import arguments, interpret
from tilelang.testing.fuzz.operations import Values
from tilelang.testing.fuzz.program import Program, Tensor
from tilelang.testing.workers import Outcome
from tilelang.utils.arch import compiled_for, is_amd


def define(program: Program) -> tvm.tirx.PrimFunc:
    """The program's function, traced from its text."""
    text = emit(program)
    path = f"fuzz_{zlib.crc32(text.encode()):08x}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    names: dict[str, Any] = {}
    exec(compile(text, path, "exec"), names)
    return names["main"]


def tensors(program: Program) -> list[torch.Tensor]:
    """The tensors of a call, in parameter order."""
    values = arguments(program)
    return [
        torch.from_numpy(values[t.name]).to(getattr(torch, t.dtype)).contiguous()
        for t in program.tensors
    ]


def difference(program: Program, found: Sequence[torch.Tensor], wanted: dict[str, Values]) -> str:
    """Where the first tensor that differs does, or an empty text."""
    for tensor, result in zip(program.tensors, found, strict=True):
        where = _first_difference(tensor, result, wanted[tensor.name])
        if where:
            return where
    return ""


def _first_difference(tensor: Tensor, result: torch.Tensor, wanted: Values) -> str:
    wide = torch.float64 if result.is_floating_point() else torch.int64
    if result.itemsize == 1 and result.is_floating_point():
        result = result.float()
    found = result.to(wide).numpy().reshape(-1)
    # The bound is of first order in the errors, and the value is itself rounded.
    close = np.abs(found - wanted.value) <= 2 * np.asarray(wanted.error)
    if close.all():
        return ""
    count, first = int((~close).sum()), int(np.argmin(close))
    place = ", ".join(str(int(i)) for i in np.unravel_index(first, tuple(result.shape)))
    error = float(np.broadcast_to(wanted.error, found.shape)[first])
    bound = f" within {2 * error:.2g}" if error else ""
    return (
        f"{tensor.name}[{place}] is {found[first]}, wanted {wanted.value[first]}{bound}; "
        f"{count} of {len(found)} elements differ"
    )


def check(
    programs: Sequence[Program], device: str = "emulator", forms: str | None = None
) -> list[Outcome | None]:
    """The outcome of each program on a device of `batch.DEVICES`; see `batch.check`. The generated
    forms are added to the file `forms`."""
    return batch.check([_Trial(program) for program in programs], device, recorder(forms))


def _target(arch: str) -> str:
    return f"hip -mcpu={arch}" if is_amd(arch) else f"cuda -arch={arch}"


def _gpu_runs(arch: str) -> bool:
    capability = torch.cuda.get_device_capability()
    return not is_amd(arch) and compiled_for(arch, capability) is not None


@dataclasses.dataclass(frozen=True)
class _Trial:
    """A program as `batch.Trial`."""

    program: Program

    def lower(self, index: int, device: str) -> CompiledArtifact | None:
        arch = self.program.arch
        if device == "cuda" and not _gpu_runs(arch):
            return None
        return batch.lower_one(define(self.program), index, _target(arch))

    def arguments(self) -> list[torch.Tensor]:
        return tensors(self.program)

    def launch(self, of: Batch, position: int, arguments: list[torch.Tensor]) -> None:
        launch(of, position, arguments, self.program)

    def difference(self, arguments: list[torch.Tensor]) -> str:
        return difference(self.program, arguments, interpret(self.program))


def launch(of: Batch, position: int, given: list[torch.Tensor], program: Program) -> None:
    """Calls a program of a batch under the program's schedule, which a GPU does not know."""
    with schedule(**dataclasses.asdict(program.schedule)):
        of.run(position, given)


def replay(func: tvm.tirx.PrimFunc, program: Program, device: str = "emulator") -> None:
    """Runs `func`, which is the text of `program`, and compares with the interpreter.

    Raises `AssertionError` for the first tensor that differs, and what compilation raises.
    """
    given = tensors(program)
    of = Batch([batch.lower_one(func, 0, _target(program.arch))], device)
    launch(of, 0, given, program)
    wrong = difference(program, given, interpret(program))
    assert not wrong, wrong
    print("equal")
