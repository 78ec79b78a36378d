"""``python -m tilelang.cache``: what is kept, why something was not found, and room.

``list`` (also without a command) names the entries, last used last; ``explain KEY`` says in what an
entry's key differs from the nearest other entry, hence why the one was not used for the other;
``prune`` removes what was not used for longest, and ``clear`` everything.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilelang.cache import clear_cache, store
from tilelang.cache.store import Listed
from tilelang.env import env, parse_size

_SHOWN = 12
_MOST_LINES = 40


def _size(count: int) -> str:
    return f"{count / 1024:.0f}K" if count < 1 << 20 else f"{count / (1 << 20):.1f}M"


def _age(used: int) -> str:
    seconds = max(0, time.time_ns() - used) // 10**9
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def list_entries() -> Iterator[str]:
    """A line for each entry, and one for all."""
    entries = store().described()
    for entry in entries:
        name = "damaged" if entry.parts is None else entry.parts.get("name", "")
        yield (
            f"{entry.kind:<9} {entry.path.name[:_SHOWN]} {_size(entry.size):>7} "
            f"{_age(entry.used):>7} ago  {name}"
        )
    total = _size(sum(entry.size for entry in entries))
    limit = env.TILELANG_CACHE_MAX_SIZE
    yield (
        f"{len(entries)} entries, {total} of {_size(limit) if limit else 'any size'}, "
        f"in {env.TILELANG_CACHE_DIR}"
    )


def nearest(entry: Listed, others: Sequence[Listed]) -> Listed | None:
    """The other entry of this kind whose key has the most parts in common, the newest of these."""
    own = entry.parts or {}
    candidates = [o for o in others if o.kind == entry.kind and o.path != entry.path and o.parts]

    def likeness(other: Listed) -> tuple[bool, int, int]:
        parts = other.parts or {}
        same = sum(parts.get(name) == value for name, value in own.items())
        return (parts.get("name") == own.get("name"), same, other.used)

    return max(candidates, key=likeness, default=None)


def explain(key: str) -> Iterator[str]:
    """In what the entry whose key begins with `key` differs from the nearest one.

    Raises `ValueError` where there is not one such entry.
    """
    entries = store().described()
    found = [e for e in entries if e.path.name.startswith(key)]
    if len(found) != 1 or found[0].parts is None:
        raise ValueError(f"key {key!r}: found {len(found)} entries, wanted one; see `list`")
    (entry,) = found
    other = nearest(entry, entries)
    yield f"{entry.kind} {entry.path}"
    for name, value in (entry.parts or {}).items():
        yield f"  {name}: {json.dumps(value)}"
    if other is None:
        yield "There is no other entry of this kind."
        return
    yield f"The nearest other entry is {other.path.name[:_SHOWN]}. What differs:"
    mine, theirs = dict(entry.parts or {}), dict(other.parts or {})
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            yield from _difference(name, theirs.get(name), mine.get(name))
            if name in ("program", "source"):
                yield from _texts(other, entry)


def _difference(name: str, there: Any, here: Any) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted(there.keys() | here.keys()):
            if there.get(key) != here.get(key):
                yield from _difference(f"{name}.{key}", there.get(key), here.get(key))
    else:
        yield f"  {name}: {json.dumps(there)} there, {json.dumps(here)} here"


def _texts(there: Listed, here: Listed) -> Iterator[str]:
    """The differences between the programs, or sources, of two entries."""
    for name in ("program.py", "kernel.cu"):
        files = [entry.path / name for entry in (there, here)]
        if not all(file.is_file() for file in files):
            continue
        old, new = (file.read_text().splitlines() for file in files)
        lines = list(difflib.unified_diff(old, new, "there", "here", lineterm="", n=1))
        if not lines and name == "program.py":
            yield "    the scripts are equal: places in the user's source differ, or layouts"
        yield from (f"    {line}" for line in lines[:_MOST_LINES])
        if len(lines) > _MOST_LINES:
            yield f"    ... {len(lines) - _MOST_LINES} more lines"
        return


def prune(limit: int) -> Iterator[str]:
    """Removes what is beyond `limit` bytes."""
    removed = store().prune(limit)
    yield f"removed {len(removed)} entries of {_size(sum(entry.size for entry in removed))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit status."""
    parser = argparse.ArgumentParser("python -m tilelang.cache", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("list", help="the entries, last used last")
    commands.add_parser("explain", help="why an entry was not found").add_argument("key")
    pruning = commands.add_parser("prune", help="remove what was not used for longest")
    limit = env.TILELANG_CACHE_MAX_SIZE
    pruning.add_argument("--max-size", type=parse_size, default=limit, help="such as 500M")
    commands.add_parser("clear", help="remove all entries")
    given = parser.parse_args(arguments)
    try:
        if given.command == "explain":
            lines = explain(given.key)
        elif given.command == "prune":
            lines = prune(given.max_size)
        elif given.command == "clear":
            clear_cache()
            lines = iter(())
        else:
            lines = list_entries()
        for line in lines:
            print(line)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
