"""Warp specialisation in words, from the function attribute ``tl.warp_roles``.

An entry for each kernel, from PlanWarpRoles (src/transform/tile/role_plan.cc has the fields): why
the kernel is not specialised, or its threads, statements and channels.
"""

from __future__ import annotations

import linecache
from typing import Any

_BY = {
    "tma": "TMA",
    "cp.async": "cp.async",
    "threads": "stores of all its threads",
    "elements": "all its threads, cp.async where elements allow it",
    "fetch": "one thread from a counter",
}


def roles_text(entry: Any) -> list[str]:
    """Lines that say who loads tiles in a kernel, and through which barriers.

    `entry` is one of the function attribute ``tl.warp_roles``.

    Example: ``print("\\n".join(roles_text(function.attrs["tl.warp_roles"][0])))``
    """
    file, line = str(entry["file"]), int(entry["line"])
    if entry["reason"]:
        place = f"{file}:{line}: " if line else ""
        return [f"not warp specialised: {place}{_first_line(entry['reason'])}"]
    scheduled = bool(int(entry["is_scheduled"]))
    if scheduled:
        lines = ["warp specialised by a schedule: " + "; ".join(map(_role, entry["roles"]))]
    else:
        producer, consumer = (_threads(role) for role in entry["roles"])
        lines = [f"warp specialised: threads {producer} produce, {consumer} consume"]
    lines += [f"  {_statement(file, statement)}" for statement in entry["statements"]]
    lines += [f"  {_channel(number, c)}" for number, c in enumerate(entry["channels"])]
    return lines


def source_line(file: str, statement: Any) -> str:
    """Where a statement of a kernel in `file` is, and its text. Those of macros may be in other
    files, which are named.

    Example: ``source_line("k.py", {"line": 3})`` is such as ``line 3, T.copy(A[0, 0], S)``
    """
    own, line = str(statement.get("file", file)), int(statement["line"])
    place = f"line {line}" if own == file else f"{own}:{line}"
    text = linecache.getline(own, line).strip() if own else ""
    return f"{place}, {text}" if text else place


def _threads(role: Any) -> str:
    first = int(role["first"])
    return f"{first} to {first + int(role['threads']) - 1}"


def _role(role: Any) -> str:
    registers = int(role["registers"])
    limited = f" with {registers} registers each" if registers else ""
    return f"{role['name']}, threads {_threads(role)}{limited}"


def _statement(file: str, statement: Any) -> str:
    words = [source_line(file, statement)]
    role = str(statement["role"])
    if statement["by"]:
        role += f", by {_BY[str(statement['by'])]}, channel {int(statement['channel'])}"
        if statement.get("reason"):
            role += f", not TMA: {_first_line(statement['reason'])}"
        if statement.get("blocks"):
            role += f", a part by each of the {int(statement['blocks'])} blocks of a cluster"
        if statement.get("why_own"):
            role += f", by each block of a cluster for itself: {statement['why_own']}"
    if statement.get("repeated"):
        role += "; the producer reads elements of it where it copies them from"
    return f"{', '.join(words)}: {role}"


def _first_line(reason: Any) -> str:
    """Without the layout that may follow."""
    return str(reason).partition("\n")[0].rstrip(":")


def _channel(number: int, channel: Any) -> str:
    versions = int(channel["versions"])
    sizes = {int(b) for b in channel["bytes"]}
    bytes_ = " or ".join(map(str, sorted(sizes))) + " bytes by TMA, " if sizes != {0} else ""
    count = str(channel["count"])
    numbered = "filled once" if count == "once" else f"fill number {count}"
    empty = int(channel["empty"])
    ways = ""
    if channel["name"]:
        targets = ", ".join(map(str, channel["targets"]))
        ways = f" ({channel['name']}, {channel['source']} to {targets})"
    return (
        f"channel {number}{ways}: {', '.join(map(str, channel['buffers']))}, "
        f"{versions} {'version' if versions == 1 else 'versions'}, {bytes_}{numbered}; "
        f"full after {int(channel['full'])}"
        + (f", empty after {empty} arrivals" if empty else " arrivals, never refilled")
    )
