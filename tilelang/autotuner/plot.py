"""A picture of a search. Needs matplotlib, which nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilelang.autotuner.result import Trial


def plot_trials(trials: Sequence[Trial], path: str | Path) -> Path:
    """Draws the time of each trial in their order, and the best until then, to a file whose suffix
    is its format (png, pdf, svg). Failed trials are crosses at the lower edge. Returns the path.

    Raises `ImportError` where matplotlib is not installed, `ValueError` where no trial was timed.
    """
    from matplotlib.figure import Figure

    timed = [(i, t.latency, t.stopped) for i, t in enumerate(trials) if t.latency is not None]
    if not timed:
        raise ValueError("found no trial that was timed, wanted one to draw")
    figure = Figure(figsize=(8, 4))
    axes = figure.add_subplot()
    for stopped, marker, label in ((False, "o", "timed"), (True, "v", "given up")):
        points = [(i, latency) for i, latency, given_up in timed if given_up == stopped]
        if points:
            axes.plot(*zip(*points, strict=True), marker, label=label)
    best, lowest = [], float("inf")
    for _, latency, stopped in timed:
        lowest = lowest if stopped else min(lowest, latency)
        best.append(lowest)
    axes.step([i for i, _, _ in timed], best, where="post", label="best until then")
    failed = [i for i, trial in enumerate(trials) if trial.latency is None]
    if failed:
        bottom = min(latency for _, latency, _ in timed)
        axes.plot(failed, [bottom] * len(failed), "x", label="failed")
    axes.set_yscale("log")
    axes.set_xlabel("configuration")
    axes.set_ylabel("milliseconds")
    axes.legend()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, bbox_inches="tight")
    return target
