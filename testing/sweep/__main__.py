"""Sweeps operators over dtypes, extents and threads: ``python testing/sweep [operator ...]``."""

from __future__ import annotations

import argparse
import os
import sys
import time

from metamorphic import OPERATORS
from runner import run


def main() -> None:
    """Print a line an operator, then the reasons of refusals and the failures."""
    parser = argparse.ArgumentParser(prog="testing/sweep", description=__doc__)
    parser.add_argument("operators", nargs="*", choices=[[], *OPERATORS], help="all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    arguments = parser.parse_args()
    failed = []
    print(f"{'operator':<22} {'equal':>7} {'refused':>8} {'failed':>7} {'seconds':>8}")
    for name in arguments.operators or OPERATORS:
        start = time.perf_counter()
        tally = run(name, arguments.jobs)
        seconds = time.perf_counter() - start
        refused = sum(tally.refused.values())
        print(f"{name:<22} {tally.equal:>7} {refused:>8} {len(tally.failed):>7} {seconds:>8.0f}")
        for reason, count in tally.refused.most_common():
            print(f"    {count:>6} refused: {reason}")
        for line in tally.failed[:20]:
            print(f"    failed: {line}")
        failed += tally.failed
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
