"""Runs many small kernels, in the emulator or on a GPU: lowers each, compiles them in batches,
compares.

A case ends in one of three ways: its result equals the reference, it was refused with a documented
exception that names the kernel's line, or it failed, which is a defect.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import tvm

from tilelang.emulator import schedule
from tilelang.engine.param import CompiledArtifact
from tilelang.testing import batch
from tilelang.testing.batch import Batch
from tilelang.testing.forms import recorder
from tilelang.testing.workers import Outcome, Workers
from tilelang.utils.target import cuda_arch

_CASES_OF_A_BATCH = 24
SHOWN = 20
"""How many failures of an operator or class are printed."""
SECONDS_BETWEEN_COUNTS = 60
TARGET = "cuda -arch=sm_90a"
"""What the emulator's cases are compiled for, where nothing else is asked for."""


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
    schedule: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How the emulator runs it: arguments of `tilelang.emulator.schedule`."""


@dataclasses.dataclass
class Tally:
    """How many cases ended how, and the texts of refusals and failures."""

    equal: int = 0
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    refused_first: dict[str, str] = dataclasses.field(default_factory=dict)
    """The name of the first case that was refused for a reason."""
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of the failed cases, by name."""
    failed: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, outcome: Outcome) -> None:
        """Counts a case."""
        if outcome.status == "equal":
            self.equal += 1
        elif outcome.status == "refused":
            self.refused[outcome.reason] += 1
            self.refused_first.setdefault(outcome.reason, name)
        else:
            self.reasons[name] = outcome.reason
            # What a compiler says may be long; its beginning says what is wrong.
            self.failed.append(f"{name}: {outcome.reason}: {outcome.text[:4000]}")


