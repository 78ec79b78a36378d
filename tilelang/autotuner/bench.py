"""Timing some configurations on one device: in turns, in a process that is replaced when it is
lost."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilelang.autotuner import session
from tilelang.autotuner.candidate import Candidate
from tilelang.autotuner.processes import CallFailed, Child, ProcessLost

ROUNDS = 5
"""Turns that each configuration has, behind one that only warms the chip up."""

ESTIMATE_RUNS = 3


@dataclass(frozen=True)
class Rules:
    """How configurations are timed.

    Attributes:
        device: ``"cuda"``, ``"emulator"``, or ``module:name`` of what makes a `session.Device`.
        backend: of `do_bench`.
        rep: timed runs of a configuration in all turns together.
        seconds: how long a configuration may take to be checked, and for each turn.
        factor: a configuration whose first estimate is so many times the best time is timed no
            further; None: all are.
    """

    device: str
    backend: str = "event"
    rep: int = 100
    seconds: float = 100.0
    factor: float | None = None

    @property
    def rounds(self) -> int:
        """The emulator's time is the same each time."""
        return 0 if self.device == "emulator" else ROUNDS


@dataclass(frozen=True)
class Measured:
    """What was found of a configuration.

    Attributes:
        latency: milliseconds; None where it failed.
        failure: why it failed, empty where it did not.
        stopped: whether it was given up as a clear loser: `latency` is an estimate then.
        outputs: what it has computed, where that is checked by hand.
    """

    latency: float | None = None
    failure: str = ""
    stopped: bool = False
    outputs: list[Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Batch:
    """Configurations to be timed together.

    Attributes:
        run: tells tuning runs apart.
        number: of the GPU.
        rules: how they are timed.
        candidates: by number, each with the name of its workload.
        workloads: by name, as bytes.
        best: the best time until now.
        checked: whether they have been admitted before.
    """

    run: str
    number: int
    rules: Rules
    candidates: Mapping[int, tuple[Candidate, str]]
    workloads: Mapping[str, bytes]
    best: float | None = None
    checked: bool = False


class Bench:
    """One device's process, and what it knows."""

    def __init__(self, rules: Rules, number: int = 0):
        self._rules, self._number = rules, number
        self._child: Child | None = None
        self._known: set[str | int] = set()

    def close(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.close()
            self._child = None
        self._known.clear()

    def _call(self, function: Any, *arguments: Any) -> Any:
        assert self._child is not None
        try:
            return self._child.call(function, *arguments, seconds=self._rules.seconds)
        except ProcessLost:
            self.close()
            raise
        except CallFailed as error:
            if error.kind == session.DeviceLost.__name__:
                self.close()
            raise

    def _open(self, batch: Batch, workload: str) -> None:
        if self._child is None:
            self._child = Child()
            rules = self._rules
            self._call(session.open_session, rules.device, self._number, rules.backend)
        if workload not in self._known:
            self._call(session.in_session, "add_workload", workload, batch.workloads[workload])
            self._known.add(workload)

    def run(self, batch: Batch) -> dict[int, Measured]:
        """Checks and times the configurations of a batch."""
        found: dict[int, Measured] = {}
        times: dict[int, list[float]] = {}
        best = batch.best
        for number in batch.candidates:
            found[number] = self._admit(batch, number, best)
            latency = found[number].latency
            if latency is not None and not found[number].stopped:
                best = latency if best is None else min(best, latency)
                times[number] = []
        for turn in range(1 + self._rules.rounds if self._rules.rounds else 0):
            # In the opposite order every other time, so that a warming chip favours nobody.
            for number in list(times)[:: -1 if turn % 2 else 1]:
                try:
                    times[number].append(self._time(batch, number, self._runs))
                except (CallFailed, ProcessLost) as error:
                    del times[number]
                    found[number] = Measured(failure=str(error))
        for number, taken in times.items():
            if taken:
                latency = statistics.median(taken[1:])
                found[number] = Measured(latency, outputs=found[number].outputs)
        return found

    @property
    def _runs(self) -> int:
        return max(1, self._rules.rep // ROUNDS)

    def _admit(self, batch: Batch, number: int, best: float | None) -> Measured:
        candidate, workload = batch.candidates[number]
        outputs = None
        try:
            self._open(batch, workload)
            if not batch.checked:
                outputs = self._call(session.in_session, "admit", number, candidate, workload)
                self._known.add(number)
            estimate = self._time(batch, number, ESTIMATE_RUNS)
        except (CallFailed, ProcessLost) as error:
            return Measured(failure=str(error))
        factor = self._rules.factor
        lost = factor is not None and best is not None and estimate > factor * best
        return Measured(estimate, stopped=lost, outputs=outputs)

    def _time(self, batch: Batch, number: int, runs: int) -> float:
        candidate, workload = batch.candidates[number]
        self._open(batch, workload)
        if number not in self._known:
            # Another one has taken the process with it since.
            self._call(session.in_session, "load", number, candidate, workload)
            self._known.add(number)
        return float(self._call(session.in_session, "time", number, runs))


_benches: dict[tuple[str, int], Bench] = {}
_locks: dict[int, threading.Lock] = {}


def run_batch(batch: Batch) -> dict[int, Measured]:
    """Times a batch on this machine. The task that a tuner gives to executors; the process stays
    for the next batch of the run. One batch at a time runs on a device."""
    with _locks.setdefault(batch.number, threading.Lock()):
        for key in [k for k in _benches if k[0] != batch.run and k[1] == batch.number]:
            _benches.pop(key).close()
        bench = _benches.setdefault((batch.run, batch.number), Bench(batch.rules, batch.number))
        return bench.run(batch)


def end_run(run: str) -> None:
    """Ends the processes of a tuning run on this machine."""
    for key in [k for k in _benches if k[0] == run]:
        _benches.pop(key).close()
