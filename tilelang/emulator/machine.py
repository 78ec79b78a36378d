"""How the emulator schedules threads and asynchronous work, and on how many cores it runs blocks.

A kernel that is right is right under every schedule; one that lacks a barrier or a wait is wrong
under some. The environment sets the schedule of all launches, `schedule` that of some::

    for seed in range(20):
        with schedule("random", seed=seed):
            kernel(a, b)

A thread that takes ``TILELANG_EMULATE_PATIENCE`` seconds of processor time without waiting for
anything ends the launch (60 by default; 0 for no limit).
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tilelang.env import env

ORDERS = ("round_robin", "random", "adversarial")
MOMENTS = ("late", "early", "random")
MULTIPROCESSORS = 4
"""What a persistent kernel finds: few, so that blocks take several tiles of small grids, too."""
_KEPT = 16  # kKept of stacks.h

# Stacks and shared memory that one launch leaves to the next, of all kernels.
_kept = (ctypes.c_void_p * _KEPT)()


class _Machine(ctypes.Structure):
    """``tl_machine`` of schedule.h."""

    _fields_ = (
        ("order", ctypes.c_uint),
        ("moment", ctypes.c_uint),
        ("seed", ctypes.c_ulong),
        ("workers", ctypes.c_uint),
        ("cores", ctypes.c_uint),
        ("patience", ctypes.c_ulong),
        ("kept", ctypes.POINTER(ctypes.c_void_p)),
        ("timeline", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Schedule:
    """How the emulator runs launches.

    Attributes:
        order: which of the threads that can go on does: ``"round_robin"``; ``"random"``, any of
            them, and those that need not wait may stand back; ``"adversarial"``, one role (a warp
            with an even `seed`, four warps with an odd one) as far as it can, then another one.
        asynchronous: when asynchronous copies are performed: ``"late"``, when they are waited for;
            ``"early"``, when they are issued; ``"random"``.
        seed: of all random choices, 0 to 2**64 - 1. The same seed gives the same run.
        workers: OS threads that run blocks; 0 is one for each core, but a single one for a program
            with atomic operations, whose results would depend on the order of the blocks.
    """

    order: str = "round_robin"
    asynchronous: str = "late"
    seed: int = 0
    workers: int = 0

    def __post_init__(self) -> None:
        for name, value, wanted in (
            ("order", self.order, ORDERS),
            ("asynchronous", self.asynchronous, MOMENTS),
        ):
            if value not in wanted:
                raise ValueError(f"{name}: expected one of {', '.join(wanted)}, got {value!r}")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed: expected 0 to 2**64 - 1, got {self.seed}")
        if not 0 <= self.workers <= 1024:
            raise ValueError(f"workers: expected 0 to 1024, got {self.workers}")


noting: contextvars.ContextVar[ctypes.Structure | None] = contextvars.ContextVar(
    "noting", default=None
)
"""The ``tl_timeline`` that launches here write to, of `tilelang.emulator.timeline`."""
_chosen: contextvars.ContextVar[Schedule | None] = contextvars.ContextVar("schedule", default=None)


def current_schedule() -> Schedule:
    """The schedule of launches here: of the innermost `schedule`, else by the environment
    variables.

    A seed in ``TILELANG_EMULATE_SEED`` alone asks for a random order and asynchronous work at
    random moments; ``TILELANG_EMULATE_SCHEDULE`` names another order.

    Raises:
        ValueError: an environment variable has a value that it does not know.

    Example: ``current_schedule().seed``
    """
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    return _from_environment(
        env.TILELANG_EMULATE_SCHEDULE, env.TILELANG_EMULATE_SEED, env.TILELANG_EMULATE_WORKERS
    )


@functools.lru_cache(maxsize=64)
def _from_environment(order: str, seed: int | None, workers: int) -> Schedule:
    order = order or ("round_robin" if seed is None else "random")
    asynchronous = "late" if order == "round_robin" else "random"
    return Schedule(order, asynchronous, seed or 0, workers)


@contextlib.contextmanager
def schedule(
    order: str | None = None,
    *,
    seed: int | None = None,
    asynchronous: str | None = None,
    workers: int | None = None,
) -> Iterator[Schedule]:
    """Has the launches in a ``with`` statement run under a schedule of their own.

    Args:
        order: `Schedule.order`; by default ``"random"`` where a seed is given, else what it is.
        seed: `Schedule.seed`.
        asynchronous: `Schedule.asynchronous`; by default ``"late"`` for round robin, else
            ``"random"``.
        workers: `Schedule.workers`.

    Raises:
        ValueError: a name or number that is not one of these.

    Example: ``with schedule("adversarial", seed=1): kernel(a, b)``
    """
    outer = current_schedule()
    if order is None:
        order = outer.order if seed is None else "random"
    if asynchronous is None:
        asynchronous = "late" if order == "round_robin" else "random"
    inner = Schedule(
        order,
        asynchronous,
        outer.seed if seed is None else seed,
        outer.workers if workers is None else workers,
    )
    token = _chosen.set(inner)
    try:
        yield inner
    finally:
        _chosen.reset(token)


@functools.lru_cache(maxsize=64)
def _machine(chosen: Schedule, patience: float) -> _Machine:
    return _Machine(
        ORDERS.index(chosen.order),
        MOMENTS.index(chosen.asynchronous),
        chosen.seed,
        chosen.workers,
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        int(patience * 1000),
        _kept,
    )


def current_machine() -> ctypes.Structure:
    """`current_schedule` as the C struct that a launch takes; to be held until it has ended."""
    machine = _machine(current_schedule(), env.TILELANG_EMULATE_PATIENCE)
    recording = noting.get()
    if recording is None:
        return machine
    asked_for = _Machine.from_buffer_copy(machine)
    asked_for.timeline = ctypes.addressof(recording)
    return asked_for
