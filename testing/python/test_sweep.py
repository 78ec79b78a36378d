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


def test_a_failure_is_told_when_it_is_found(sweep, capsys):
    """A sweep that is ended early has not printed its table."""
    _, runner = sweep
    tally, progress = runner.Tally(equal=7, failed=["one"]), runner.Progress()
    progress("gemm", tally)
    tally.failed.append("two")
    progress.printed -= runner.SECONDS_BETWEEN_COUNTS
    progress("gemm", tally)
    told = "failed: one\nfailed: two\ngemm: 7 equal, 0 refused, 2 failed so far\n"
    assert capsys.readouterr().err == told


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(SWEEP))
    yield importlib.import_module("classes"), importlib.import_module("drawn")
    for name in {m.stem for m in SWEEP.glob("*.py")} - {"__main__"}:
        sys.modules.pop(name, None)


def test_drawn_programs_equal_their_references(drawn):
    classes, module = drawn
    programs = [program for name in classes.CLASSES for program in classes.programs(name, 3, 1)]
    outcomes = module.check(programs, "emulator", module.TARGET)
    failed = [
        f"{p.name}: {o}" for p, o in zip(programs, outcomes, strict=True) if o.status == "failed"
    ]
    assert not failed
    assert sum(o.status == "equal" for o in outcomes) > len(programs) // 2


def test_what_fails_becomes_small(drawn):
    """A tile is read that nothing wrote, which the emulator reports."""
    classes, module = drawn
    lines = (
        "S = T.alloc_shared((8, 8), 'int32')",
        "U = T.alloc_shared((8, 8), 'int32')",
        "T.copy(A[0:8, 0:8], S)",
        "T.copy(U, B[0:8, 0:8])",
    )
    program = classes.named("parts 0/0")
    tensors = module.Tensor("A", (8, 8), "int32", 0, 99), module.Tensor("B", (8, 8), "int32")
    wrong = module.dataclasses.replace(
        program,
        tensors=(*program.tensors, *tensors),
        steps=(*program.steps[:-1], *map(module.Step, lines), program.steps[-1]),
        threads=256,
    )
    (outcome,) = module.check([wrong], "emulator", module.TARGET)
    assert outcome.status == "failed"
    small = module.made_small(wrong, outcome.reason, 60.0)
    assert [step.text for step in small.steps] == [lines[1], lines[3]]
    assert small.threads < 256
