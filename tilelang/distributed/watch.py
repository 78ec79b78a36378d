"""Who is missing while a launch waits: each process watches its launches and says how far it is.

A kernel that waits for a signal knows the signal, not who was to send it. The processes do: one
that has died says nothing any more, and one that does something else has launched less often. The
kernel ends itself a little later, and prints the signal; the two texts name each other.
"""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

SAYS = 1.0
"""Seconds from one word of a process to the next."""
SILENT = 60.0
"""Seconds after which a process that says nothing counts as dead: one that compiles may be busy."""
KERNEL_WAITS = 300
"""Seconds that a kernel waits for a signal (`kSignalSeconds` of src/device/cuda/tl/rank.h)."""
PATIENCE = KERNEL_WAITS - 20.0
"""Seconds that a launch may wait for others, so that their names come first."""


class _Launch(NamedTuple):
    mark: Any
    since: float
    number: int
    kernel: str


class Watch:
    """Watches the launches of one rank of a team, in a thread of its own.

    Where a launch has not ended in `patience` seconds, and a rank has died or has not come to it, a
    line on stderr says which, and so does the `RuntimeError` of this rank's next launch. The kernel
    itself ends by its own time limit; then another line says which launch that was, with the error
    and the ranks. `store` is not used by other threads. `mark(old)` gives an
    object whose `query()` says that what was launched before is complete: `old` with a new meaning
    if it is one; None where nothing is launched.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        mark: Callable[[Any], Any],
        patience: float = PATIENCE,
        silent: float = SILENT,
        says: float = SAYS,
    ):
        self.rank, self.size = rank, size
        self._store, self._mark = store, mark
        self._patience, self._silent, self._says = patience, silent, says
        self._count = 0
        self._kernel = ""
        # The launch that is watched, and the last one behind it, which is watched next.
        self._pending: _Launch | None = None
        self._last: _Launch | None = None
        self._lock = threading.Lock()
        self._heard: dict[int, tuple[Any, float]] = {}
        self._found: str | None = None
        self._device_works = True
        self._ends = threading.Event()
        threading.Thread(target=self._run, name="tilelang ranks", daemon=True).start()

    def check(self) -> None:
        """Raises `RuntimeError` where an earlier launch waits in vain, or has ended so."""
        if self._found is not None:
            raise RuntimeError(self._found)

    def explained(self, error: RuntimeError) -> RuntimeError:
        """The error of a launch, behind that of an earlier one which has led to it."""
        if self._found is None:
            return error
        return RuntimeError(f"{self._found}. This launch: {error}")

    def launched(self, kernel: str) -> None:
        """Notes a launch of `kernel`."""
        with self._lock:
            mark = self._mark(self._last and self._last.mark)
            if mark is None:
                return
            self._count += 1
            self._kernel = kernel
            self._last = _Launch(mark, time.monotonic(), self._count, kernel)

    def stop(self) -> None:
        """Ends the thread: the others hear nothing from now on."""
        self._ends.set()

    def _run(self) -> None:
        word = 0
        while not self._ends.wait(self._says):
            word += 1
            try:
                self._store.set(f"{self.rank}", pickle.dumps((word, self._count, self._kernel)))
                if self._device_works:
                    self._look()
            except RuntimeError:
                return  # whose store has gone: the program ends

    def _look(self) -> None:
        if self._pending is None:
            with self._lock:
                self._pending, self._last = self._last, None
        launch = self._pending
        if launch is None:
            return
        failure = None
        try:
            if launch.mark.query():
                self._pending = self._found = None
                return
        except RuntimeError as error:
            failure = error
        now = time.monotonic()
        states = {rank: self._state(rank, now, launch.number) for rank in range(self.size)}
        missing = [f"rank {r} {state}" for r, state in states.items() if r != self.rank and state]
        is_late = now - launch.since >= self._patience
        if failure is not None:
            self._has_failed(launch, missing if is_late else [], failure)
        elif is_late and missing and self._found is None:
            self._say(
                f"{self._name(launch)}, has waited {now - launch.since:.0f} s: "
                f"{', '.join(missing)}. After {KERNEL_WAITS} s the kernel prints the signal that "
                "it waits for, and ends. Let all ranks make the same launches, and look at what "
                "the missing one has printed"
            )

    def _has_failed(self, launch: _Launch, missing: list[str], error: RuntimeError) -> None:
        """The device has ended a launch, and runs nothing any more."""
        self._device_works = False
        why = (
            f"At that time {', '.join(missing)}; the kernel's own line names the signal that it "
            "waited for. Look at what the missing rank has printed"
            if missing
            else f"No rank kept it waiting for {self._patience:g} s. Look at what the kernel has "
            "printed, and run it in the emulator"
        )
        first = str(error).partition("\n")[0]
        self._say(f"{self._name(launch)}, has ended with an error: {first}. {why}")

    def _name(self, launch: _Launch) -> str:
        return (
            f"tilelang.distributed: launch {launch.number} of rank {self.rank}, of {launch.kernel}"
        )

    def _say(self, text: str) -> None:
        # First: whoever sees the finding may expect the line.
        print(text, file=sys.stderr, flush=True)
        self._found = text

    def _state(self, rank: int, now: float, count: int) -> str:
        """What is wrong with a rank, as words."""
        if not self._store.check([f"{rank}"]):
            word, launches, kernel = 0, 0, ""
        else:
            word, launches, kernel = pickle.loads(self._store.get(f"{rank}"))
        before = self._heard.get(rank)
        if before is None or before[0] != word:
            self._heard[rank] = before = (word, now)
        if now - before[1] > self._silent:
            return f"has died, or its process stands still, at its launch {launches}"
        if launches < count:
            return f"has not come to it: its last launch is {launches}, of {kernel or 'nothing'}"
        return ""


def mark_of_stream(event: torch.cuda.Event | None) -> torch.cuda.Event | None:
    """An event behind what the current stream has; None in a capture, which launches nothing."""
    if torch.cuda.is_current_stream_capturing():
        return None
    event = event or torch.cuda.Event()
    event.record()
    return event
