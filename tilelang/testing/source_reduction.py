"""Runs variants of a Python program, each in a process of its own, and keeps what fails alike."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilelang.autotuner.processes import Child, ProcessLost
from tilelang.testing.descent import descend
from tilelang.testing.source_steps import measure, smaller


@dataclass(frozen=True)
class Runner:
    """How a program is run.

    Attributes:
        folder: what ``sys.path`` begins with: that of the program.
        arguments: of its command line.
        seconds: after which it is ended.
    """

    folder: Path
    arguments: Sequence[str] = ()
    seconds: float = 60.0

    def output(self, text: str) -> str:
        """What a program prints, its traceback at the end; it may crash."""
        with tempfile.TemporaryDirectory(prefix="tilelang-autodd-") as place:
            file, printed = Path(place, "program.py"), Path(place, "printed")
            file.write_text(text)
            with (
                contextlib.closing(Child()) as child,
                contextlib.suppress(ProcessLost),  # what it printed before tells
            ):
                given = str(file), str(self.folder), list(self.arguments), str(printed)
                child.call(_run, *given, seconds=self.seconds)
            return printed.read_text(errors="replace") if printed.exists() else ""


def _run(file: str, folder: str, arguments: list[str], printed: str) -> None:
    """Run a file as the main program of this process; what it prints goes to another file."""
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    sys.argv, sys.path[:0] = [file, *arguments], [folder]
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 (as the interpreter does with what ends a program)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def reduce(
    text: str,
    error: str,
    runner: Runner,
    seconds: float,
    jobs: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> str:
    """The smallest Python program that still prints `error` and is found in about `seconds`.

    `jobs` variants run at a time. `tell` gets each smaller program that prints it.

    Raises `ValueError` where the program itself does not print it.

    Example: ``reduce(path.read_text(), "bug in tilelang", Runner(path.parent), 300)``
    """
    found = runner.output(text)
    if error not in found:
        said = "\n".join(found.splitlines()[-5:])
        raise ValueError(
            f"found a program that does not print {error!r}, wanted one that does; it ends with:\n"
            f"{said}"
        )
    best = text

    def fails(candidates: Sequence[str]) -> list[bool]:
        nonlocal best
        with concurrent.futures.ThreadPoolExecutor(jobs) as threads:
            failing = [error in printed for printed in threads.map(runner.output, candidates)]
        for candidate, fail in zip(candidates, failing, strict=True):
            if fail and measure(candidate) < measure(best):
                best = candidate
                tell(best)
        return failing

    return descend(text, smaller, measure, fails, seconds, batch=jobs)
