"""A `tilelang.emulator.Timeline` as a page: warps and engines downwards, turns to the right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilelang.tools import page

if TYPE_CHECKING:
    from tilelang.emulator.timeline import KernelTimeline, Operation, Timeline, Wait

_ROW, _LEFT, _TOP, _WIDTH = 24, 180, 20, 1030
_MOST_BARS = 4000
_RUN, _READY, _WAIT = "#58b368", "#c9ecd0", "#c3c8cd"
_ENGINES = {
    "TMA load": "#ffb86b",
    "TMA store": "#c9b6f2",
    "cp.async": "#f2d16b",
    "wgmma": "#e5a4cb",
}


def timeline_page(timeline: Timeline) -> str:
    """The page of all kernels that were recorded.

    Example: ``timeline_page(t)`` behind ``with timeline() as t: kernel(a, b)``
    """
    names = ", ".join(dict.fromkeys(k.kernel for k in timeline.kernels)) or "nothing"
    body = [
        f"<h1>A block of {page.text(names)}</h1>",
        '<p class="faint">What the emulator did, in its order: one thread runs at a time. A turn '
        "is what the threads of a warp do before another warp runs; it is no time. Lines lead from "
        "who releases to who goes on. Rest the pointer on a bar for its words.</p>",
    ]
    if timeline.left_out:
        body.append(
            f'<p class="warn">There was no room for {timeline.left_out} more events; see '
            "<code>timeline(events=..)</code>.</p>"
        )
    if not timeline.kernels:
        body.append("<p>No kernel that was launched has this block.</p>")
    for kernel in timeline.kernels:
        body += _kernel(kernel)
    return page.page(f"timeline of {names}", body)


def _kernel(kernel: KernelTimeline) -> Iterator[str]:
    yield f"<h2>{page.text(kernel.kernel)}</h2>"
    yield f"<p>{kernel.threads} threads, {kernel.warps} warps, {kernel.turns} turns</p>"
    operations, waits = kernel.operations(), kernel.waits()
    kinds = dict.fromkeys(_engine(o) for o in operations)
    colors = [(_color(name), name) for name in kinds]
    yield page.legend([(_RUN, "runs"), (_READY, "is ready"), (_WAIT, "waits"), *colors])
    yield _picture(kernel, waits, operations)
    yield "<h3>Who waits for whom, and where</h3>"
    yield _table(kernel, waits)


def _picture(kernel: KernelTimeline, waits: list[Wait], operations: list[Operation]) -> str:
    drawing = page.Drawing()
    step = max(2.0, min(26.0, _WIDTH / max(kernel.turns, 1)))
    names = [f"warp {w} ({_threads(kernel, w)})" for w in range(kernel.warps)]
    lanes = _lanes(operations)
    names += [name for name, _ in lanes]
    for row, name in enumerate(names):
        drawing.label(_LEFT - 8, _TOP + row * _ROW + 14, name, "end")
    apart = max(1, round(60 / step))
    for turn in range(0, kernel.turns + 1, apart):
        x = _LEFT + turn * step
        drawing.line(x, _TOP - 4, x, _TOP + len(names) * _ROW)
        drawing.label(x, _TOP - 8, str(turn), "middle", "faint")
    _draw_warps(drawing, kernel, waits[:_MOST_BARS], step)
    for number, (_, bars) in enumerate(lanes):
        for bar in bars[:_MOST_BARS]:
            left, y = _LEFT + (bar.begin + 0.5) * step, _TOP + (kernel.warps + number) * _ROW
            width = max((bar.end - bar.begin) * step, 3)
            drawing.rect(
                left, y + 3, width - 0.5, _ROW - 6, _color(bar.engine), "\n".join(bar.words), rx="2"
            )
    return drawing.svg("timeline of the block")


def _draw_warps(
    drawing: page.Drawing, kernel: KernelTimeline, waits: list[Wait], step: float
) -> None:
    runs = kernel.runs()
    for warp, turns in runs.items():
        if turns:
            x, width = _LEFT + turns[0][0] * step, (turns[-1][1] + 1 - turns[0][0]) * step
            drawing.rect(
                x, _TOP + warp * _ROW + 7, width, _ROW - 14, _READY, f"warp {warp} is ready"
            )
    for wait in waits:
        x, width = _LEFT + (wait.begin + 1) * step, (wait.end - wait.begin - 1) * step
        if width > 0:
            y = _TOP + wait.warp * _ROW
            drawing.rect(x, y + 7, width, _ROW - 14, _WAIT, _wait_words(wait))
    for warp, turns in runs.items():
        for first, last, places in turns:
            x, y = _LEFT + first * step, _TOP + warp * _ROW
            at = ", ".join(sorted(map(_short, places)))
            title = f"warp {warp} runs, turn {first}" + (f": {at}" if at else "")
            width = max((last - first + 1) * step - 0.5, 2)
            drawing.rect(x, y + 3, width, _ROW - 6, _RUN, title, rx="2")
    for wait in waits:
        source = wait.released_by
        if source is not None and source // kernel.warp_threads != wait.warp:
            rows = (source // kernel.warp_threads, wait.warp)
            from_y, to_y = (_TOP + (row + 0.5) * _ROW for row in rows)
            from_x, to_x = _LEFT + (wait.release + 0.5) * step, _LEFT + (wait.end + 0.2) * step
            drawing.line(from_x, from_y, to_x, to_y, style="stroke: var(--accent); opacity: 0.5")


@dataclass
class _Bar:
    """Operations of an engine that are waited for together; of several warps that do the same at
    the same time, if `places` are the same."""

    engine: str
    begin: int
    end: int
    places: set[str] = field(default_factory=set)
    words: list[str] = field(default_factory=list)


def _lanes(operations: list[Operation]) -> list[tuple[str, list[_Bar]]]:
    """Bars of each engine in rows in which none overlaps another."""
    groups: dict[tuple[str, int | None, int], _Bar] = {}
    for done in sorted(operations, key=lambda o: o.begin):
        engine = _engine(done)
        bar = groups.setdefault((engine, done.warp, done.end), _Bar(engine, done.begin, done.end))
        bar.places.add(done.place)
        bar.words.append(_done_words(done))
    numbered: dict[tuple[str, int], list[_Bar]] = {}
    count: Counter[tuple[str, int | None]] = Counter()
    for (engine, warp, _), bar in sorted(groups.items(), key=lambda item: item[1].begin):
        number = count[engine, warp]
        count[engine, warp] += 1
        _merge(numbered.setdefault((engine, number), []), bar)
    found: list[tuple[str, list[_Bar]]] = []
    by_engine: dict[str, list[_Bar]] = {}
    for (engine, _), bars in numbered.items():
        by_engine.setdefault(engine, []).extend(bars)
    for engine, bars in by_engine.items():
        rows: list[list[_Bar]] = []
        for bar in sorted(bars, key=lambda one: one.begin):
            free = next((row for row in rows if row[-1].end <= bar.begin), None)
            if free is None:
                rows.append(free := [])
            free.append(bar)
        found += [(engine if number == 0 else "", row) for number, row in enumerate(rows)]
    return found


def _merge(bars: list[_Bar], bar: _Bar) -> None:
    for other in bars:
        if other.places == bar.places and bar.begin <= other.end:
            other.end = max(other.end, bar.end)
            other.words += bar.words
            return
    bars.append(bar)


def _table(kernel: KernelTimeline, waits: list[Wait]) -> str:
    """Rows of waits that are about one thing, those that take the most turns first."""
    turns: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    who: dict[tuple[str, str], Counter[str]] = {}
    sources: dict[tuple[str, str], Counter[str]] = {}
    for wait in waits:
        key = (_short(wait.place), _about(wait.words))
        turns[key] += wait.end - wait.begin
        count[key] += 1
        who.setdefault(key, Counter())[str(wait.warp)] += 1
        source = "nobody" if wait.released_by is None else ""
        if wait.released_by is not None:
            source = f"warp {wait.released_by // kernel.warp_threads} at {_short(wait.released_at)}"
        sources.setdefault(key, Counter())[source] += 1
    rows = [
        (
            *(place, about, f"warp {_ranges(who[place, about])}", count[place, about], total),
            ", ".join(name for name, _ in sources[place, about].most_common(3)),
        )
        for (place, about), total in turns.most_common(40)
    ]
    if not rows:
        return "<p>No thread waited.</p>"
    head = ["at", "for", "who", "waits", "turns", "released by (the most frequent)"]
    return page.table(head, rows)


def _ranges(warps: Counter[str]) -> str:
    numbers = sorted(map(int, warps))
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)


def _about(words: str) -> str:
    """Without what changes from one wait to the next."""
    words = re.sub(r"^the end of phase \d+ \(parity \d\) of ", "a phase of ", words)
    return words.partition(": ")[0]


def _threads(kernel: KernelTimeline, warp: int) -> str:
    first = warp * kernel.warp_threads
    return f"{first} to {min(first + kernel.warp_threads, kernel.threads) - 1}"


def _engine(done: Operation) -> str:
    """The beginning of texts as "TMA load of 8192 bytes to A_shared + 0"."""
    return done.words.partition(" of ")[0].partition(" to ")[0]


def _color(engine: str) -> str:
    return _ENGINES.get(engine, "#8ecae6")


def _short(place: str) -> str:
    return place.rpartition("/")[2]


def _wait_words(wait: Wait) -> str:
    who = f"warp {wait.warp}" + (f" ({wait.lanes} lanes)" if wait.lanes > 1 else " (one lane)")
    by = ""
    if wait.released_by is not None:
        by = f"; released by thread {wait.released_by} at {_short(wait.released_at)}"
    return f"{who} waits at {_short(wait.place)} for {wait.words}{by}"


def _done_words(done: Operation) -> str:
    count = f"{done.count} x " if done.count > 1 else ""
    who = "another block" if done.warp is None else f"warp {done.warp}"
    end = f"done in turn {done.end}" if done.is_done else "not done at the end"
    return (
        f"{count}{done.words}, issued by {who} at {_short(done.place)} in turn {done.begin}, {end}"
    )
