"""What was found night after night: a file of JSON lines, and a drawing of it."""

from __future__ import annotations

import datetime
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.testing.perf.build import Tree
from tilelang.testing.perf.run import Result


def entry(base: Tree, head: Tree, device: str, results: Sequence[Result]) -> dict[str, Any]:
    """A comparison as a line: the time in UTC, the commits, and for each case that did not fail the
    milliseconds and CPU seconds of compilation of head, their ratios to base, and its costs."""
    cases = {}
    for result in results:
        found: dict[str, Any] = {"costs": result.costs.get("head", {})}
        for name, comparison in (("milliseconds", result.time), ("compile", result.compile)):
            if comparison is not None:
                found[name] = comparison.head
                found[f"{name}_ratio"] = comparison.interval.estimate
        if not result.failures:
            cases[result.name] = found
    return {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "base": base.commit,
        "head": head.commit,
        "device": device,
        "cases": cases,
        "failed": [result.name for result in results if result.failures],
    }


def append(path: Path, line: dict[str, Any]) -> None:
    """Adds a line to a history, which is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a history; none where there is no file. Raises `ValueError` with file and line
    where one is not JSON."""
    found = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], start=1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: {error}; take the line out") from error
    return found


def relative(lines: Sequence[dict[str, Any]], key: str) -> dict[str, list[float | None]]:
    """For each case its value at each line over its first one; None where it has none."""
    names = dict.fromkeys(name for line in lines for name in line["cases"])
    found: dict[str, list[float | None]] = {}
    for name in names:
        values = [line["cases"].get(name, {}).get(key) for line in lines]
        first = next((value for value in values if value), None)
        if first is not None:
            found[name] = [None if value is None else value / first for value in values]
    return found


def draw(lines: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draws each case's time and compile time over its first one; False where there is no
    matplotlib or nothing to draw."""
    kinds = {"milliseconds": "time of a call", "compile": "compile time"}
    shown = {title: found for key, title in kinds.items() if (found := relative(lines, key))}
    if not shown or importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5 * len(shown)))
    for number, (title, cases) in enumerate(shown.items()):
        axes = figure.add_subplot(len(shown), 1, number + 1)
        for name, values in cases.items():
            given = np.array(values, dtype=float)  # None is not a number
            axes.plot(given, marker=".", linewidth=1, label=name)
        columns = np.array(list(cases.values()), dtype=float).T
        medians = [np.median(c[~np.isnan(c)]) if not np.isnan(c).all() else np.nan for c in columns]
        axes.plot(medians, color="black", linewidth=2, label="median")
        axes.set_xticks(range(len(lines)), [line["head"][:7] for line in lines], rotation=90)
        axes.set_ylabel(f"{title} over the first one")
        axes.legend(fontsize=5, ncols=2, loc="upper left", bbox_to_anchor=(1, 1))
    figure.tight_layout()
    figure.savefig(path)
    return True
