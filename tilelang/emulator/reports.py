"""What the emulator found in a launch, from its text to one exception."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilelang._paths import device_root
from tilelang.emulator.buffers import Array, Tensor

_RECORD, _FIELD = "\x1e", "\x1f"
_MARKED = re.compile("\x1d([^\x1d]*)\x1d")  # kMark in src/device/emu/tl/error.h
_SCHEDULE = "\nschedule: "
_STATIC_BYTES = 48 * 1024  # kMaxStaticSharedBytes in src/device/emu/tl/worker.h
_PAST = {
    "read": "read it",
    "write": "wrote it",
    "atomic": "updated it atomically",
    "atomic read": "read it atomically",
    "atomic write": "wrote it atomically",
}
HOST = "host"
"""What works in front of a launch by several ranks; the block is then the rank."""
_WAITS = {"cp.async": "cp_async_wait", "copy to LDS": "wait_vmcnt"}
"""What waits for the copies of a thread, by what a report calls them."""
_PRESENT = {
    "read": "reads it",
    "write": "writes it",
    "atomic": "updates it atomically",
    "atomic read": "reads it atomically",
    "atomic write": "writes it atomically",
    "access": "accesses it",
}


@dataclass(frozen=True)
class Access:
    """One side of a report.

    Attributes:
        kind: ``"read"``, ``"write"``, ``"atomic"``, ``"atomic read"``, ``"atomic write"``, or
            ``"access"`` where only the address is known.
        engine: what works for the thread: ``"cp.async"``, ``"wgmma"``, ...; empty for itself.
        block, thread: indices (x, y, z).
        place: ``"file:line"`` of the kernel; empty where it is not known.
    """

    kind: str
    engine: str
    block: str
    thread: str
    place: str

    def words(self, verbs: dict[str, str], block: bool) -> str:
        """Such as ``thread (3, 0, 0) wrote it at gemm.py:10``."""
        if self.engine == HOST:
            return f"the program of rank {self.block} may use it before this launch"
        who = f"thread {self.thread}" + (f" of block {self.block}" if block else "")
        who = f"{self.engine} of {who}" if self.engine else who
        return f"{who} {verbs[self.kind]} at {self.place or 'an unknown line'}"


@dataclass(frozen=True)
class Report:
    """One defect.

    Attributes:
        kind: ``"race"``, ``"uninitialized"``, ``"out-of-bounds"``, ``"misaligned"``, ``"ended"``
            for shared memory of a block that has ended, ``"further"`` for a number of defects that
            there was no room for, or ``"failure"`` for what ended the run: a deadlock, lanes that
            diverge, a misaligned vector, a fault.
        kernel: its name.
        message: all of it in words.
        buffer: the element, such as ``A[3, 17]`` or ``A_shared + 209``; empty for a failure.
        access: what was being done; None for a failure.
        other: of a race, what had been done before.
        missing: of a race, what would order the two.
        count: how often it happened in this launch, at this line and for this buffer.
        schedule: how to have the run's schedule again; empty for the usual one.
    """

    kind: str
    kernel: str
    message: str
    buffer: str = ""
    access: Access | None = None
    other: Access | None = None
    missing: str = ""
    count: int = 1
    schedule: str = ""


class EmulationError(RuntimeError):
    """A kernel failed in the emulator. `reports` has all that was found before the run ended."""

    def __init__(self, reports: Sequence[Report], title: str = ""):
        times = [f" [{report.count} times]" if report.count > 1 else "" for report in reports]
        lines = [f"{report.message}{n}" for report, n in zip(reports, times, strict=True)]
        schedules = dict.fromkeys(f"schedule: {r.schedule}" for r in reports if r.schedule)
        super().__init__("\n".join([*([title] if title else []), *lines, *schedules]))
        self.reports = tuple(reports)


@dataclass(frozen=True)
class Memory:
    """What is known of the memory that a kernel sees: the arrays that it declares, and its
    arguments, None for one that is no tensor.
    """

    arrays: Sequence[Array]
    arguments: Sequence[Tensor | None]

    def barrier(self, offset: int) -> str:
        """The mbarrier at an offset from dynamic shared memory, as a kernel of the language writes
        it; empty where none is declared there."""
        memory, start = ("static", offset + _STATIC_BYTES) if offset < 0 else ("dynamic", offset)
        for array in self.arrays:
            if array.memory == memory and array.holds(start):
                return f"{array.name}[{array.element(start)}]"
        return ""

    def place(self, space: str, argument: int, offset: int, base: int | None, extent: int) -> str:
        """Words for a place; `base` and `extent` are those of the array in bytes, if known."""
        if space == "global":
            known = self.arguments[argument] if argument < len(self.arguments) else None
            return known.place(offset) if known else f"byte {offset} of argument {argument}"
        if space == "local":
            same = [a for a in self.arrays if a.memory == space and a.is_of(extent)]
            return " or ".join(a.place(offset) for a in same) or "an array of the thread"
        origin = offset if base is None else base
        memory = "static" if origin < 0 else "dynamic"
        shift = _STATIC_BYTES if origin < 0 else 0
        start, begin = offset + shift, origin + shift
        of_memory = [array for array in self.arrays if array.memory == memory]
        if base is None:
            names = [array.place(start) for array in of_memory if array.holds(start)]
        else:
            found = [a for a in of_memory if a.begins_at(begin) and a.is_of(extent)]
            surely = [a for a in found if a.start is not None]
            names = [array.place(start, begin) for array in surely or found]
        return " or ".join(names) or f"byte {start} of {memory} shared memory"


def parse_reports(text: str, kernel: str, memory: Memory, library: Path) -> list[Report]:
    """The reports in what a launcher has written to its error buffer."""
    text, _, schedule = text.partition(_SCHEDULE)
    failure, *records = text.split(_RECORD)
    failure = marked_words(failure, memory)
    fields = [record.split(_FIELD) for record in records]
    places = _resolve({f for record in fields for f in record if f.startswith("+0x")}, library)
    reports = []
    for record in fields:
        if record[0] == "further":
            message = f"{record[1]} more, which there was no room for"
            reports.append(Report("further", kernel, message, count=int(record[1])))
            continue
        reports.append(_report(record, kernel, memory, lambda site: places.get(site, site)))
    if failure:
        reports.append(Report("failure", kernel, failure))
    return [dataclasses.replace(report, schedule=schedule) for report in reports]


def marked_words(text: str, memory: Memory, brief: bool = False) -> str:
    """A text of the emulator with names for the places and mbarriers that it only marks. With
    `brief` an mbarrier that has a name is told by that alone.

    Example: ``marked_words("the end of phase 0 of ...", Memory((), ()))``
    """
    return _MARKED.sub(lambda mark: _words(mark[1].split(_FIELD), memory, brief), text)


def _words(fields: list[str], memory: Memory, brief: bool) -> str:
    """Words for what a failure's text only marks: a place in memory, or an mbarrier."""
    if fields[0] == "place":
        space, argument, offset = fields[1:]
        return memory.place(space, int(argument), int(offset), None, 0)
    offset, place = fields[1:]
    name = memory.barrier(int(offset)) if offset else ""
    if name and brief:
        return name
    return (
        f"{name}, which was initialised at {place}"
        if name
        else f"the mbarrier initialised at {place}"
    )


