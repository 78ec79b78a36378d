"""Timelines of pipelines, as SVG: what each step of a loop does, and on which iteration.

They are drawn from what the compiler has left on the kernel (`tl.pipelines`, `tl.warp_roles`), not
from a clock: a box is as long as a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _LABEL = 58, 26, 250
_COLORS = ("#8fb8de", "#f2b880", "#a5cf9b", "#d7a5cf", "#e8d27a", "#9ed3cf")

Box = tuple[int, int, int, str, str]
"""Row, first step, number of steps, text, colour."""


def _facts(kernel: Any, name: str) -> Any:
    functions = kernel.artifact.device_mod.functions.values()
    return next(f.attrs[name] for f in functions if name in f.attrs)


def _source(file: str, line: int) -> str:
    text = Path(file).read_text().splitlines()[line - 1].strip()
    return text if len(text) < 38 else text[:36] + ".."


def pipeline(kernel: Any, path: str, iterations: int = 5) -> None:
    """Draws the first `T.Pipelined` of a kernel without roles.

    In step t a statement of stage s works on iteration t - s. A column is a step, a row a
    statement, the number in a box its iteration.
    """
    plan = _facts(kernel, "tl.pipelines")[0]
    lines = [int(s["line"]) for s in plan["statements"]]
    stages = [int(s) for s in plan["stage"]]
    boxes = [
        (row, iteration + stage, 1, str(iteration), _COLORS[iteration % len(_COLORS)])
        for row, stage in enumerate(stages)
        for iteration in range(iterations)
    ]
    labels = [_source(str(plan["file"]), line) for line in lines]
    _write(path, labels, boxes, iterations + max(stages))


def roles(kernel: Any, path: str, iterations: int = 6, load: int = 2, compute: int = 2) -> None:
    """Draws the roles of a warp-specialised kernel over the fills of its first channel.

    The producer fills a slot when the consumer has released it; the consumer works on a slot when
    it is full. `load` and `compute` are the assumed steps of a fill and of its use.
    """
    found = _facts(kernel, "tl.warp_roles")[0]
    versions = int(found["channels"][0]["versions"])
    filled, used = timetable(versions, iterations, load, compute)
    names = [str(r["name"]) for r in found["roles"]]
    ranges = {
        str(r["name"]): f"threads {r['first']} to {int(r['first']) + int(r['threads']) - 1}"
        for r in found["roles"]
    }
    boxes: list[Box] = []
    for k in range(iterations):
        color = _COLORS[k % versions]
        boxes.append((0, filled[k] - load, load, f"fill {k}, slot {k % versions}", color))
        boxes.append((1, used[k] - compute, compute, f"use {k}, slot {k % versions}", color))
    labels = [f"{name}: {ranges[name]}" for name in names]
    _write(path, labels, boxes, used[-1])


def timetable(
    versions: int, iterations: int, load: int, compute: int
) -> tuple[Sequence[int], Sequence[int]]:
    """When each fill, and each use, is over.

    Loads follow each other by a step and take `load` steps; there are as many at a time as slots.
    """
    filled: list[int] = []
    used: list[int] = []
    for k in range(iterations):
        begin = 0 if k == 0 else filled[-1] - load + 1
        if k >= versions:
            begin = max(begin, used[k - versions])
        filled.append(begin + load)
        used.append(max(filled[k], used[-1] if used else 0) + compute)
    return filled, used


def _write(path: str, labels: Sequence[str], boxes: Sequence[Box], steps: int) -> None:
    lanes = _lanes(boxes)
    rows = [
        max((lanes[i] for i, b in enumerate(boxes) if b[0] == r), default=0) + 1
        for r in range(len(labels))
    ]
    tops = [sum(rows[:r]) * _HEIGHT + 24 for r in range(len(labels) + 1)]
    width, height = _LABEL + steps * _WIDTH + 8, tops[-1] + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    parts += [
        f'<text x="{_LABEL + (step + 0.5) * _WIDTH}" y="16" text-anchor="middle" fill="#555">'
        f"{step}</text>"
        for step in range(steps)
    ]
    parts += [
        f'<text x="4" y="{tops[r] + rows[r] * _HEIGHT / 2 + 4}">{escape(label)}</text>'
        for r, label in enumerate(labels)
    ]
    for i, (row, first, count, text, color) in enumerate(boxes):
        x, y = _LABEL + first * _WIDTH, tops[row] + lanes[i] * _HEIGHT
        parts.append(
            f'<rect x="{x + 1}" y="{y + 1}" width="{count * _WIDTH - 2}" height="{_HEIGHT - 2}" '
            f'rx="3" fill="{color}" stroke="#444"/>'
            f'<text x="{x + count * _WIDTH / 2}" y="{y + 17}" text-anchor="middle">'
            f"{escape(text)}</text>"
        )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n".join([*parts, "</svg>"]) + "\n")


def _lanes(boxes: Sequence[Box]) -> Mapping[int, int]:
    """For each box the first line of its row in which it overlaps none in front of it."""
    ends: dict[tuple[int, int], int] = {}
    lanes = {}
    for i, (row, first, count, _, _) in enumerate(boxes):
        lane = 0
        while ends.get((row, lane), 0) > first:
            lane += 1
        ends[row, lane] = first + count
        lanes[i] = lane
    return lanes
