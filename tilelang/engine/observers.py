"""Who is told of the program after each pass: dumps, pages of differences, pictures of layouts.

An observer is made for one lowering. `lower` asks for those that the environment, the configuration
or an enclosing `observing` wants.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import tvm

from tilelang.engine.dump import Dump
from tilelang.env import env
from tilelang.transform import PassConfigKey, current_config


class Observer(Protocol):
    """What is told of one lowering."""

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """The program after a pass; the first one is ``trace``."""

    def close(self) -> None:
        """Lowering has ended, perhaps by an exception."""


_made_by: contextvars.ContextVar[tuple[Callable[[str], Observer], ...]] = contextvars.ContextVar(
    "observers", default=()
)


@contextlib.contextmanager
def observing(make: Callable[[str], Observer]) -> Iterator[None]:
    """Has `make`, a function of the program's name, give an observer for each lowering in a
    ``with`` statement.

    Example: ``with observing(lambda name: Dump(Path("ir"), name)): tilelang.compile(main)``
    """
    token = _made_by.set((*_made_by.get(), make))
    try:
        yield
    finally:
        _made_by.reset(token)


def is_observed(get: Callable[[str], object]) -> bool:
    """Whether lowering has an observer, so that what the cache keeps does not do. `get` gives the
    value of a configuration's key or None."""
    by_config = (
        PassConfigKey.TL_ENABLE_DUMP_IR,
        PassConfigKey.TL_LAYOUT_VISUALIZATION_ENABLE,
    )
    return bool(
        _made_by.get()
        or env.TILELANG_DUMP_IR
        or env.TL_LOWER_TRACE
        or env.TILELANG_PASS_DIFF
        or any(get(key.value) for key in by_config)
    )


class Observers:
    """All observers of one lowering."""

    def __init__(self, observers: Sequence[Observer]):
        self._observers = observers

    @staticmethod
    def of(name: str) -> Observers:
        """The observers that are asked for here, for the program of this name."""
        found: list[Observer] = [make(name) for make in _made_by.get()]
        dump = Dump.from_config(name)
        if dump is not None:
            found.append(dump)
        if env.TILELANG_PASS_DIFF:
            from tilelang.tools.pass_diff import PassDiffWriter

            found.append(PassDiffWriter(env.TILELANG_PASS_DIFF_OUTPUT, name))
        if current_config(PassConfigKey.TL_LAYOUT_VISUALIZATION_ENABLE, False):
            from tilelang.tools.layout_visualization import LayoutVisualization

            found.append(LayoutVisualization.from_config(name))
        return Observers(found)

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Tells all of them."""
        for observer in self._observers:
            observer.write(pass_name, mod)

    def close(self) -> None:
        """Lets all of them end."""
        for observer in self._observers:
            observer.close()
