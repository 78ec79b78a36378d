"""Hooks of loops and branches: Python runs them, or they become the program's."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.bindings import BindingHooks
from tilelang.language.loops import serial
from tilelang.language.scalars import describe
from tilelang.language.tracer import LOOP_KINDS, BuilderFrame, Frame, Scope, Tracer, read_members

# Loops of each thread. A pipelined one with a jump becomes a plain loop (PipelinePlanning), since a
# step of a pipeline works on several iterations.
_WITH_JUMPS = ("serial", "while", "unrolled", "pipelined")


class ControlFlowHooks(BindingHooks):
    """Hooks of ``if``, ``for``, ``while``, ``break`` and ``continue``."""

    def __init__(self, tracer: Tracer):
        super().__init__(tracer)
        # For each open loop, the scope of its body, or None and the scope around it if Python runs
        # the loop; and how many decided branches are around it.
        self.loops: list[tuple[Scope | None, Scope, int]] = []
        # The loops of the program that have a ``break``.
        self.broken: set[Scope] = set()

    def branch(self, test: Any) -> _Branch:
        """Return the two sides of an ``if``."""
        return _Branch(self, self.condition(self.operand(test)))

    def range(self, function: Any, *bounds: Any) -> Any:
        """Return what ``for _ in range(*bounds)`` iterates over: a serial loop."""
        return serial(*bounds) if function is builtins.range else function(*bounds)

    def loop(self, iterated: Any, names: Any) -> Iterator[Any]:
        """Run a ``for``: once with the loop's variables, or for each item of a Python iterable."""
        if isinstance(iterated, Frame) and iterated.kind in LOOP_KINDS:
            return self._once(iterated, names)
        if isinstance(iterated, ir.Expr | Frame) or not hasattr(iterated, "__iter__"):
            raise TypeError(
                f"`for` cannot iterate over {describe(iterated)}; "
                "wanted range(n), T.serial(n), T.Parallel(...) or a Python sequence"
            )
        return self._each(iterated, names)

    def _once(self, frame: Frame, names: Any) -> Iterator[Any]:
        value = self.tracer.enter(frame)
        self.loops.append((self.tracer.scope, self.tracer.scope, self.decided))
        yield self.bind_targets(names, value)
        self.loops.pop()
        self.tracer.leave(frame)

    def _each(self, iterated: Any, names: Any) -> Iterator[Any]:
        self.items(iterated)
        self.loops.append((None, self.tracer.scope, self.decided))
        for item in iterated:
            yield self.bind_targets(names, item)
        self.loops.pop()

    def items(self, iterated: Any) -> Any:
        """Return what a comprehension iterates over, or what a star takes the members of."""
        read_members(iterated)
        return iterated

    def while_(self, test: Callable[[], Any], ends: bool) -> Iterator[Any]:
        """Run a ``while`` on a condition in IR, or, if a ``break`` ends it, ``while True``."""
        before = self.tracer.statements()
        with self.tracer.conditional("`while`") as check:
            condition = self.condition(test())
            check(condition)
        if isinstance(condition, ir.Expr):
            if len(self.tracer.statements()) > len(before):
                raise NotImplementedError(
                    "the condition of `while` has statements of its own (a macro's), which would "
                    "run once; keep it in a T.alloc_var that the body sets"
                )
            return self._once(BuilderFrame(tir_builder.While(condition), "while"), None)
        if condition and not ends:
            raise _endless()
        return self._until_break() if condition else iter(())

    def _until_break(self) -> Iterator[Any]:
        always = tirx.const(True, "bool")
        for _ in self._once(BuilderFrame(tir_builder.While(always), "while"), None):
            loop = self.tracer.scope
            yield
            if loop not in self.broken:
                raise _endless()  # Python has decided that there is no ``break``

    def leaves(self, begins: bool) -> None:
        """The statements that follow end with a ``break``, or the ``break`` follows."""
        self.left = self.loops[-1][0] if begins else None

    def breaks(self) -> bool:
        """Emit a ``break``; True if Python has to leave its own loop instead."""
        return self._jump("break", tirx.break_loop)

    def continues(self) -> bool:
        """Emit a ``continue``; True if Python has to go on with its own loop instead."""
        return self._jump("continue", tirx.continue_loop)

    def _jump(self, name: str, call: Callable[[], ir.Call]) -> bool:
        loop, around, self.decided = self.loops[-1]
        if loop is None:
            if self.tracer.runtime_scope(around) is not None:
                raise NotImplementedError(
                    f"`{name}` under a condition that is not known while tracing, in a loop that "
                    "is unrolled while tracing; iterate over T.serial(n), or T.unroll(n) without "
                    "explicit"
                )
            if name == "break":
                self.loops.pop()
            return True
        if loop.kind not in _WITH_JUMPS:
            raise NotImplementedError(
                f"`{name}` in the {loop.description} is not supported; use T.serial or guard with "
                "`if`"
            )
        tir_builder.evaluate(call())
        if name == "break":
            self.broken.add(loop)
        return False


def _endless() -> RuntimeError:
    return RuntimeError(
        "Infinite while loop: the condition is always true; "
        "compare a T.alloc_var, or use `for` over Python values"
    )


class _Branch:
    """An ``if``: decided by Python, or both sides traced one after the other."""

    def __init__(self, hooks: ControlFlowHooks, condition: Any):
        self.hooks = hooks
        self.decided = hooks.decided
        self.tracer = hooks.tracer
        self.condition = condition
        self.frames: list[BuilderFrame] = []

    def _enter(self, frame: BuilderFrame) -> None:
        self.tracer.enter(frame)
        self.frames.append(frame)

    def then(self) -> bool:
        """Start the first side; False if it is not traced."""
        if not isinstance(self.condition, ir.Expr):
            self.hooks.decided = self.decided + 1
            return bool(self.condition)
        self._enter(BuilderFrame(tir_builder.If(self.condition)))
        self._enter(BuilderFrame(tir_builder.Then(), "branch"))
        return True

    def otherwise(self) -> bool:
        """Start the second side; False if it is not traced."""
        if not isinstance(self.condition, ir.Expr):
            return not self.condition
        self.tracer.leave(self.frames.pop())
        self._enter(BuilderFrame(tir_builder.Else(), "branch"))
        return True

    def end(self) -> None:
        """End the statement."""
        self.hooks.decided = self.decided
        for frame in reversed(self.frames):
            self.tracer.leave(frame)