def _report(
    fields: list[str], kernel: str, memory: Memory, place_of: Callable[[str], str]
) -> Report:
    kind, count, missing, space, argument, offset, size, base, extent, *parties = fields
    accesses = [
        Access(*parties[i : i + 4], place_of(parties[i + 4]))  # type: ignore[call-arg]
        for i in range(0, len(parties), 5)
    ]
    buffer = memory.place(
        space, int(argument), int(offset), int(base) if base else None, int(extent)
    )
    now = accesses[0]
    what = f"{size} bytes at {buffer} ({space} memory)"
    if kind == "race":
        before = accesses[1]
        missing = missing or _missing(space, now, before)
        message = (
            f"race on {what}: {now.words(_PRESENT, True)}, and "
            f"{before.words(_PAST, before.block != now.block)} with nothing that orders the two. "
            f"Missing: {missing}"
        )
        return Report(kind, kernel, message, buffer, now, before, missing, int(count))
    words = {
        "uninitialized": "before anything is written there",
        "ended": "and nothing orders that before the end of the block that it belongs to. Let the "
        "blocks of the cluster wait for each other before they end"
        if space != "global"
        else "and nothing orders that before the end of the launch of the rank that it belongs to, "
        "behind which that rank may use the memory again. Let that rank wait for a signal behind "
        "it (T.signal_wait_until, T.sync_ranks)",
        "out-of-bounds": f"which is outside of its {extent} bytes",
        "misaligned": f"which is not a multiple of {extent} bytes",
    }[kind]
    message = f"{kind}: {what}: {now.words(_PRESENT, True)}, {words}"
    return Report(kind, kernel, message, buffer, now, count=int(count))


def _missing(space: str, now: Access, before: Access) -> str:
    """What would order two accesses."""
    if before.engine == HOST:
        return (
            f"a signal of rank {before.block}, or T.sync_ranks, which says that its launch has "
            "begun"
        )
    if before.engine in _WAITS:
        wait = f"a wait for the copy in the thread that issued it ({_WAITS[before.engine]})"
        return wait if now.thread == before.thread else f"{wait} and a barrier behind it"
    if before.engine:
        return f"a wait for the end of the {before.engine}"
    if now.engine == "bulk load" and now.block == before.block:
        return (
            "an arrival behind the last use, and a wait for it in the thread that issues the copy "
            "(a barrier for both, or an mbarrier where they have different roles)"
        )
    if now.engine and now.thread == before.thread and now.block == before.block:
        return "a barrier or a fence between the two"
    if now.block != before.block and space == "shared":
        return "a barrier of the cluster between the two"
    if now.block.partition(" of ")[2] != before.block.partition(" of ")[2]:
        return "a signal from one rank to the other (T.signal_set, T.signal_wait_until)"
    if now.block != before.block:
        return "atomic operations, a barrier of the grid, or a kernel of its own for one of the two"
    return "a barrier for both threads (T.sync_threads) between the two"


def _resolve(sites: set[str], library: Path) -> dict[str, str]:
    """``file:line`` of offsets in a library's code: the innermost that is not a device header."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if not sites or tool is None:
        return dict.fromkeys(sites, "")
    headers = f"{device_root()}/"
    ordered = sorted(sites)
    # A return address is behind the call: the byte before it is still of the same line.
    addresses = [hex(int(site[1:], 16) - 1) for site in ordered]
    done = subprocess.run(
        [tool, "-a", "-i", "-e", str(library), *addresses],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, str] = {}
    site = ""
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            site = "+" + hex(int(line, 16) + 1)
            continue
        place = re.sub(r"^(\./)+", "", line.split(" (discriminator")[0])
        if site not in found and not place.startswith((headers, "?")):
            found[site] = place
    return {site: found.get(site, "") for site in ordered}
