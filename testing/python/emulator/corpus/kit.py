"""Bases, defects planted in them, and what a run of either is blamed for."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilelang import emulator
from tilelang.emulator import EmulationError, Report
from tilelang.emulator.compiler import EmulatedModule, build_emulated

from .maps import maps_of

KERNEL = re.compile(r'^extern "C" __global__ [^{]*?\b(?!__launch_bounds__)(\w+)\(', re.MULTILINE)
_PLACE = re.compile(r"[\w.]+:\d+")

SCHEDULES = (
    ("round_robin", "late", 0),
    ("round_robin", "early", 0),
    ("adversarial", "late", 0),
    ("adversarial", "random", 1),
    *[("random", "random", seed) for seed in range(4)],
)
"""Order, moment of asynchronous work, and seed: those that look for a defect, in turn."""


@dataclass(frozen=True)
class Launch:
    """The arguments of one run, and pairs of an array that it writes and what has to be in it."""

    arguments: Sequence[Any]
    results: Sequence[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Base:
    """A kernel without a defect.

    Attributes:
        text: gives emitted source with one kernel.
        launch: makes a `Launch`.
        grid, block, shared, cluster, cooperative: how it is launched; `shared` is the number of
            bytes of dynamic shared memory.
        arch: the oldest architecture that has its instructions.
    """

    text: Callable[[], str]
    launch: Callable[[], Any]
    grid: int = 1
    block: int = 64
    shared: int = 1024
    cluster: int = 1
    cooperative: bool = False
    arch: str = "sm_80"

    @staticmethod
    def of_file(name: str, launch: Callable[[], Launch], **how: Any) -> Base:
        """The kernel in ``bases/<name>.cu``."""
        return Base((Path(__file__).parent / "bases" / f"{name}.cu").read_text, launch, **how)


@dataclass(frozen=True)
class RankBase(Base):
    """A kernel without a defect that several ranks run; `launch` makes a `Launch` of each.

    Attributes:
        plan: gives its launch plan, which says what the kernel takes beside the arguments.
    """

    plan: Callable[[], Any] = lambda: None

    def arguments(self, launches: Sequence[Launch]) -> list[list[Any]]:
        """What the kernel takes on each rank: arrays, numbers, tensor maps."""
        plan = self.plan()
        names = [plan.params[i].name for i in plan.arguments]
        of_tensors = {
            name: [launch.arguments[i] for launch in launches] for i, name in enumerate(names)
        }
        of_ranks = []
        for rank in range(len(launches)):
            values: dict[str, Any] = {name: of[rank] for name, of in of_tensors.items()}
            values |= {"tl_rank": rank, "tl_num_ranks": len(launches)}
            for name, arrays in of_tensors.items():
                addresses = [array.ctypes.data for array in arrays]
                values[f"{name}_peers"] = np.array(addresses, np.int64)
            for d in plan.descriptors:
                if d.peers:
                    maps = maps_of(d, of_tensors[d.param.removesuffix("_peers")])
                    values[d.name] = pointer = ctypes.c_void_p(ctypes.addressof(maps))
                    pointer.maps = maps  # live as long as the pointer
                else:
                    values[d.name] = maps_of(d, [values[d.param]])
            of_ranks.append([values[arg[1]] for arg in plan.kernels[0].args])
        return of_ranks


@dataclass(frozen=True)
class Defect:
    """A mutation of a base, and the report of it.

    Attributes:
        base: name of the kernel.
        old, new: `old` occurs once in the base, or it is the `nth` that is replaced.
        kind: of the report.
        lines: text that the lines of the report contain, in any order: of both accesses of a race,
            of the access, or of a failure.
        says: part of the report's message.
        missing: part of the ordering that a race lacks.
        also: other kinds that follow from the same defect. A read that comes before the write that
            it races with may find nothing there.
    """

    base: str
    old: str
    new: str
    kind: str
    lines: tuple[str, ...]
    says: str = ""
    missing: str = ""
    also: tuple[str, ...] = ()
    nth: int | None = None

    def mutate(self, text: str) -> str:
        """The base with the defect."""
        parts = text.split(self.old)
        assert len(parts) == 2 or (self.nth is not None and len(parts) > 2), (self.old, len(parts))
        at = (self.nth or 0) % (len(parts) - 1) + 1
        return self.old.join(parts[:at]) + self.new + self.old.join(parts[at:])

    def kinds(self) -> set[str]:
        """Of all reports of the defect."""
        return {self.kind, *self.also, *(("uninitialized",) if self.kind == "race" else ())}

    def is_kind(self, report: Report) -> bool:
        """Whether the report is of this kind and says what it should."""
        return (
            report.kind == self.kind
            and self.says in report.message
            and self.missing in report.missing
        )

    def is_at(self, report: Report, text: str, name: str) -> bool:
        """Whether the report is at the lines of the mutated `text`."""
        found = _places(report)
        wanted = [
            {f"{name}:{i}" for i, line in enumerate(text.splitlines(), 1) if part in line}
            for part in self.lines
        ]
        assert all(wanted), f"{self.lines} are not in the mutated source"
        if report.kind == "failure":
            return all(places & set(found) for places in wanted)
        return len(found) == len(wanted) and any(
            all(place in places for place, places in zip(order, wanted, strict=True))
            for order in (found, found[::-1])
        )


def _places(report: Report) -> list[str]:
    if report.access is None:
        return _PLACE.findall(report.message)
    accesses = (report.access, report.other)
    return [access.place for access in accesses if access and access.engine != "host"]


class Corpus:
    """Bases and defects that are compiled as one program.

    Args:
        bases: by name.
        defects: by name.
        warp_threads: lanes of a warp.
    """

    def __init__(self, bases: dict[str, Base], defects: dict[str, Defect], warp_threads: int = 32):
        self.bases = bases
        self.defects = defects
        self.warp_threads = warp_threads
        self._module: EmulatedModule | None = None

    def run(self, name: str) -> tuple[Report, ...]:
        """What a base or a base with a defect is blamed for under the current schedule; a base
        without reports has computed what it should."""
        defect = self.defects.get(name)
        base = self.bases[defect.base if defect else name]
        launch = base.launch()
        if isinstance(base, RankBase):
            reports = self._run_ranks(name, base, launch)
            results = [pair for of_rank in launch for pair in of_rank.results]
            for found, wanted in () if defect or reports else results:
                np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-3)
            return reports
        arrays = [a if isinstance(a, np.ndarray) else None for a in launch.arguments]
        try:
            self._built().launch(
                _identifier(name),
                (base.grid, 1, 1),
                (base.block, 1, 1),
                base.shared,
                [_argument(a) for a in launch.arguments],
                cluster=(base.cluster, 1, 1),
                cooperative=base.cooperative,
                arrays=arrays,
            )
        except EmulationError as error:
            return error.reports
        for found, wanted in () if defect else launch.results:
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-3)
        return ()

    def _run_ranks(
        self, name: str, base: RankBase, launches: Sequence[Launch]
    ) -> tuple[Report, ...]:
        """The same of a kernel that several ranks run."""
        given = base.arguments(launches)
        try:
            self._built().launch_ranks(
                _identifier(name),
                (base.grid, 1, 1),
                (base.block, 1, 1),
                base.shared,
                [
                    [ctypes.c_int(a) if isinstance(a, int) else _argument(a) for a in args]
                    for args in given
                ],
                arrays=[[a if isinstance(a, np.ndarray) else None for a in args] for args in given],
            )
        except EmulationError as error:
            return error.reports
        return ()

    def text(self, name: str) -> str:
        """The source of a base, or of a base with a defect."""
        defect = self.defects.get(name)
        text = self.bases[defect.base if defect else name].text()
        return defect.mutate(text) if defect else text

    def _built(self) -> EmulatedModule:
        if self._module is None:
            includes: dict[str, None] = {}
            kernels = []
            names = [*self.bases, *self.defects]
            for name in names:
                lines = self.text(name).splitlines()
                includes |= dict.fromkeys(line for line in lines if line.startswith("#include"))
                kept = ["" if line.startswith("#include") else line for line in lines]
                text = "\n".join(kept)
                found = KERNEL.search(text)
                assert found, name
                renamed = text[: found.start(1)] + _identifier(name) + text[found.end(1) :]
                kernels.append(f'#line 1 "{_identifier(name)}"\n{renamed}\n')
            source = "\n".join([*includes, *kernels])
            self._module = build_emulated(
                source,
                [_identifier(n) for n in names],
                checks=True,
                warp_threads=self.warp_threads,
            )
        return self._module


@dataclass(frozen=True)
class Finding:
    """What was found of a defect: the reports, whether one is of the right kind, one of those at
    the right lines, and whether all others are of expected kinds; the schedule, and which one in
    turn it was."""

    reports: tuple[Report, ...]
    right_kind: bool
    right_line: bool
    only: bool
    schedule: str
    tries: int  # schedules, this one included

    @property
    def good(self) -> bool:
        """Whether the defect is found as it should."""
        return self.right_kind and self.right_line and self.only


def find(corpus: Corpus, name: str) -> Finding:
    """Runs a defect under schedule after schedule until one finds it; else the last finding."""
    defect, finding = corpus.defects[name], Finding((), False, False, False, "", 0)
    text = corpus.text(name)
    for tries, (order, moment, seed) in enumerate(SCHEDULES, 1):
        with emulator.schedule(order, asynchronous=moment, seed=seed):
            reports = corpus.run(name)
        if not reports:
            continue
        of_kind = [report for report in reports if defect.is_kind(report)]
        finding = Finding(
            reports,
            bool(of_kind),
            any(defect.is_at(report, text, _identifier(name)) for report in of_kind),
            {report.kind for report in reports} <= defect.kinds(),
            f"{order} {moment} {seed}",
            tries,
        )
        if finding.good:
            break
    return finding


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The schedule of a seed: round robin for 0, then random and adversarial ones in turn."""
    order = "round_robin" if seed == 0 else ("random", "adversarial")[seed % 2]
    moment = ("late", "early", "random")[seed % 3]
    with emulator.schedule(order, asynchronous=moment, seed=seed):
        yield


def _identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return value
