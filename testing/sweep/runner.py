"""Runs many small kernels in the emulator: lowers each, compiles them in batches, compares.

A case ends in one of three ways: its result equals the reference, it was refused with a documented
exception that names the kernel's line, or it failed, which is a defect.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import get_context
from typing import Any

import torch
import tvm

from tilelang.testing.batch import Batch, lower_one, refusal


@dataclasses.dataclass(frozen=True)
class Case:
    """One kernel: how to define it, its arguments, and what they must hold after the call."""

    name: str
    define: Callable[[], tvm.tirx.PrimFunc]
    arguments: Sequence[torch.Tensor]
    expected: Callable[..., Sequence[torch.Tensor | None]]
    """Takes copies of the arguments, returns their wanted values in float64 or exactly; None for
    those that do not change."""
    tolerance: float = 0.0
    """Largest allowed difference, relative to the largest wanted value."""


@dataclasses.dataclass
class Tally:
    """How many cases ended how, and the texts of refusals and failures."""

    equal: int = 0
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failed: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Adds the cases of `other`."""
        self.equal += other.equal
        self.refused.update(other.refused)
        self.failed += other.failed


def batches(cases: Iterable[Case], size: int) -> Iterator[list[Case]]:
    """The cases in lists of `size`."""
    batch: list[Case] = []
    for case in cases:
        batch.append(case)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _compare(case: Case, arguments: Sequence[torch.Tensor]) -> str | None:
    wanted = case.expected(*(argument.clone() for argument in case.arguments))
    for position, (found, want) in enumerate(zip(arguments, wanted, strict=True)):
        want = case.arguments[position] if want is None else want
        if case.tolerance == 0:
            same = torch.equal(_bits(found), _bits(want.to(found.dtype)))
        else:
            found, want = found.double(), want.double()
            scale = max(want.abs().max().item() if want.numel() else 0.0, 1e-6)
            difference = (found - want).abs().max().item() if want.numel() else 0.0
            same = difference <= case.tolerance * scale
        if not same:
            return f"{case.name}: argument {position} differs"
    return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN equals NaN and -0 differs from 0."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).flatten().view(torch.uint8)


def run_batch(cases: list[Case]) -> Tally:
    """Lowers the cases, builds the kernels of all in one library, runs and compares each."""
    tally = Tally()
    lowered: list[tuple[Case, Any]] = []
    for index, case in enumerate(cases):
        try:
            lowered.append((case, lower_one(case.define(), index)))
        except Exception as error:  # noqa: BLE001 (a defect; the sweep goes on to the next case)
            reason = refusal(error)
            if reason is None:
                tally.failed.append(f"{case.name}: {type(error).__name__}: {str(error)[:200]}")
            else:
                tally.refused[reason] += 1
    if not lowered:
        return tally
    batch = Batch([artifact for _, artifact in lowered])
    for number, (case, _) in enumerate(lowered):
        arguments = [argument.clone() for argument in case.arguments]
        try:
            batch.run(number, arguments)
            wrong = _compare(case, arguments)
        except Exception as error:  # noqa: BLE001 (a defect, as above)
            wrong = f"{case.name}: {type(error).__name__}: {str(error)[:300]}"
        if wrong:
            tally.failed.append(wrong)
        else:
            tally.equal += 1
    return tally


def _run_part(part: tuple[str, int, int, int]) -> Tally:
    from metamorphic import OPERATORS

    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    name, first, step, size = part
    tally = Tally()
    for number, batch in enumerate(batches(OPERATORS[name](), size)):
        if number % step == first:
            tally.add(run_batch(batch))
    return tally


def run(name: str, jobs: int = 1, batch_size: int = 24) -> Tally:
    """Every case of one operator, in `jobs` processes."""
    parts = [(name, first, jobs, batch_size) for first in range(jobs)]
    if jobs == 1:
        return _run_part(parts[0])
    tally = Tally()
    with get_context("spawn").Pool(jobs) as pool:
        for part in pool.imap_unordered(_run_part, parts):
            tally.add(part)
    return tally
