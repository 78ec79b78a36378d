"""Threads that are not all of a block: whole warps that work as one, sums over a warp."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from tilelang.testing.fuzz.loops import execute_apart
from tilelang.testing.fuzz.memory import Accesses
from tilelang.testing.fuzz.operations import Values, exact, fit
from tilelang.testing.fuzz.program import Invalid, Op, Warps

if TYPE_CHECKING:
    from tilelang.testing.fuzz.interpret import Frame, Machine

WARP, GROUP = 32, 128


@dataclasses.dataclass
class Part:
    """The threads of one side of a `Warps`, and what both sides have touched."""

    threads: tuple[int, int]
    side: int
    accesses: dict[int, Accesses]


def execute(machine: Machine, statement: Warps, frame: Frame) -> None:
    """Both sides, which nothing orders."""
    first, stop, count = statement.first, statement.stop, machine.threads
    if frame.who is not None or machine.part is not None:
        raise Invalid("a range of warps in code of threads or in another range")
    is_whole = first % WARP == 0 and stop % WARP == 0 and count % WARP == 0
    if not is_whole or not 0 <= first < stop <= count or stop - first == count:
        raise Invalid("a range of threads that is no part of whole warps")
    if statement.groups and (first % GROUP or stop % GROUP or count != statement.groups * GROUP):
        raise Invalid("a range that is none of warp groups")
    rest = (stop, count) if first == 0 else (0, first)
    if statement.otherwise and first != 0 and stop != count:
        raise Invalid("tile operators of two ranges of threads")
    accesses: dict[int, Accesses] = {}
    sides = ((statement.then, (first, stop)), (statement.otherwise, rest))
    try:
        for side, (body, threads) in enumerate(sides):
            machine.part = Part(threads, side, accesses)
            execute_apart(machine, body, frame)
    finally:
        machine.part = None


def note(machine: Machine, name: str, where: np.ndarray, access: str) -> None:
    """Notes which threads use memory: registers are those of one set of threads, and what one side
    of a `Warps` writes the other one does not touch."""
    root = machine.root(name)
    buffer = machine.buffers.get(name)
    while buffer is not None and buffer.scope == "view":
        buffer = machine.buffers.get(buffer.detail)
    threads = None if machine.part is None else machine.part.threads
    if buffer is not None and buffer.scope == "var":
        if threads and access != "read":
            raise Invalid("a variable that some threads change")
    elif buffer is not None and buffer.scope in ("fragment", "reducer", "local"):
        if root.threads and root.threads != [threads]:
            raise Invalid("registers of two sets of threads")
        root.threads[:] = [threads]
    elif machine.part is not None:
        if machine.root_dtype(name) != root.dtype:
            raise Invalid("bits of memory in a range of warps")
        known = machine.part.accesses.setdefault(id(root), Accesses(len(root.value)))
        getattr(known, access)(where, np.full(len(where), machine.part.side))


def total(machine: Machine, expr: Op, frame: Frame) -> Values:
    """``T.warp_reduce_sum``: each thread has the sum over the threads of its warp."""
    if frame.thread is None or len(frame.thread) != machine.threads:
        raise Invalid("a sum over a warp that not all of its threads reach")
    x = machine.evaluate(expr.args[0], frame)
    if x.weak:
        raise Invalid("a sum of numbers without a dtype")
    value = np.broadcast_to(exact(x), (machine.threads,))
    lanes = np.arange(machine.threads) // WARP
    sums = np.zeros(lanes[-1] + 1, value.dtype)
    np.add.at(sums, lanes, value)
    magnitudes = np.zeros(lanes[-1] + 1, value.dtype)
    np.add.at(magnitudes, lanes, np.abs(value))
    fit(x.dtype, magnitudes)
    result = fit(x.dtype, sums[lanes])
    if np.any(result.error):
        raise Invalid("an inexact sum in any order")
    return result
