"""Makes a program that fails smaller: ``python -m tilelang.autodd FILE --error TEXT``.

Variants of FILE are run, with statements, arguments and parts of expressions left out and with
smaller numbers. A variant whose output, errors included, has TEXT is the next one to be made
smaller (delta debugging: Zeller and Hildebrandt 2002). The smallest one found is written beside
FILE. Each variant runs in a process of its own, so that a crash is a failure like others; do not
use it for programs that delete or send things.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tilelang.testing.source_reduction import Runner, reduce


def main() -> None:
    """Reduce a file; the exit status is 1 where it does not print the text."""
    parser = argparse.ArgumentParser(
        prog="python -m tilelang.autodd",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="a Python program that fails")
    parser.add_argument("arguments", nargs="*", help="its own, behind --")
    parser.add_argument("--error", required=True, help="part of what it prints when it fails")
    parser.add_argument("-o", "--output", type=Path, help="by default FILE with _reduced")
    parser.add_argument("--seconds", type=float, default=600, help="to search for smaller ones")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that a variant may take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="variants at a time")
    given = parser.parse_args()
    output = given.output or given.file.with_name(f"{given.file.stem}_reduced.py")
    start, shown = time.monotonic(), 0

    def tell(text: str) -> None:
        nonlocal shown
        output.write_text(text)
        lines = len(text.splitlines())
        if lines != shown:
            print(f"{time.monotonic() - start:6.0f} s  {lines:5} lines", flush=True)
            shown = lines

    runner = Runner(given.file.resolve().parent, given.arguments, given.timeout)
    try:
        text = given.file.read_text()
        found = reduce(text, given.error, runner, given.seconds, given.jobs, tell)
    except (OSError, SyntaxError, ValueError) as error:
        sys.exit(f"{given.file}: {error}")
    output.write_text(found)
    print(f"{output}: {len(found.splitlines())} of {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
