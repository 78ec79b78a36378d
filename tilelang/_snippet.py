"""How an error shows a place in the user's source."""

from __future__ import annotations

import linecache


def snippet(file: str, line: int, column: int) -> str:
    """Return ``--> file:line:column``, the line itself and a caret under the column, as the lines
    that follow a message.

    ``line`` and ``column`` count from 1; the column counts bytes of UTF-8, as Python's ``ast``
    does, and is shown in characters. Source that cannot be read is left out.

    Example
    -------
    For ``copy.py``, line 3, column 5::

          --> copy.py:3:5
           |     T.copy(A, B)
           |     ^
    """
    source = linecache.getline(file, line).rstrip()
    before = source.encode()[: column - 1].decode(errors="ignore")
    place = f"\n  --> {file}:{line}:{len(before) + 1 if source else column}"
    if not source:
        return place
    # A tab stays one, so that the caret is under its column however wide tabs are shown.
    indent = "".join(c if c == "\t" else " " for c in before)
    return f"{place}\n   | {source}\n   | {indent}^"