class Progress:
    """What is known of an operator or class before its last case has ended, on stderr: failures
    when they are found, and the counts each minute. A sweep that is ended early has said it."""

    def __init__(self) -> None:
        self._failed: collections.Counter[str] = collections.Counter()
        self.printed = time.perf_counter()

    def __call__(self, name: str, tally: Tally) -> None:
        for line in tally.failed[self._failed[name] : SHOWN]:
            print(f"failed: {line[:300]}", file=sys.stderr, flush=True)
        self._failed[name] = len(tally.failed)
        if time.perf_counter() - self.printed < SECONDS_BETWEEN_COUNTS:
            return
        self.printed = time.perf_counter()
        refused = sum(tally.refused.values())
        counts = f"{tally.equal} equal, {refused} refused, {len(tally.failed)} failed"
        print(f"{name}: {counts} so far", file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A case as `batch.Trial`."""

    case: Case
    target: str

    def lower(self, index: int, device: str) -> CompiledArtifact:
        target = f"cuda -arch={cuda_arch()}" if device == "cuda" else self.target
        return batch.lower_one(self.case.define(), index, target)

    def arguments(self) -> list[torch.Tensor]:
        copies = {id(argument): argument.clone() for argument in self.case.arguments}
        return [copies[id(argument)] for argument in self.case.arguments]

    def launch(self, of: Batch, position: int, arguments: list[torch.Tensor]) -> None:
        with schedule(**self.case.schedule):
            of.run(position, arguments)

    def difference(self, arguments: list[torch.Tensor]) -> str:
        wanted = self.case.expected(*self.arguments())
        for position, (found, want) in enumerate(zip(arguments, wanted, strict=True)):
            want = self.case.arguments[position] if want is None else want
            wrong = _difference(found, want, self.case.tolerance)
            if wrong:
                return f"argument {position} {wrong}"
        return ""


def _difference(found: torch.Tensor, want: torch.Tensor, tolerance: float) -> str:
    if tolerance == 0:
        want = want.to(found.dtype)
        same = (_bytes(found) == _bytes(want)).reshape(found.numel(), -1).all(1)
    else:
        found, want = found.double(), want.double()
        finite = want[want.isfinite()].abs()
        scale = max(finite.max().item() if finite.numel() else 0.0, 1e-6)
        same = ((found == want) | ((found - want).abs() <= tolerance * scale)).flatten()
    if same.all():
        return ""
    first = int((~same).nonzero()[0])
    return (
        f"differs in {int((~same).sum())} of {same.numel()} elements, first in element {first}: "
        f"found {found.flatten()[first]}, wanted {want.flatten()[first]}"
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN equals NaN and -0 differs from 0."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor).flatten().view(torch.uint8)


def run_batch(cases: Sequence[Case], target: str = TARGET) -> Tally:
    """Lowers the cases, builds the kernels of all in one library, runs in the emulator and compares
    each."""
    tally = Tally()
    outcomes = batch.check([Trial(case, target) for case in cases])
    for case, outcome in zip(cases, outcomes, strict=True):
        if outcome is not None:
            tally.add(case.name, outcome)
    return tally


Place = tuple[str, int]
"""An operator and the number of one of its cases: what a process can be told of a case."""

_walks: dict[str, tuple[int, Iterator[Case]]] = {}


@dataclasses.dataclass(frozen=True)
class Draws:
    """Which programs of the drawn classes."""

    seed: int = 0
    count: int = 100


def _case(place: Place, draws: Draws) -> Case:
    """The case of that place; cheapest in rising order."""
    name, number = place
    position, cases = _walks.get(name, (0, None))
    if cases is None or number < position:
        position, cases = 0, _cases(name, draws)
    found = next(itertools.islice(cases, number - position, None))
    _walks[name] = number + 1, cases
    return found


def _cases(name: str, draws: Draws) -> Iterator[Case]:
    from classes import CLASSES, programs
    from registers import OPERATORS

    torch.manual_seed(0)
    if name in CLASSES:
        return (program.case() for program in programs(name, draws.seed, draws.count))
    return OPERATORS[name]()


def check(
    places: list[Place],
    device: str = "emulator",
    forms: str | None = None,
    target: str = TARGET,
    draws: Draws = Draws(),
) -> list[Outcome | None]:
    """The outcomes of the cases of these places."""
    trials = [Trial(_case(place, draws), target) for place in places]
    return batch.check(trials, device, recorder(forms))


def _batches(name: str, names: dict[Place, str], every: int, draws: Draws) -> Iterator[list[Place]]:
    """The places of each `every`-th case; notes the names of the cases."""
    places: list[Place] = []
    for number, case in enumerate(_cases(name, draws)):
        if number % every:
            continue
        names[name, number] = case.name
        places.append((name, number))
        if len(places) == _CASES_OF_A_BATCH:
            yield places
            places = []
    if places:
        yield places


def run(
    operators: Sequence[str],
    jobs: int,
    device: str = "emulator",
    forms: str | None = None,
    target: str = TARGET,
    every: int = 1,
    draws: Draws = Draws(),
    progress: Callable[[str, Tally], None] = lambda name, tally: None,
) -> Iterator[tuple[str, Tally]]:
    """The cases 0, `every`, 2 * `every`, .. of the operators and drawn classes, in `jobs`
    processes; each one's tally when it is complete.

    The emulator's cases are compiled for `target`, those of a GPU for the GPU. The generated forms
    are added to the file `forms`. `progress` is called after each batch.
    """
    names: dict[Place, str] = {}
    tallies = {name: Tally() for name in operators}
    left = dict.fromkeys(operators, 0)
    issued: set[str] = set()

    def batches() -> Iterator[list[Place]]:
        for name in operators:
            for places in _batches(name, names, every, draws):
                left[name] += len(places)
                yield places
            issued.add(name)

    function = functools.partial(check, device=device, forms=forms, target=target, draws=draws)
    with Workers[Place](function, jobs, batches=batch.BATCHES_OF_A_PROCESS[device]) as workers:
        for places, outcomes in workers.run(batches()):
            for place, outcome in zip(places, outcomes, strict=True):
                tallies[place[0]].add(names[place], outcome)
                left[place[0]] -= 1
            progress(places[0][0], tallies[places[0][0]])
            for name in [n for n in tallies if n in issued and left[n] == 0]:
                yield name, tallies.pop(name)
    yield from tallies.items()
