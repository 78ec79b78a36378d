"""Sweeps operators over dtypes, extents and threads, and programs that a seed draws: ``python
testing/sweep [operator or class ...]``, ``python testing/sweep views parts --seed 7 --count 500``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from classes import CLASSES, named
from drawn import listing, made_small
from registers import OPERATORS
from runner import SHOWN, TARGET, Draws, Progress, Tally, run

from tilelang.testing import forms
from tilelang.testing.batch import DEVICES
from tilelang.testing.gpu import require_gpu

RUN_ON_GPU = Path(__file__).resolve().parents[1] / "forms" / "run_on_gpu.txt"
"""The forms of generated code that a GPU has run, now or earlier."""


def main() -> None:
    """Prints a line an operator, the reasons of refusals and the failures, then the forms of
    generated code that no GPU has run."""
    parser = argparse.ArgumentParser(prog="testing/sweep", description=__doc__)
    parser.add_argument(
        "operators", nargs="*", choices=[[], *OPERATORS, *CLASSES], help="all by default"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--device", choices=DEVICES, default="emulator", help="what runs kernels")
    parser.add_argument("--target", default=TARGET, help="for the emulator: `hip -mcpu=gfx942`")
    parser.add_argument(
        "--every", type=int, default=1, help="a sample: each N-th case", metavar="N"
    )
    parser.add_argument("--output", type=Path, help="folder for all failures, a file an operator")
    parser.add_argument("--forms", type=forms.appendable, help="file to add forms of code to")
    parser.add_argument("--seed", type=int, default=0, help="of the drawn programs")
    parser.add_argument("--count", type=int, default=100, help="drawn programs of a class")
    parser.add_argument(
        "--shrink", type=float, default=60, help="for a drawn program that fails", metavar="SECONDS"
    )
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        require_gpu()
    # A worker has a core of its own, and threads of NumPy wait for each other by spinning.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.forms or os.path.join(folder, "forms")
        failures = _sweep(arguments, file)
        print(forms.report(forms.merged([file]), forms.known_on_gpu(RUN_ON_GPU)))
    sys.exit(1 if failures else 0)


def _sweep(arguments: argparse.Namespace, file: str) -> int:
    """Prints the table; how many cases have failed."""
    start = time.perf_counter()
    cases = failures = 0
    print(f"{'operator':<22} {'equal':>7} {'refused':>8} {'failed':>7} {'seconds':>8}")
    names = arguments.operators or [*OPERATORS, *CLASSES]
    draws = Draws(arguments.seed, arguments.count)
    tallies = run(
        names,
        arguments.jobs,
        arguments.device,
        file,
        arguments.target,
        arguments.every,
        draws,
        Progress(),
    )
    for name, tally in tallies:
        seconds = time.perf_counter() - start
        refused = sum(tally.refused.values())
        print(f"{name:<22} {tally.equal:>7} {refused:>8} {len(tally.failed):>7} {seconds:>8.0f}")
        for reason, count in tally.refused.most_common():
            first = tally.refused_first[reason]
            print(f"    {count:>6} refused: {reason} (first: {first})")
        for line in tally.failed[:SHOWN]:
            print(f"    failed: {line[:300]}")
        if tally.failed and arguments.output is not None:
            arguments.output.mkdir(parents=True, exist_ok=True)
            (arguments.output / f"sweep_{name}.txt").write_text("\n\n".join(tally.failed) + "\n")
        if name in CLASSES:
            _print_small(tally, arguments)
        cases += tally.equal + refused + len(tally.failed)
        failures += len(tally.failed)
        sys.stdout.flush()
    seconds = time.perf_counter() - start
    print(f"{cases} cases, {failures} failed, {cases / seconds:.0f} cases a second")
    return failures


def _print_small(tally: Tally, arguments: argparse.Namespace) -> None:
    """The first program that has failed for each reason, of as few statements as fail so."""
    first = {reason: name for name, reason in reversed(tally.reasons.items())}
    for reason, name in first.items():
        program = named(name)
        small = made_small(program, reason, arguments.shrink, arguments.device, arguments.target)
        print(listing(small, reason))


if __name__ == "__main__":
    main()
