"""Is a commit slower than another one?

    python -m tilelang.testing.perf_regression --base main --head my-branch

Builds both in worktrees of their own, runs the same cases of both in turns, and writes report.md,
results.json and a plot. Without a GPU it compares what kernels cost and how long they take to
compile. Ends with 0 where nothing is slower, 1 where something is or fails, 2 where the two could
not be compared. docs/performance-regressions.md says more.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tilelang.testing.perf import history
from tilelang.testing.perf.build import BuildError, Trees, build_native
from tilelang.testing.perf.gpu_state import gpu_state
from tilelang.testing.perf.report import PLOT, Report, draw
from tilelang.testing.perf.run import Comparing, Failed, Options
from tilelang.testing.perf.statistics import LEAST_PAIRS


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    default = Options("", Path())
    parser = argparse.ArgumentParser(
        prog="python -m tilelang.testing.perf_regression",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, default_folder = parser.add_argument, Path("build/regression")
    add("--base", help="commit, branch or tag that is compared with")
    add("--head", help="commit, branch or tag that may be slower")
    add("--device", choices=["auto", "cuda", "emulator"], default="auto", help="auto: a GPU if any")
    add("--repository", type=Path, default=Path(), help="folder in the repository of both")
    add("--cases", type=Path, help="folder of regression_*.py, by default benchmark/ of this one")
    add("--only", default="", help="cases whose name this regular expression finds")
    add("--turns", type=int, default=default.turns, help="how often each side is timed")
    add("--compilations", type=int, default=default.compilations, help="how often it is compiled")
    add("--threshold", type=float, default=default.threshold, help="of a ratio's distance from 1")
    add("--compile-threshold", type=float, default=default.compile_threshold, help="for compiling")
    add("--output", type=Path, default=default_folder / "report", help="folder of the report")
    add("--work", type=Path, default=default_folder, help="folder of builds and worktrees")
    add("--history", type=Path, help="file of JSON lines to add a line to and to draw")
    found = parser.parse_args(arguments)
    if not (found.base and found.head):
        parser.error("found no --base or no --head, wanted both, as --base main --head HEAD")
    fewest = min(found.turns, found.compilations)
    if fewest < LEAST_PAIRS:
        parser.error(
            f"--turns and --compilations: found {fewest}, wanted {LEAST_PAIRS} or more: intervals "
            "of fewer times have no width, and equal programs look different"
        )
    return found


def chosen_device(asked_for: str) -> str:
    """``cuda`` or ``emulator``. Raises `SystemExit` where a GPU is asked for and there is none."""
    import torch

    if asked_for == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch finds no CUDA device; leave it out for the emulator")
    if asked_for != "auto":
        return asked_for
    return "cuda" if torch.cuda.is_available() else "emulator"


def compared(given: argparse.Namespace, build: Callable[[Path], None]) -> Report:
    """Builds and compares. Raises `BuildError`, `Failed`."""
    options = Options(
        device=chosen_device(given.device),
        cases=given.cases or given.repository / "benchmark",
        only=given.only,
        turns=given.turns,
        compilations=given.compilations,
        threshold=given.threshold,
        compile_threshold=given.compile_threshold,
    )
    with Trees(given.repository, given.work, build) as trees:
        base, head = trees.add(given.base), trees.add(given.head)
        print(f"base {base.describe()}\nhead {head.describe()}", flush=True)
        before = gpu_state() if options.device == "cuda" else {}
        results = []
        for result in Comparing(base, head, options).results():
            results.append(result)
            compiling = f", compiles {result.compile.verdict}" if result.compile else ""
            verdict = result.verdict(options.threshold)
            print(f"{result.name}: {verdict}{compiling}", flush=True)
        after = gpu_state() if options.device == "cuda" else {}
    return Report(base, head, options, results, {"before": before, "after": after})


def write(report: Report, given: argparse.Namespace) -> str:
    """Writes the report and, where it is wanted, the history; the report's text."""
    given.output.mkdir(parents=True, exist_ok=True)
    is_drawn = draw(report.results, given.output / PLOT)
    text = report.text(PLOT if is_drawn else None)
    (given.output / "report.md").write_text(text)
    line = history.entry(report.base, report.head, report.options.device, report.results)
    (given.output / "results.json").write_text(json.dumps(line, indent=2) + "\n")
    if given.history:
        history.append(given.history, line)
        history.draw(history.read(given.history), given.history.with_suffix(".svg"))
    return text


def main(
    arguments: Sequence[str] | None = None, build: Callable[[Path], None] = build_native
) -> int:
    """Compares as the command line says; the exit status. `build` makes the native products in a
    worktree."""
    given = parsed(arguments)
    if shutil.which("git") is None:
        print("found no git, wanted it for worktrees of both commits", file=sys.stderr)
        return 2
    try:
        given.work.mkdir(parents=True, exist_ok=True)
        report = compared(given, build)
    except (BuildError, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    print(write(report, given))
    return 1 if report.is_worse else 0


if __name__ == "__main__":
    sys.exit(main())
