"""A table of what is found: ``python testing/python/emulator/corpus [--seeds N] [name ...]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from corpus.kit import find, seeded
from corpus.table import CORPORA


def main() -> None:
    """Prints a line a defect, then each base that is blamed under some seed."""
    parser = argparse.ArgumentParser(prog="corpus", description=__doc__)
    parser.add_argument("names", nargs="*", help="defects and bases; all by default")
    parser.add_argument("--seeds", type=int, default=20, help="for the bases")
    parser.add_argument("--reports", action="store_true", help="print what is reported")
    given = parser.parse_args()
    wrong = 0
    print(f"{'defect':<44} {'kind found':<14} {'line':<6} {'schedule'}")
    for corpus in CORPORA:
        for name in corpus.defects:
            if given.names and name not in given.names:
                continue
            finding = find(corpus, name)
            kinds = ", ".join(sorted({report.kind for report in finding.reports})) or "nothing"
            line = "right" if finding.right_line else "wrong"
            print(f"{name:<44} {kinds:<14} {line:<6} {finding.schedule}")
            if given.reports or not finding.good:
                print(*[f"    {report.message}" for report in finding.reports], sep="\n")
            wrong += not finding.good
    for corpus in CORPORA:
        for name in corpus.bases:
            if given.names and name not in given.names:
                continue
            for seed in range(given.seeds):
                with seeded(seed):
                    reports = corpus.run(name)
                for report in reports:
                    print(f"{name} is blamed, seed {seed}: {report.message}")
                wrong += bool(reports)
    print(f"{wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
