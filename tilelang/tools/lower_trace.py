"""The program after each pass, kept in memory or written to files.

    with lower_trace() as traces:
        tilelang.compile(main)
    print(traces[0].steps[-1].script)

`enable` and `disable` switch the files on and off that TL_LOWER_TRACE=1 asks for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm

from tilelang.engine.observers import observing
from tilelang.env import env


@dataclass(frozen=True)
class Step:
    """A program: the name of the pass that it comes from, without ``tl.``, and its script."""

    name: str
    script: str = field(repr=False)
    mod: Any = field(default=None, repr=False, compare=False)
    """The program itself, an IRModule; None of one that was read from a file."""


class Trace:
    """One lowering. `steps` are the programs in order: first what was traced, last the device
    functions and their launches."""

    def __init__(self, name: str):
        self.name = name
        self.steps: list[Step] = []

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Notes the program after a pass."""
        self.steps.append(Step(pass_name.split(".")[-1], mod.script(show_meta=False), mod))

    def close(self) -> None:
        """All steps are there."""

    def after(self, name: str) -> Step:
        """The last step of a pass.

        Raises:
            KeyError: there was none.

        Example: ``trace.after("LayoutInference").mod``
        """
        for step in reversed(self.steps):
            if step.name == name:
                return step
        raise KeyError(f"found passes {', '.join(s.name for s in self.steps)}, wanted {name}")

    @staticmethod
    def of_folder(folder: str | Path) -> Trace:
        """What TL_LOWER_TRACE=1 wrote of one program: ``<TL_LOWER_TRACE_DIR>/<name>``.

        Raises:
            FileNotFoundError: there are no such files.
        """
        folder = Path(folder)
        trace = Trace(folder.resolve().name)
        for file in sorted(folder.glob("[0-9][0-9]_*.py")):
            trace.steps.append(Step(file.stem[3:], file.read_text().rstrip("\n")))
        if not trace.steps:
            raise FileNotFoundError(
                f"found no program in {folder}, wanted files such as 00_trace.py. Run the script "
                "with TL_LOWER_TRACE=1, and name a folder in TL_LOWER_TRACE_DIR (./dump_ir)"
            )
        return trace


@contextlib.contextmanager
def lower_trace() -> Iterator[list[Trace]]:
    """Keeps the programs of each lowering in a ``with`` statement, in this thread.

    Example: ``with lower_trace() as traces: tilelang.compile(main)``
    """
    traces: list[Trace] = []

    def make(name: str) -> Trace:
        traces.append(Trace(name))
        return traces[-1]

    with observing(make):
        yield traces


def enable(directory: str | Path | None = None) -> None:
    """From now on writes the program after each pass, as TL_LOWER_TRACE=1 does, to ``directory`` or
    TL_LOWER_TRACE_DIR."""
    env.TL_LOWER_TRACE = True
    if directory is not None:
        env.TL_LOWER_TRACE_DIR = Path(directory)


def disable() -> None:
    """Undoes `enable`: the environment says again whether programs are written, and where to."""
    env.TL_LOWER_TRACE = None
    env.TL_LOWER_TRACE_DIR = None


__all__ = ["Step", "Trace", "disable", "enable", "lower_trace"]
