"""Processes that check items: one that crashes, hangs or loses its GPU costs its own item only."""

from __future__ import annotations

import collections
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")

_SECONDS_TO_DIE = 10.0
"""A process whose kernel does not end goes when the driver has taken it off the GPU."""


@dataclass(frozen=True)
class Outcome:
    """How an item ended: ``equal``, ``refused``, ``skipped`` or ``failed``; why, in words that are
    equal for the same reason; and in full."""

    status: str
    reason: str = ""
    text: str = ""


Check = Callable[[list[Any]], list[Outcome | None]]
"""Gives the outcome of each item, None for those that it has not come to because the process can
run nothing any more. A function that pickles."""


def _serve(connection: Connection, check: Check) -> None:
    """Checks what arrives until the other side closes."""
    import logging
    import warnings

    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    while True:
        try:
            items = connection.recv()
        except EOFError:
            return
        connection.send(check(items))


class _Worker(Generic[Item]):
    """A process, the items that it checks, and since when."""

    def __init__(self, check: Check) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_serve, args=(theirs, check), daemon=True
        )
        self.process.start()
        theirs.close()
        self.items: list[Item] = []
        self.since = 0.0
        self.batches = 0

    def submit(self, items: list[Item]) -> None:
        self.items, self.since = items, time.monotonic()
        self.batches += 1
        self.connection.send(items)

    def close(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join(_SECONDS_TO_DIE)


class Workers(Generic[Item]):
    """`jobs` processes that call `check`. Use as a context, which ends them.

    Example: ``with Workers(check, 2) as workers: outcomes = workers.check(items)``
    """

    def __init__(self, check: Check, jobs: int, seconds: float = 60.0, batches: int = 40):
        self.seconds = seconds
        """How long an item may take by itself."""
        self.batches = batches
        """After how many batches a process is replaced: libraries stay loaded in it."""
        self._check = check
        self._idle: list[_Worker[Item]] = []
        self._busy: list[_Worker[Item]] = []
        self._jobs = jobs

    def __enter__(self) -> Workers[Item]:
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

    def check(self, items: Sequence[Item], batch: int = 12) -> list[Outcome]:
        """The outcome of each item, in order."""
        parts = [list(items[i : i + batch]) for i in range(0, len(items), batch)]
        known = {
            id(p): o for part, found in self.run(parts) for p, o in zip(part, found, strict=True)
        }
        return [known[id(p)] for p in items]

    def run(self, batches: Iterable[list[Item]]) -> Iterator[tuple[list[Item], list[Outcome]]]:
        """Batches with their outcomes, as they end; those of a crash or a hang one by one."""
        source = iter(batches)
        again: collections.deque[list[Item]] = collections.deque()
        while True:
            while len(self._busy) < self._jobs:
                items = again.popleft() if again else next(source, None)
                if items is None:
                    break
                worker = self._idle.pop() if self._idle else _Worker[Item](self._check)
                worker.submit(items)
                self._busy.append(worker)
            if not self._busy:
                return
            ready = wait([w.connection for w in self._busy], timeout=1.0)
            for worker in list(self._busy):
                found = self._collect(worker, worker.connection in ready)
                if found is None:
                    continue
                if isinstance(found, str) and len(worker.items) > 1:
                    again.extend([item] for item in worker.items)
                elif isinstance(found, str):
                    yield worker.items, [Outcome("failed", found, found)]
                else:
                    pairs = list(zip(worker.items, found, strict=True))
                    left = [item for item, outcome in pairs if outcome is None]
                    if left:
                        again.append(left)
                    ended = [(item, outcome) for item, outcome in pairs if outcome is not None]
                    yield [item for item, _ in ended], [outcome for _, outcome in ended]

    def _collect(self, worker: _Worker[Item], is_ready: bool) -> list[Outcome | None] | str | None:
        """What a worker has found; how it failed; or None while it works."""
        failed = ""
        found: list[Outcome | None] = []
        if is_ready:
            try:
                found = worker.connection.recv()
            except (EOFError, ConnectionResetError):  # reset: it has not read its items
                worker.process.join()
                failed = f"crash: the process ended with {worker.process.exitcode}"
        elif time.monotonic() - worker.since > self.seconds * (1 + len(worker.items) / 8):
            failed = "hang: no result in time"
        else:
            return None
        self._busy.remove(worker)
        if found and all(outcome is None for outcome in found):
            failed = "crash: the process can run nothing"
        if failed or None in found or worker.batches >= self.batches:
            worker.close()
        else:
            self._idle.append(worker)
        return failed or found
