"""Who runs and who waits for whom in one block that the emulator runs.

    with tilelang.emulator.timeline() as t:
        kernel(a, b)
    t.save("t.html")   # or t.json, for chrome://tracing and ui.perfetto.dev

Events come in the order of the emulator's schedule, in which one thread runs at a time. A *turn* is
what the threads of a warp do before another warp has the processor. Turns are no times. Lanes that
wait for lanes of their own warp, and threads that poll, are not told of.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tilelang.emulator.buffers import declared_arrays
from tilelang.emulator.machine import noting
from tilelang.emulator.reports import Memory, marked_words

KINDS = ("begin", "wait", "go on", "release", "arrive", "issue", "done", "exit")
_NOBODY = 2**32 - 1
_TEXT_BYTES = 80  # of an event, on the average


class _Happening(ctypes.Structure):
    """``tl_happening`` of timeline.h."""

    _fields_ = (
        ("kind", ctypes.c_uint),
        ("thread", ctypes.c_uint),
        ("line", ctypes.c_uint),
        ("text", ctypes.c_uint),
        ("file", ctypes.c_char_p),
        ("what", ctypes.c_ulong),
    )


class _Recording(ctypes.Structure):
    """``tl_timeline`` of timeline.h."""

    _fields_ = (
        ("block", ctypes.c_uint * 3),
        ("rank", ctypes.c_uint),
        ("room", ctypes.c_ulong),
        ("count", ctypes.c_ulong),
        ("text_room", ctypes.c_ulong),
        ("text_count", ctypes.c_ulong),
        ("left_out", ctypes.c_ulong),
        ("happenings", ctypes.POINTER(_Happening)),
        ("texts", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Event:
    """Something that happened.

    Attributes:
        kind: one of `KINDS`: a thread waits, goes on, exits; it releases those that wait somewhere;
            it arrives at an mbarrier; it issues an operation of an engine; one is done.
        thread: of the block; None for one of another block, or for none.
        place: ``file:line`` in the kernel, or empty.
        words: what it waits for, what the operation is.
        what: of which wait point, or queue of operations: equal for the same one.
        turn: a number that grows.
    """

    kind: str
    thread: int | None
    place: str
    words: str
    what: int
    turn: int


@dataclass(frozen=True)
class Wait:
    """A warp, or some of its lanes, waits from a turn to another; `released_by` is the thread that
    let it go on, None for one of another block."""

    warp: int
    begin: int
    end: int
    place: str
    words: str
    lanes: int
    released_by: int | None
    released_at: str
    release: int
    """The turn of the release."""


@dataclass(frozen=True)
class Operation:
    """`count` equal operations of an engine, issued in one turn of `warp` and done in another."""

    words: str
    warp: int | None
    begin: int
    end: int
    place: str
    count: int
    is_done: bool


@dataclass
class KernelTimeline:
    """One kernel's run of the block: its name, its threads and what happened."""

    kernel: str
    threads: int
    warp_threads: int
    events: list[Event] = field(default_factory=list)

    @property
    def warps(self) -> int:
        """How many the block has."""
        return -(-self.threads // self.warp_threads)

    @property
    def turns(self) -> int:
        """How many there were."""
        return self.events[-1].turn + 1 if self.events else 0

    def runs(self) -> dict[int, list[tuple[int, int, set[str]]]]:
        """The turns that each warp had: first, last, and the places that are known."""
        found: dict[int, list[tuple[int, int, set[str]]]] = {w: [] for w in range(self.warps)}
        for event in self.events:
            if event.thread is None:
                continue
            mine = found[event.thread // self.warp_threads]
            if mine and mine[-1][1] >= event.turn - 1:
                mine[-1] = (mine[-1][0], event.turn, mine[-1][2])
            else:
                mine.append((event.turn, event.turn, set()))
            if event.place:
                mine[-1][2].add(event.place)
        return found

    def waits(self) -> list[Wait]:
        """All waits, in the order of their beginnings. The lanes of a warp that wait for the same
        are one, from where the last of them stops to where the first goes on."""
        open_: dict[int, Event] = {}
        released: dict[int, tuple[int, Event]] = {}
        parts: dict[tuple[int, int, str, int], list[tuple[Event, Event, Event | None]]] = {}

        def close(begin: Event, end: Event) -> None:
            thread = begin.thread or 0
            number, by = released.pop(thread, (-1, None))
            key = (thread // self.warp_threads, begin.what, begin.place, number)
            parts.setdefault(key, []).append((begin, end, by))

        for number, event in enumerate(self.events):
            if event.kind == "wait" and event.thread is not None:
                open_[event.thread] = event
            elif event.kind == "release":
                for thread, begin in open_.items():
                    if begin.what == event.what:
                        released.setdefault(thread, (number, event))
            elif event.kind == "go on" and event.thread in open_:
                close(open_.pop(event.thread), event)
        for begin in open_.values():
            close(begin, self.events[-1])
        found = [_wait_of(warp, lanes) for (warp, *_), lanes in parts.items()]
        return sorted(found, key=lambda wait: (wait.begin, wait.warp))

    def operations(self) -> list[Operation]:
        """What engines did, as it was issued: operations of one queue are done in that order."""
        queues: dict[int, list[Event]] = {}
        counts: dict[Operation, int] = {}
        for event in self.events:
            if event.kind == "issue":
                queues.setdefault(event.what, []).append(event)
            elif event.kind == "done" and queues.get(event.what):
                self._count(counts, queues[event.what].pop(0), event.turn, True)
        for left in queues.values():
            for event in left:
                self._count(counts, event, self.turns - 1, False)
        return [replace(one, count=count) for one, count in counts.items()]

    def _count(self, counts: dict[Operation, int], event: Event, end: int, is_done: bool) -> None:
        warp = None if event.thread is None else event.thread // self.warp_threads
        told = event.words
        if told.startswith("cp.async"):
            # Of many small copies of a warp the tile is told, not each element.
            told = told.partition(" + ")[0]
        key = Operation(told, warp, event.turn, end, event.place, 0, is_done)
        counts[key] = counts.get(key, 0) + 1


def _wait_of(warp: int, lanes: list[tuple[Event, Event, Event | None]]) -> Wait:
    begin, end = max(b.turn for b, _, _ in lanes), min(e.turn for _, e, _ in lanes)
    if end <= begin:
        begin, end = min(b.turn for b, _, _ in lanes), max(e.turn for _, e, _ in lanes)
    first, _, by = lanes[0]
    released = (None, "", end) if by is None else (by.thread, by.place, by.turn)
    return Wait(warp, begin, end, first.place, first.words, len(lanes), *released)


class Timeline:
    """What `timeline` has recorded; complete behind its ``with`` statement.

    Attributes:
        kernels: each launch of a kernel that ran the block, in order.
        left_out: how many events there was no room for.
    """

    def __init__(self) -> None:
        self.kernels: list[KernelTimeline] = []
        self.left_out = 0

    def chrome_trace(self) -> dict[str, Any]:
        """The data of a file in Chrome's trace format: processes are kernels, threads are warps and
        engines, microseconds are turns.

        Source: Trace Event Format, Google, 2016.
        """
        found: list[dict[str, Any]] = []
        for number, kernel in enumerate(self.kernels):
            found += _chrome_events(number, kernel)
        return {"traceEvents": found, "otherData": {"left out": self.left_out}}

    def save(self, path: str | Path) -> Path:
        """Writes a page, or Chrome's trace format where `path` ends in ``.json``.

        Example: ``t.save("t.html")``
        """
        from tilelang.tools import page
        from tilelang.tools.timeline_page import timeline_page

        is_trace = Path(path).suffix == ".json"
        return page.save(path, json.dumps(self.chrome_trace()) if is_trace else timeline_page(self))


def _chrome_events(number: int, kernel: KernelTimeline) -> Iterator[dict[str, Any]]:
    engines = sorted({o.words.partition(" ")[0] for o in kernel.operations()})
    rows = [f"warp {w}" for w in range(kernel.warps)] + engines
    yield {"ph": "M", "pid": number, "name": "process_name", "args": {"name": kernel.kernel}}
    for row, name in enumerate(rows):
        yield {"ph": "M", "pid": number, "tid": row, "name": "thread_name", "args": {"name": name}}

    def span(row: int, name: str, kind: str, begin: int, end: int, **told: Any) -> dict[str, Any]:
        at = {"pid": number, "tid": row, "ts": begin, "dur": max(end - begin, 0.5)}
        return {"ph": "X", "name": name, "cat": kind, "args": told, **at}

    for warp, runs in kernel.runs().items():
        for first, last, places in runs:
            yield span(warp, "runs", "run", first, last + 1, at=sorted(places))
    for i, wait in enumerate(kernel.waits()):
        by = {"released by thread": wait.released_by, "at": wait.released_at}
        yield span(wait.warp, wait.words, "wait", wait.begin + 1, wait.end, line=wait.place, **by)
        if wait.released_by is not None:
            flow = {"cat": "release", "name": "release", "id": f"{number}.{i}", "pid": number}
            source = wait.released_by // kernel.warp_threads
            yield {"ph": "s", "tid": source, "ts": wait.release, **flow}
            yield {"ph": "f", "bp": "e", "tid": wait.warp, "ts": wait.end, **flow}
    for done in kernel.operations():
        row = kernel.warps + engines.index(done.words.partition(" ")[0])
        told = {"line": done.place, "count": done.count, "warp": done.warp}
        yield span(row, done.words, "engine", done.begin, done.end + 1, **told)


@contextlib.contextmanager
def timeline(
    block: Sequence[int] = (0, 0, 0), *, rank: int = 0, events: int = 100_000
) -> Iterator[Timeline]:
    """Records what happens in one block of the launches in a ``with`` statement.

    Args:
        block: blockIdx of the block, up to three numbers.
        rank: of a program of several ranks, the one whose block it is.
        events: how many there is room for; the rest is counted (`Timeline.left_out`).

    Raises:
        ValueError: a block, rank or room that cannot be.

    Example: ``with timeline((1, 0)) as t: kernel(a, b)``
    """
    if not 1 <= len(block) <= 3 or min(*block, rank, 0) < 0:
        raise ValueError(
            f"block of timeline: found {tuple(block)} of rank {rank}, wanted up to three numbers "
            "from 0 on, such as (1, 0)"
        )
    if events < 1:
        raise ValueError(f"events of timeline: found {events}, wanted 1 or more")
    happenings = (_Happening * events)()
    texts = ctypes.create_string_buffer(events * _TEXT_BYTES)
    recording = _Recording(
        *((ctypes.c_uint * 3)(*block), rank, events, 0, len(texts), 0, 0),
        *(happenings, ctypes.addressof(texts)),
    )
    found = Timeline()
    token = noting.set(recording)
    try:
        yield found
    finally:
        noting.reset(token)
        found.left_out = int(recording.left_out)
        _read(recording, ctypes.addressof(texts), found)


def _read(recording: _Recording, texts: int, found: Timeline) -> None:
    memory = Memory((), ())
    turns = _Turns(32)
    for happening in recording.happenings[: recording.count]:
        words = ""
        if happening.text != _NOBODY:
            words = ctypes.string_at(texts + happening.text).decode(errors="replace")
        kind = KINDS[happening.kind]
        if kind == "begin":
            memory, warp_threads = _known_of(words, happening.what)
            found.kernels.append(KernelTimeline(words, happening.line, warp_threads))
            turns = _Turns(warp_threads)
            continue
        thread = None if happening.thread == _NOBODY else int(happening.thread)
        file = (happening.file or b"").decode(errors="replace")
        place = f"{file}:{happening.line}" if file else ""
        turn = turns.of(kind, thread)
        event = Event(
            kind, thread, place, marked_words(words, memory, brief=True), int(happening.what), turn
        )
        found.kernels[-1].events.append(event)


class _Turns:
    """Numbers turns: a new one begins with another warp, and where a thread goes on that has begun
    to wait in this one."""

    def __init__(self, warp_threads: int):
        self._warp_threads = warp_threads
        self._turn, self._warp = 0, -1
        self._waits: dict[int, int] = {}

    def of(self, kind: str, thread: int | None) -> int:
        """The turn of the next event."""
        if thread is None:
            return self._turn
        warp = thread // self._warp_threads
        again = kind == "go on" and self._waits.get(thread) == self._turn
        if self._warp >= 0 and (warp != self._warp or again):
            self._turn += 1
        self._warp = warp
        if kind == "wait":
            self._waits[thread] = self._turn
        return self._turn


class _SharedObject(ctypes.Structure):
    """``Dl_info`` of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _known_of(kernel: str, address: int) -> tuple[Memory, int]:
    """The arrays that a kernel declares, and the lanes of its warps; `address` is in its code."""
    from tilelang.emulator.compiler import loaded_module

    place = _SharedObject()
    known = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    module = loaded_module((place.file or b"").decode()) if known else None
    if module is None:
        return Memory((), ()), 32
    return Memory(declared_arrays(module.source, kernel), ()), module.warp_threads
