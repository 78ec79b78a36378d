"""What the loops of a block do: steps, conditions, jumps, the tiles of a domain."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilelang.testing.fuzz.operations import exact
from tilelang.testing.fuzz.program import For, Invalid, Jump, Persistent, Stmt, While

if TYPE_CHECKING:
    from tilelang.testing.fuzz.interpret import Frame, Machine

_MOST_ITERATIONS = 256


class _Left(Exception):
    """A jump on its way to its loop."""

    def __init__(self, kind: str):
        self.kind = kind


def outermost(machine: Machine, body: Sequence[Stmt], frame: Frame) -> None:
    """The statements of a kernel."""
    try:
        machine.body(body, frame)
    except _Left as jump:
        raise Invalid(f"{jump.kind} outside of a loop") from None


def execute_apart(machine: Machine, body: Sequence[Stmt], frame: Frame) -> None:
    """Statements of some threads, which no jump leaves."""
    try:
        machine.body(body, frame)
    except _Left as jump:
        raise Invalid(f"a {jump.kind} of some threads") from None


def execute(machine: Machine, statement: For | While | Jump | Persistent, frame: Frame) -> None:
    """A loop or a jump, by the block as one."""
    if frame.who is not None and not isinstance(statement, For):
        raise Invalid("a loop of the block in a loop of its threads")
    if isinstance(statement, Jump):
        raise _Left(statement.kind)
    if isinstance(statement, Persistent):
        _persistent(machine, statement, frame)
    elif isinstance(statement, While):
        _while(machine, statement, frame)
    else:
        _for(machine, statement, frame)


def _iteration(machine: Machine, body: Sequence[Stmt], frame: Frame) -> bool:
    """Whether the loop goes on after an iteration."""
    try:
        machine.body(body, frame)
    except _Left as jump:
        return jump.kind == "continue"
    return True


def _for(machine: Machine, loop: For, frame: Frame) -> None:
    start, stop, step = (machine.integer(e, frame) for e in (loop.start, loop.stop, loop.step))
    if step == 0:
        raise Invalid("a step of 0")
    if loop.kind != "serial" and (step < 0 or _has_jump(loop.body)):
        raise Invalid("a jump or a negative step in an unrolled or pipelined loop")
    for index in range(start, stop, step):
        frame.variables = {**frame.variables, loop.variable: np.array([index])}
        if not _iteration(machine, loop.body, frame):
            break


def _has_jump(body: Sequence[Stmt]) -> bool:
    """Whether a jump leaves an iteration of this body, not one of a loop inside of it."""
    inner = [s for s in body if not isinstance(s, For | While | Persistent)]
    return any(
        isinstance(s, Jump)
        or _has_jump(getattr(s, "then", ()))
        or _has_jump(getattr(s, "otherwise", ()))
        for s in inner
    )


def _while(machine: Machine, loop: While, frame: Frame) -> None:
    for _ in range(_MOST_ITERATIONS):
        if not np.all(exact(machine.evaluate(loop.condition, frame))):
            return
        if not _iteration(machine, loop.body, frame):
            return
    raise Invalid("a loop without an end")


def _persistent(machine: Machine, loop: Persistent, frame: Frame) -> None:
    """Block `index` of `wave` takes every wave-th tile; the last dimension is counted in groups, so
    that the tiles of one group are neighbours for all others."""
    domain = [machine.integer(e, frame) for e in loop.domain]
    wave, index = machine.integer(loop.wave, frame), machine.integer(loop.index, frame)
    if not 0 <= index < wave or loop.group < 1 or _has_jump(loop.body):
        raise Invalid("a block that is none of the wave, or a jump among its tiles")
    *others, last = domain
    group = min(loop.group, last)
    order = itertools.product(range(-(-last // group)), *map(range, others), range(group))
    for outer, *rest, inner in itertools.islice(order, index, None, wave):
        place = (*rest, outer * group + inner)
        if place[-1] < last:
            values = {n: np.array([p]) for n, p in zip(loop.variables, place, strict=True)}
            frame.variables = {**frame.variables, **values}
            machine.body(loop.body, frame)
