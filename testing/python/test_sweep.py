"""A compact part of testing/sweep: cases of each operator from all over its range, one library."""

import importlib
import itertools
import pathlib
import sys

import pytest

SWEEP = pathlib.Path(__file__).resolve().parents[1] / "sweep"
# Operator: how many of its first cases are walked through, and how many of those run.
PARTS = {
    "metamorphic": (576, 12),
    "gemm_forms": (280, 4),
    "atomic": (300, 3),
    "transpose": (300, 2),
    "reducer": (300, 3),
    "im2col": (288, 2),
}


@pytest.fixture
def sweep(monkeypatch):
    monkeypatch.syspath_prepend(str(SWEEP))
    yield importlib.import_module("metamorphic").OPERATORS, importlib.import_module("runner")
    for name in ("metamorphic", "operators", "runner"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "hip -mcpu=gfx942"])
def test_cases_equal_their_references(sweep, target):
    operators, runner = sweep
    cases = []
    for name, (walked, taken) in PARTS.items():
        some = list(itertools.islice(operators[name](), walked))
        assert len(some) == walked
        # A stride that no axis of the cases has as a factor.
        cases += [some[(k * 101 + 7) % walked] for k in range(taken)]
    tally = runner.run_batch(cases, target)
    assert not tally.failed
    assert tally.equal == len(cases)
