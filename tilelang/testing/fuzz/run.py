"""The fuzzer's loop: generate, check, shrink what fails, count."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from tilelang.testing.batch import BATCHES_OF_A_PROCESS
from tilelang.testing.fuzz import coverage
from tilelang.testing.fuzz.check import check
from tilelang.testing.fuzz.draw import Drawn, drawn
from tilelang.testing.fuzz.emit import emit
from tilelang.testing.fuzz.program import Program
from tilelang.testing.fuzz.shrink import shrink
from tilelang.testing.workers import Outcome, Workers

_SHRUNK_OF_A_REASON = 2
_SECONDS_TO_SHRINK = 60
_SECONDS_OF_SILENCE = 300


@dataclasses.dataclass
class Failure:
    """A program that fails, as it was found and made small."""

    name: str
    program: Program
    outcome: Outcome
    small: Program


@dataclasses.dataclass
class Report:
    """What a run has seen."""

    programs: int = 0
    equal: int = 0
    seconds: float = 0.0
    twins: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    skipped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    refused_first: dict[str, str] = dataclasses.field(default_factory=dict)
    failures: list[Failure] = dataclasses.field(default_factory=list)
    features: collections.Counter[str] = dataclasses.field(
        default_factory=lambda: coverage.count([])
    )

    def rate(self) -> float:
        """Programs and twins that are checked in a second."""
        ended = self.equal + self.refused.total() + self.skipped.total() + len(self.failures)
        return ended / max(self.seconds, 1e-9)

    def text(self) -> str:
        """The summary: programs, coverage, refusals, failures."""
        kinds = ", ".join(f"{n} {name}" for name, n in sorted(self.twins.items()))
        lines = [
            f"{self.programs} programs and {self.twins.total()} twins ({kinds}):",
            f"{self.equal} equal, {self.refused.total()} refused, {len(self.failures)} failed"
            + "".join(f", {n} skipped: {reason}" for reason, n in self.skipped.items()),
            f"{self.seconds:.0f} seconds, {self.rate():.1f} programs and twins a second",
            "",
            "programs with",
        ]
        lines += [f"{n:>7}  {name}" for name, n in self.features.items()]
        lines += ["", "refused" if self.refused else "nothing refused"]
        for reason, n in self.refused.most_common():
            lines.append(f"{n:>7}  {reason} (first: {self.refused_first[reason]})")
        lines += ["", "failed" if self.failures else "nothing failed"]
        lines += [f"  {f.name}: {f.outcome.reason}: {f.outcome.text[:200]}" for f in self.failures]
        return "\n".join(lines)


def run(
    seed: int,
    seconds: float,
    jobs: int,
    first: int = 0,
    limit: int | None = None,
    twin_count: int = 1,
    say: Callable[[str], None] = print,
    save: Callable[[str, str], None] = lambda name, text: print(text),
    device: str = "emulator",
    forms: str | None = None,
    shrinking: float = _SECONDS_TO_SHRINK,
) -> Report:
    """Checks programs of a seed, from number `first`, until the time or their number is over, on a
    device of `tilelang.testing.batch.DEVICES`. What fails is made smaller for `shrinking` seconds.

    `say` is told of a failure at once, and how far the run is every few minutes; `save` takes a
    failure's name and the small program, as a file that runs, at the end.
    """
    report = Report()
    names: dict[int, str] = {}
    begin = time.monotonic()
    end = begin + seconds
    # A schedule is the emulator's.
    without = ("schedule",) if device == "cuda" else ()

    counted = itertools.count(first) if limit is None else iter(range(first, first + limit))
    numbers = itertools.takewhile(lambda number: time.monotonic() <= end, counted)

    def batches() -> Iterator[list[Program]]:
        batch: list[Program] = []
        for found in drawn(seed, twin_count, without, numbers, max(1, jobs // 2)):
            batch += _counted(report, names, seed, found)
            if len(batch) >= 24:
                yield batch
                batch = []
        if batch:
            yield batch

    function = functools.partial(check, device=device, forms=forms)
    with Workers[Program](function, jobs, batches=BATCHES_OF_A_PROCESS[device]) as workers:
        failed: list[tuple[str, Program, Outcome]] = []
        told = time.monotonic()
        for programs, outcomes in workers.run(batches()):
            if time.monotonic() > told + _SECONDS_OF_SILENCE:
                told = time.monotonic()
                left = max(end - told, 0) / 60
                say(f"{report.programs} programs, {len(failed)} failed, {left:.0f} minutes left")
            for program, outcome in zip(programs, outcomes, strict=True):
                name = names[id(program)]
                if outcome.status == "equal":
                    report.equal += 1
                elif outcome.status == "refused":
                    report.refused[outcome.reason] += 1
                    report.refused_first.setdefault(outcome.reason, name)
                elif outcome.status == "skipped":
                    report.skipped[outcome.reason] += 1
                else:
                    failed.append((name, program, outcome))
                    say(f"{name} failed: {outcome.reason}: {outcome.text[:200]}")
        report.seconds = time.monotonic() - begin
        report.failures = made_small(workers, failed, say, save, device, shrinking)
    return report


def made_small(
    workers: Workers[Program],
    failed: Sequence[tuple[str, Program, Outcome]],
    say: Callable[[str], None],
    save: Callable[[str, str], None],
    device: str = "emulator",
    seconds: float = _SECONDS_TO_SHRINK,
) -> list[Failure]:
    """The failures, the first ones of each reason shrunk; with what failed otherwise on the way:
    smaller programs mean something, too."""
    failures: list[Failure] = []
    reasons = {outcome.reason for _, _, outcome in failed}
    shrunk: collections.Counter[str] = collections.Counter()
    for name, program, outcome in failed:
        shrunk[outcome.reason] += 1
        small = program
        if shrunk[outcome.reason] <= _SHRUNK_OF_A_REASON:
            others: dict[str, tuple[Program, Outcome]] = {}
            small = shrink(program, _fails(workers, outcome, others), seconds)
            save(name, listing(name, small, outcome, device))
            for reason in sorted(others.keys() - reasons):
                reasons.add(reason)
                other, found = others[reason]
                part = f"{name} made smaller, {len(reasons)}"
                say(f"{part} failed: {reason}: {found.text[:200]}")
                save(part, listing(part, other, found, device))
                failures.append(Failure(part, other, found, other))
        failures.append(Failure(name, program, outcome, small))
    return failures


def _counted(report: Report, names: dict[int, str], seed: int, found: Drawn) -> list[Program]:
    """A program and its twins, counted and named."""
    report.programs += 1
    report.features.update(coverage.count([found.features]))
    names[id(found.program)] = f"{seed}/{found.number}"
    for name, twin in found.twins:
        report.twins[name] += 1
        names[id(twin)] = f"{seed}/{found.number} {name}"
    return [found.program, *(twin for _, twin in found.twins)]


def _fails(
    workers: Workers[Program], outcome: Outcome, others: dict[str, tuple[Program, Outcome]]
) -> Callable[[Sequence[Program]], list[bool]]:
    """Tells which programs fail for the reason of `outcome`; the first one of each other reason is
    noted in `others`."""

    def fails(programs: Sequence[Program]) -> list[bool]:
        found = workers.check(programs, batch=2)
        for program, o in zip(programs, found, strict=True):
            if o.status == "failed" and o.reason != outcome.reason:
                others.setdefault(o.reason, (program, o))
        return [o.status == "failed" and o.reason == outcome.reason for o in found]

    return fails


def listing(name: str, program: Program, outcome: Outcome, device: str = "emulator") -> str:
    """The program as a Python file that checks itself against the interpreter's result."""
    quoted = outcome.text.strip().replace("\\", "/").replace('"""', "'''")
    return (
        f'"""Program {name} of the fuzzer: {outcome.reason}\n\n{quoted}\n\n'
        f'{device}, {program.arch}, {program.schedule}\n"""\n\n'
        f"{emit(program)}\n\n"
        'if __name__ == "__main__":\n'
        "    from tilelang.testing.fuzz.check import replay\n"
        "    from tilelang.testing.fuzz.program import *\n\n"
        f"    replay(main, {program!r}, {device!r})\n"
    )
