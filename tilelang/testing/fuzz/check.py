"""Compiles tile programs, runs them in the emulator, and compares with the interpreter."""

from __future__ import annotations

import dataclasses
import linecache
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import tvm

from tilelang.emulator import schedule
from tilelang.testing.batch import Batch, lower_one, refusal
from tilelang.testing.fuzz.emit import emit
from tilelang.testing.fuzz.interpret import arguments, interpret
from tilelang.testing.fuzz.operations import Values
from tilelang.testing.fuzz.program import Program, Tensor


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program ended: ``equal``, ``refused``, or ``failed``; why, in words that are equal for
    the same reason; and in full."""

    status: str
    reason: str = ""
    text: str = ""


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


def failure(error: Exception) -> Outcome:
    """The outcome of an exception: a documented refusal or a defect."""
    reason = refusal(error)
    if reason is not None:
        return Outcome("refused", reason, str(error))
    line = re.sub(r"\S+\.py:\d+: |0x[0-9a-f]+|\d+", "", str(error).split("\n")[0])
    return Outcome("failed", f"{type(error).__name__}: {line[:120]}", str(error))


def check(programs: Sequence[Program]) -> list[Outcome]:
    """The outcome of each program; their kernels are compiled as one library."""
    outcomes: list[Outcome | None] = [None] * len(programs)
    lowered = []
    for number, program in enumerate(programs):
        try:
            lowered.append((number, lower_one(define(program), number, program.arch)))
        except Exception as error:  # noqa: BLE001 (what it means is the outcome)
            outcomes[number] = failure(error)
    try:
        batch = Batch([artifact for _, artifact in lowered]) if lowered else None
    except RuntimeError as error:
        if len(lowered) > 1:
            # One of them does not compile.
            for number, _ in lowered:
                outcomes[number] = check([programs[number]])[0]
        else:
            line = next((x for x in str(error).split("\n") if "error:" in x), str(error))
            reason = re.sub(r"^.*error: |\d+", "", line)[:120]
            outcomes[lowered[0][0]] = Outcome("failed", f"does not compile: {reason}", str(error))
        lowered = []
    for position, (number, _) in enumerate(lowered):
        assert batch is not None
        outcomes[number] = _run(batch, position, programs[number])
    return [outcome for outcome in outcomes if outcome is not None]


def _run(batch: Batch, position: int, program: Program) -> Outcome:
    given = tensors(program)
    try:
        launch(batch, position, given, program)
    except Exception as error:  # noqa: BLE001 (what it means is the outcome)
        line = re.sub(r"\S+\.py:\d+: |0x[0-9a-f]+|\d+", "", str(error).split("\n")[0])
        return Outcome("failed", f"{type(error).__name__}: {line[:120]}", str(error))
    wrong = difference(program, given, interpret(program))
    return Outcome("failed", "wrong result", wrong) if wrong else Outcome("equal")


def launch(batch: Batch, position: int, given: list[torch.Tensor], program: Program) -> None:
    """Calls a program of a batch under the program's schedule."""
    with schedule(**dataclasses.asdict(program.schedule)):
        batch.run(position, given)


def replay(func: tvm.tirx.PrimFunc, program: Program) -> None:
    """Runs `func`, which is the text of `program`, and compares with the interpreter.

    Raises `AssertionError` for the first tensor that differs, and what compilation raises.
    """
    given = tensors(program)
    launch(Batch([lower_one(func, 0, program.arch)]), 0, given, program)
    wrong = difference(program, given, interpret(program))
    assert not wrong, wrong
    print("equal")
