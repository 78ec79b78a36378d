"""benchmark/launch_cost.py measures, against a driver that does nothing where there is no GPU; and
what a call does on its way to the launch, counted instead of timed."""

import importlib
import pathlib
import sys

import pytest
import torch

BENCHMARKS = pathlib.Path(__file__).resolve().parents[3] / "benchmark"


@pytest.fixture(scope="module")
def launch_cost():
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("launch_cost")
    sys.path.remove(str(BENCHMARKS))
    del sys.modules["launch_cost"]


def calls_of(function):
    """How many functions, of Python and of C, a call goes through."""
    counted = []

    def count(frame, event, argument):
        if event == "call":
            counted.append(frame.f_code.co_name)
        elif event == "c_call":
            counted.append(argument.__name__)

    function()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return counted[1:-1]  # without `function` itself and what ends the profile


def test_every_kind_of_call_is_measured(launch_cost, tmp_path):
    found = launch_cost.measure(20, str(tmp_path))
    assert {"two tensors", "one output", "one output, factory", "one output, eager"} <= {*found}
    assert all(0 < microseconds < 1e5 for microseconds in found.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in is for CPU tensors")
def test_what_a_call_goes_through(launch_cost, tmp_path):
    a, c = torch.zeros(4, 64), torch.zeros(4, 64)
    two, one = launch_cost.into(64), launch_cost.returned(64)
    eager = launch_cost.copied.compile(a)
    stand_in = launch_cost.StandIn(str(tmp_path))
    for kernel in (two, one, eager):
        stand_in.take(kernel)
    assert calls_of(lambda: two(a, c)) == []
    assert set(calls_of(lambda: one(a))) <= {"empty"}
    factory = calls_of(lambda: launch_cost.returned(64))
    assert len(factory) <= 12, factory
    called = calls_of(lambda: launch_cost.copied(a))
    assert len(called) <= 26, called
    # `os.environ` takes a microsecond for a variable that is not set.
    assert "__getitem__" not in [*factory, *called]
