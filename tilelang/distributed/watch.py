"""Who is missing while a launch waits: each process watches its launches and says how far it is.

A kernel that waits for a signal knows the signal, not who was to send it. The processes do: one
that has died says nothing any more, and one that does something else has launched less often.
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
PATIENCE = 280.0
"""Seconds that a launch may wait for others: a little less than a kernel itself waits
(`kSignalSeconds` of src/device/cuda/tl/rank.h)."""


class _Launch(NamedTuple):
    mark: Any
    since: float
    number: int
    kernel: str


class Watch:
    """Watches the launches of one rank of a team, in a thread of its own.

    Where a launch has not ended in `patience` seconds, and a rank has died or has not come to it, a
    line on stderr says which, and so does the `RuntimeError` of this rank's next launch; the kernel
    itself ends by its own time limit. `store` is not used by other threads. `mark(old)` gives an
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
        self._ends = threading.Event()
        threading.Thread(target=self._run, name="tilelang ranks", daemon=True).start()

    def launched(self, kernel: str) -> None:
        """Notes a launch of `kernel`. Raises `RuntimeError` where an earlier one waits in vain."""
        if self._found is not None:
            raise RuntimeError(self._found)
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
                self._look()
            except RuntimeError:
                return  # whose store has gone: the program ends

    def _look(self) -> None:
        if self._pending is None:
            with self._lock:
                self._pending, self._last = self._last, None
        if self._pending is None:
            return
        mark, since, count, kernel = self._pending
        if mark.query():
            self._pending = self._found = None
            return
        now = time.monotonic()
        missing = []
        for rank in range(self.size):
            state = self._state(rank, now, count)
            if rank != self.rank and state:
                missing.append(f"rank {rank} {state}")
        if now - since < self._patience or not missing or self._found is not None:
            return
        self._found = (
            f"tilelang.distributed: launch {count} of rank {self.rank}, of {kernel}, has waited "
            f"{now - since:.0f} s: {', '.join(missing)}. Let all ranks make the same launches, and "
            "look at what the missing one has printed"
        )
        print(self._found, file=sys.stderr, flush=True)

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
