"""The examples for several GPUs check themselves, in the emulator under its checks."""

import importlib
import pathlib
import re
import sys
import time

import pytest

from tilelang import emulator

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "distributed"
# How far each may be off.
BOUNDS = {
    "all_gather": 0,
    "all_gather_gemm": 4,
    "all_reduce": 1,
    "experts": 1,
    "gemm_all_reduce": 2,
    "gemm_reduce_scatter": 4,
    "kv_transfer": 0,
    "reduce_scatter": 1,
    "ring_attention": 4,
}
# Few blocks, where the sizes do not say how many.
OPTIONS = {"all_gather": {"blocks": 2}, "reduce_scatter": {"blocks": 2}}


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module
    for name in (*BOUNDS, "ranks"):
        sys.modules.pop(name, None)


def test_all_examples_are_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*BOUNDS, "ranks"}
    readme = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\((\w+)\.py\)", readme)) == set(BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_of_three_ranks(example, name):
    assert example(name).check(3, **OPTIONS.get(name, {})) <= BOUNDS[name]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", BOUNDS)
def test_of_other_numbers_of_ranks(example, name, ranks):
    assert example(name).check(ranks, **OPTIONS.get(name, {})) <= BOUNDS[name]


@pytest.mark.parametrize("name", BOUNDS)
def test_under_other_schedules(example, name):
    """An adversarial and a random one, of the kernels of two ranks."""
    for seed in (1, 2):
        order = ("random", "adversarial")[seed % 2]
        with emulator.schedule(order, seed=seed):
            assert example(name).check(2, **OPTIONS.get(name, {})) <= BOUNDS[name]


def test_gemm_reduce_scatter_of_four_ranks_takes_seconds(example):
    """Compilation left out, which the tests above have done."""
    module = example("gemm_reduce_scatter")
    module.check(4)
    start = time.process_time()
    module.check(4)
    assert time.process_time() - start < 5
