"""Random tile programs against their numpy interpretation: ``python -m tilelang.testing.fuzz``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tilelang.testing.batch import DEVICES
from tilelang.testing.forms import appendable
from tilelang.testing.fuzz.emit import emit
from tilelang.testing.fuzz.generate import generate
from tilelang.testing.fuzz.run import run
from tilelang.testing.gpu import require_gpu


def main() -> None:
    """Parses the command line, runs, prints the report; status 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tilelang.testing.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which programs; 0 by default")
    parser.add_argument("--minutes", type=float, default=1.0, help="time for checking programs")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--programs", type=int, help="how many programs, at most")
    parser.add_argument("--twins", type=int, default=1, help="twins of each program")
    parser.add_argument("--device", choices=DEVICES, default="emulator", help="what runs programs")
    parser.add_argument("--output", type=Path, help="folder for failures; printed by default")
    parser.add_argument("--forms", type=appendable, help="file to add generated forms to")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for a failure")
    parser.add_argument("--show", type=int, help="print the program of that number, run nothing")
    arguments = parser.parse_args()
    if arguments.show is not None:
        print(emit(generate(arguments.seed, arguments.show)))
        return

    if arguments.device == "cuda":
        require_gpu()

    def say(text: str) -> None:
        print(text, flush=True)

    def save(name: str, text: str) -> None:
        if arguments.output is None:
            say(text)
            return
        arguments.output.mkdir(parents=True, exist_ok=True)
        path = arguments.output / f"fuzz_{re.sub(r'[^0-9a-z]+', '_', name)}.py"
        path.write_text(text)
        say(str(path))

    report = run(
        arguments.seed,
        60 * arguments.minutes,
        arguments.jobs,
        arguments.first,
        arguments.programs,
        arguments.twins,
        say,
        save,
        arguments.device,
        arguments.forms,
        arguments.shrink,
    )
    print(report.text())
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
