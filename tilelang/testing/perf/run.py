"""Runs the cases of two commits in turns: a process for each side, one case after the other."""

from __future__ import annotations

import json
import math
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tilelang.autotuner.processes import FORK_SAFE
from tilelang.testing.perf.build import Tree
from tilelang.testing.perf.costs import WEIGHED
from tilelang.testing.perf.statistics import Comparison, Session, judge
from tilelang.testing.perf.worker import BENCH

_SECONDS_OF_A_REPLY = 300.0
_SECONDS_TO_END = 5.0
_HARNESS = "tilelang_perf"


class Failed(RuntimeError):
    """A side could not do what was asked of it; the text says why."""


class Side:
    """A worker process under the package of one commit. Use as a context, which ends it.

    Args:
        tree: the commit.
        cases: the folder of the ``regression_*.py``.
        device: ``cuda`` or ``emulator``.
        only: a regular expression that names of cases contain.
        seconds: how long an answer may take.

    Example: ``with Side(tree, folder, "emulator") as side: side.ask(job="list")``
    """

    def __init__(
        self,
        tree: Path,
        cases: Path,
        device: str,
        only: str = "",
        seconds: float = _SECONDS_OF_A_REPLY,
    ):
        self._arguments = [str(tree), str(cases.resolve()), device, only]
        self._device, self._seconds = device, seconds
        self._folder = tempfile.TemporaryDirectory(prefix="tilelang-regression-")
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        here = Path(__file__).resolve().parent
        folder = Path(self._folder.name)
        # What measures is this package's on both sides, whatever the commit has of it.
        (folder / _HARNESS).symlink_to(here)
        (folder / f"{BENCH}.py").symlink_to(here.parents[1] / "profiler" / "bench.py")

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._folder.cleanup()

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request of `worker.Worker.answer`. Raises `Failed`."""
        process = self._process or self._start()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the answer, that there is none, says why
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        reply = json.loads(self._read_line(process))
        if "failed" in reply:
            raise Failed(reply["failed"])
        return dict(reply)

    def stop(self) -> None:
        """Ends the process; the next request starts one."""
        process, self._process, self._pending = self._process, None, b""
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the forks of a case
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        variables = {
            "PYTHONPATH": self._arguments[0],
            "PYTHONDONTWRITEBYTECODE": "1",  # the cases' folder may be anybody's
            "PYTHONHASHSEED": "0",
            "CUDA_CACHE_DISABLE": "1",  # NVRTC asks the driver's cache where there is a driver
            **FORK_SAFE,
            "TILELANG_PRINT_ON_COMPILATION": "0",
            "TILELANG_DISABLE_CACHE": "1",  # what compiling costs is asked
        }
        if self._device == "emulator":
            variables["TILELANG_EXECUTION_BACKEND"] = "emulate"
            variables["TILELANG_DEFAULT_TARGET"] = "cuda -arch=sm_90a"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{_HARNESS}.worker", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder.name,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        return self._process

    @property
    def _log(self) -> Path:
        return Path(self._folder.name) / "log"

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                ready = selector.select(self._seconds)
                read = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
                if not read:
                    if ready:  # what it says of its end may come after
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(_SECONDS_TO_END)
                    self.stop()
                    end = "".join(self._log.read_text(errors="replace").splitlines(True)[-6:])
                    why = "the process ended" if ready else f"no answer in {self._seconds:g} s"
                    raise Failed(f"{why}\n{end}".strip())
                self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        return line


@dataclass
class Result:
    """What was found of a case.

    Attributes:
        failures: by side, ``base`` or ``head``, why it failed.
        costs: by side, what the kernel costs (`costs.NAMES`).
        compile: seconds of the processor to compile it.
        time: milliseconds of a call; None without a GPU.
    """

    name: str
    failures: dict[str, str] = field(default_factory=dict)
    costs: dict[str, dict[str, int]] = field(default_factory=dict)
    compile: Comparison | None = None
    time: Comparison | None = None

    def ratio(self, cost: str) -> float | None:
        """Head's cost over base's; None where a side does not have it."""
        base, head = (self.costs.get(side, {}).get(cost) for side in ("base", "head"))
        if base is None or head is None:
            return None
        return head / base if base else (1.0 if not head else float("inf"))

    def verdict(self, threshold: float) -> str:
        """``failed``, ``slower``, ``faster``, ``unchanged``. By the time, where it was measured;
        else by the `costs.WEIGHED`: slower where one of them grows, faster where only some
        shrink."""
        if self.failures:
            return "failed"
        if self.time is not None:
            return self.time.verdict
        ratios = [ratio for ratio in map(self.ratio, WEIGHED) if ratio is not None]
        if any(ratio > 1 + threshold for ratio in ratios):
            return "slower"
        return "faster" if any(ratio < 1 / (1 + threshold) for ratio in ratios) else "unchanged"

    def is_regression(self, threshold: float) -> bool:
        """Whether head is slower, compiles slower, or fails where base does not."""
        if self.failures:
            return "base" not in self.failures
        return self.verdict(threshold) == "slower" or (
            self.compile is not None and self.compile.verdict == "slower"
        )


@dataclass(frozen=True)
class Options:
    """How cases are compared.

    Attributes:
        device: ``cuda`` or ``emulator``.
        cases: the folder of the ``regression_*.py``.
        only: a regular expression that names of cases contain.
        turns, compilations: how often each side is timed and compiled in a session, made even.
        threshold, compile_threshold: what a ratio has to differ from 1 by.
    """

    device: str
    cases: Path
    only: str = ""
    turns: int = 60
    compilations: int = 16
    threshold: float = 0.01
    compile_threshold: float = 0.05


class Comparing:
    """Compares the cases of two commits.

    Example: ``results = list(Comparing(base, head, options).results())``
    """

    def __init__(self, base: Tree, head: Tree, options: Options, seed: int = 0):
        self._options = options
        self._trees = {"base": base.path, "head": head.path}
        self._draw = random.Random(seed)

    def results(self) -> Iterator[Result]:
        """The results, as they come. Raises `Failed` where a side cannot list its cases, or where
        there are none: nothing compared is no "nothing is slower"."""
        with self._sides() as sides:
            names = {side: self._names(side, sides[side]) for side in sides}
            if not any(names.values()):
                raise Failed(
                    f"found no case whose name {self._options.only!r} finds in "
                    f"{self._options.cases}, wanted one; names begin with the file's, as in "
                    "'rows: gemm 4096 x 4096 x 4096 bfloat16 NT'"
                )
            for name in dict.fromkeys([*names["base"], *names["head"]]):
                yield self._compare(name, sides)

    def _names(self, which: str, side: Side) -> list[str]:
        try:
            return list(side.ask(job="list")["names"])
        except Failed as error:
            raise Failed(f"{which} cannot list its cases: {error}") from error

    @contextmanager
    def _sides(self) -> Iterator[dict[str, Side]]:
        options = self._options
        sides = {
            name: Side(tree, options.cases, options.device, options.only)
            for name, tree in self._trees.items()
        }
        with sides["base"], sides["head"]:
            yield sides

    def _compare(self, name: str, sides: dict[str, Side]) -> Result:
        result = Result(name)
        compiled = {}
        for which, side in sides.items():
            try:
                compiled[which] = side.ask(job="compile", case=name, costs=True)
                result.costs[which] = compiled[which]["costs"]
            except Failed as error:
                result.failures[which] = str(error)
        if result.failures:
            return result
        if all(reply["seconds"] is not None for reply in compiled.values()):
            result.compile = self._judge(result, sides, self._compile_session)
        if self._options.device == "cuda" and not result.failures:
            result.time = self._judge(result, sides, self._time_session)
        return result

    def _judge(
        self,
        result: Result,
        sides: dict[str, Side],
        session: Callable[[Result, dict[str, Side]], Session],
    ) -> Comparison | None:
        """None where a side fails, which the result then tells. A second session has new
        processes: one may be slow as a whole."""
        sessions = 0

        def measure() -> Session:
            nonlocal sessions
            if sessions:
                for side in sides.values():
                    side.stop()
            sessions += 1
            return session(result, sides)

        is_time = session == self._time_session
        options = self._options
        try:
            return judge(measure, options.threshold if is_time else options.compile_threshold)
        except Failed:
            return None

    def _compile_session(self, result: Result, sides: dict[str, Side]) -> Session:
        def turn(which: str) -> float:
            reply = self._ask(result, sides, which, job="compile", case=result.name)
            return float(reply["seconds"])

        return self._turns(turn, self._options.compilations)

    def _time_session(self, result: Result, sides: dict[str, Side]) -> Session:
        def turn(which: str) -> float:
            return float(self._ask(result, sides, which, job="turn")["milliseconds"])

        for which in sides:
            self._ask(result, sides, which, job="open", case=result.name)
        session = self._turns(turn, self._options.turns)
        for which in sides:
            self._ask(result, sides, which, job="close")
        return session

    def _ask(
        self, result: Result, sides: dict[str, Side], which: str, **request: Any
    ) -> dict[str, Any]:
        try:
            return sides[which].ask(**request)
        except Failed as error:
            result.failures[which] = str(error)
            for side in sides.values():  # the other one may wait for its next turn
                side.stop()
            raise

    def _turns(self, turn: Callable[[str], float], count: int) -> Session:
        """Pairs, as many with base first as with head first, in random order; the pair in front of
        them only warms up."""
        orders = [("base", "head"), ("head", "base")] * math.ceil(count / 2)
        orders = [orders[0], *self._draw.sample(orders, len(orders))]
        times: dict[str, list[float]] = {"base": [], "head": []}
        for order in orders:
            for which in order:
                times[which].append(turn(which))
        base_first = [order[0] == "base" for order in orders[1:]]
        return Session(times["base"][1:], times["head"][1:], base_first)
