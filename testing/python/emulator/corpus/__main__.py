"""A table of what is found: ``python testing/python/emulator/corpus [--seeds N] [name ...]``; with
``--device cuda`` the correct kernels run on the GPU, and nothing else does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from corpus.kit import find, seeded
from corpus.table import CORPORA
from tilelang.testing.batch import DEVICES


def main() -> None:
    """Prints a line a defect, then each base that is blamed under some seed; or a line a base."""
    parser = argparse.ArgumentParser(prog="corpus", description=__doc__)
    parser.add_argument("names", nargs="*", help="defects and bases; all by default")
    parser.add_argument("--seeds", type=int, default=20, help="for the bases")
    parser.add_argument("--reports", action="store_true", help="print what is reported")
    parser.add_argument("--device", choices=DEVICES, default="emulator", help="what runs kernels")
    parser.add_argument("--jobs", type=int, default=4, help="processes that share a GPU")
    given = parser.parse_args()
    wrong = _on_gpu(given) if given.device == "cuda" else _in_emulator(given)
    print(f"{wrong} wrong")
    sys.exit(wrong > 0)


def _on_gpu(given: argparse.Namespace) -> int:
    """Runs the bases on the GPU; how many are wrong."""
    from corpus.gpu import bases, check
    from tilelang.testing.gpu import require_gpu
    from tilelang.testing.workers import Workers

    require_gpu()
    names = [(i, name) for i, name in bases() if not given.names or name in given.names]
    with Workers(check, given.jobs) as workers:
        outcomes = workers.check(names, batch=-(-len(names) // given.jobs))
    for (_, name), outcome in zip(names, outcomes, strict=True):
        print(f"{name:<44} {outcome.status:<8} {outcome.reason} {outcome.text}".rstrip())
    return sum(outcome.status == "failed" for outcome in outcomes)


def _in_emulator(given: argparse.Namespace) -> int:
    """Runs the defects, and the bases under all seeds; how many are not found or are blamed."""
    wrong = early = 0
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
            early += finding.good and finding.tries <= 2
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
    count = sum(name in given.names or not given.names for c in CORPORA for name in c.defects)
    print(f"{early} of {count} found under the first two schedules")
    return wrong


if __name__ == "__main__":
    main()
