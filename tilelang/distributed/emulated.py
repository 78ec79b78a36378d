"""Ranks as threads of one process, whose kernels the emulator runs together."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilelang.distributed.team import Memory, Team, check_same_call, current
from tilelang.distributed.watch import Watch


class _Ended(RuntimeError):
    """Another rank has failed."""


def ranks_of(numbers: Sequence[int]) -> str:
    """Return "rank 2" or "ranks 0, 2"."""
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


class _Meeting:
    """Where the threads of a team exchange values."""

    def __init__(self, size: int, time_limit: float):
        self.size = size
        self.time_limit = time_limit
        self._changed = threading.Condition()
        self._given: dict[int, tuple[str, Any]] = {}
        self._taken: list[tuple[str, Any]] = []
        self._round = 0
        self._ended: set[int] = set()
        self._failed: int | None = None

    def exchange(self, rank: int, what: str, value: Any) -> list[tuple[str, Any]]:
        with self._changed:
            mine = self._round
            self._given[rank] = (what, value)
            if len(self._given) == self.size:
                self._taken = [self._given[r] for r in range(self.size)]
                self._given = {}
                self._round += 1
                self._changed.notify_all()
                return self._taken
            self._changed.wait_for(
                lambda: self._round != mine or self._is_hopeless(), self.time_limit
            )
            if self._round != mine:
                return self._taken
            self._refuse(rank, what)
        raise AssertionError

    def _is_hopeless(self) -> bool:
        return self._failed is not None or bool(self._ended - set(self._given))

    def _refuse(self, rank: int, what: str) -> None:
        if self._failed is not None:
            raise _Ended(f"rank {self._failed} has failed")
        missing = [r for r in range(self.size) if r not in self._given]
        ended = [r for r in missing if r in self._ended]
        have = "has" if len(ended or missing) == 1 else "have"
        why = f"{have} ended" if ended else f"{have} not come in {self.time_limit:g} s"
        self._failed = rank
        self._changed.notify_all()
        raise RuntimeError(
            f"tilelang.distributed: rank {rank} waits at {what}, and {ranks_of(ended or missing)} "
            f"{why}. Let all ranks make the same calls in the same order"
        )

    def wait_for_all(self) -> list[int]:
        """Returns when all programs have ended. Where one has failed, it waits the time limit for
        the others, and returns those that have not."""
        with self._changed:
            self._changed.wait_for(lambda: self._failed is not None or self._have_all_ended())
            self._changed.wait_for(self._have_all_ended, self.time_limit)
            return [rank for rank in range(self.size) if rank not in self._ended]

    def _have_all_ended(self) -> bool:
        return len(self._ended) == self.size

    def end(self, rank: int, failed: bool) -> None:
        """A rank's program has ended."""
        with self._changed:
            self._ended.add(rank)
            if failed and self._failed is None:
                self._failed = rank
            self._changed.notify_all()


class EmulatedTeam:
    """A rank of a team of threads."""

    def __init__(self, meeting: _Meeting, rank: int):
        self.rank = rank
        self.size = meeting.size
        self.memory: Memory = ProcessMemory()
        self.watch: Watch | None = None
        self._meeting = meeting

    def exchange(self, what: str, value: Any) -> list[Any]:
        """As `Team.exchange`."""
        found = self._meeting.exchange(self.rank, what, value)
        for rank, (theirs, _) in enumerate(found):
            check_same_call(self.rank, what, rank, theirs)
        return [value for _, value in found]


class ProcessMemory:
    """Memory of this process, which all ranks have the addresses of."""

    def allocate(
        self, team: Team, shape: Sequence[int], dtype: torch.dtype
    ) -> tuple[torch.Tensor, list[int]]:
        """As `Memory.allocate`."""
        flat = torch.empty(max(1, math.prod(shape)), dtype=dtype)
        addresses = team.exchange("addresses of a symmetric tensor", flat.data_ptr())
        return flat[: math.prod(shape)].view(tuple(shape)), addresses


def emulate(ranks: int, program: Callable[[int], Any], time_limit: float = 600.0) -> list[Any]:
    """Runs ``program(rank)`` for each of the ranks, in a thread each; returns the results.

    Where all ranks launch a kernel for the emulator, it runs their grids at the same time, each on
    its own arguments, under the schedule that the caller has chosen
    (`tilelang.emulator.schedule`). Nothing but signals orders what the ranks do: the checks take a
    rank's own code in front of the launch and behind it for something that other ranks may run
    beside.

    Args:
        ranks: how many, 1 to 64.
        program: is called with the number of its rank.
        time_limit: seconds that a rank waits for the others to come to the same call, and where one
            has failed, for the others to end.

    Raises:
        ValueError: another number of ranks.
        RuntimeError: one rank calls what others do not.
        BaseException: what a program raises, with a note that names the rank (from Python 3.11 on);
            that of the lowest rank.

    Example: ``results = emulate(4, lambda rank: run(rank))``
    """
    if not 1 <= ranks <= 64:
        raise ValueError(f"tilelang.distributed.emulate found {ranks} ranks, wanted 1 to 64")
    meeting = _Meeting(ranks, time_limit)
    results: list[Any] = [None] * ranks
    errors: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        current.set(EmulatedTeam(meeting, rank))
        try:
            results[rank] = program(rank)
        except BaseException as error:  # noqa: BLE001 (the caller gets it)
            errors[rank] = error
        meeting.end(rank, rank in errors)

    # Each thread has the caller's schedule.
    contexts = [contextvars.copy_context() for _ in range(ranks)]
    threads = [
        threading.Thread(target=context.run, args=(run, rank), daemon=True)
        for rank, context in enumerate(contexts)
    ]
    for thread in threads:
        thread.start()
    stuck = meeting.wait_for_all()
    failed = {rank: e for rank, e in sorted(errors.items()) if not isinstance(e, _Ended)}
    for rank, error in (failed or errors).items():
        _note(error, rank, ranks, stuck)
        raise error
    if stuck:
        raise RuntimeError(
            f"tilelang.distributed: {ranks_of(stuck)} of {ranks} did not end in {time_limit:g} s "
            "after another one had failed. Let a program that catches the error end, too"
        )
    return results


def _note(error: BaseException, rank: int, ranks: int, stuck: Sequence[int]) -> None:
    """Adds to what a rank has raised which one that was, and which others have not ended."""
    if not hasattr(error, "add_note"):  # Python 3.10
        return
    error.add_note(f"raised by rank {rank} of {ranks} of tilelang.distributed.emulate")
    if stuck:
        error.add_note(f"{ranks_of(stuck)} did not end; the threads go on in the background")
