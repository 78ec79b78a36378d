"""Processes that check programs: one that crashes or hangs costs its own program only."""

from __future__ import annotations

import collections
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType

from tilelang.testing.fuzz.check import Outcome, check
from tilelang.testing.fuzz.program import Program

_BATCHES_OF_A_PROCESS = 40
"""Libraries stay loaded in the process that runs them."""


def _serve(connection: Connection) -> None:
    """Checks what arrives until the other side closes."""
    import logging
    import warnings

    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    while True:
        try:
            programs = connection.recv()
        except EOFError:
            return
        connection.send(check(programs))


class _Worker:
    """A process, the programs that it checks, and since when."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.programs: list[Program] = []
        self.since = 0.0
        self.batches = 0

    def submit(self, programs: list[Program]) -> None:
        self.programs, self.since = programs, time.monotonic()
        self.batches += 1
        self.connection.send(programs)

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


class Workers:
    """`jobs` processes. Use as a context, which ends them.

    Example: ``with Workers(2) as workers: outcomes = workers.check(programs)``
    """

    def __init__(self, jobs: int, seconds: float = 60.0):
        self.seconds = seconds
        """How long a program may take by itself."""
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._jobs = jobs

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in (*self._idle, *self._busy):
            worker.close()
        self._idle, self._busy = [], []

    def check(self, programs: Sequence[Program], batch: int = 12) -> list[Outcome]:
        """The outcome of each program, in order."""
        parts = [list(programs[i : i + batch]) for i in range(0, len(programs), batch)]
        known = {
            id(p): o for part, found in self.run(parts) for p, o in zip(part, found, strict=True)
        }
        return [known[id(p)] for p in programs]

    def run(
        self, batches: Iterable[list[Program]]
    ) -> Iterator[tuple[list[Program], list[Outcome]]]:
        """Batches with their outcomes, as they end; those of a crash or a hang one by one."""
        source = iter(batches)
        again: collections.deque[list[Program]] = collections.deque()
        while True:
            while len(self._busy) < self._jobs:
                programs = again.popleft() if again else next(source, None)
                if programs is None:
                    break
                worker = self._idle.pop() if self._idle else _Worker()
                worker.submit(programs)
                self._busy.append(worker)
            if not self._busy:
                return
            ready = wait([w.connection for w in self._busy], timeout=1.0)
            for worker in list(self._busy):
                found = self._collect(worker, worker.connection in ready)
                if found is None:
                    continue
                if isinstance(found, str) and len(worker.programs) > 1:
                    again.extend([p] for p in worker.programs)
                elif isinstance(found, str):
                    yield worker.programs, [Outcome("failed", found, found)]
                else:
                    yield worker.programs, found

    def _collect(self, worker: _Worker, is_ready: bool) -> list[Outcome] | str | None:
        """What a worker has found; how it failed; or None while it works."""
        failed = ""
        found: list[Outcome] = []
        if is_ready:
            try:
                found = worker.connection.recv()
            except EOFError:
                worker.process.join()
                failed = f"crash: the process ended with {worker.process.exitcode}"
        elif time.monotonic() - worker.since > self.seconds * (1 + len(worker.programs) / 8):
            failed = "hang: no result in time"
        else:
            return None
        self._busy.remove(worker)
        if failed or worker.batches >= _BATCHES_OF_A_PROCESS:
            worker.close()
        else:
            self._idle.append(worker)
        return failed or found
