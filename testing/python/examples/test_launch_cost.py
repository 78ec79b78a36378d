"""benchmark/launch_cost.py measures, against a driver that does nothing where there is no GPU; and
what a call does on its way to the launch, counted instead of timed."""

import importlib
import pathlib
import sys
import tracemalloc

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


def allocated_by(function):
    """Bytes of Python's memory that a call takes at most, beyond what was there before."""
    found = []
    function()
    tracemalloc.start()
    try:
        for _ in range(5):  # what others do meanwhile is not the call's
            function()
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            function()
            found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return min(found)


@pytest.fixture
def called(launch_cost, tmp_path):
    """Calls of kernels, by their names, that a driver takes which does nothing."""
    a, c = torch.zeros(4, 64), torch.zeros(4, 64)
    two, one = launch_cost.into(64), launch_cost.returned(64)
    stand_in = launch_cost.StandIn(str(tmp_path))
    for kernel in (two, one, launch_cost.copied.compile(a)):
        stand_in.take(kernel)
    return {
        "two": lambda: two(a, c),
        "two, factory": lambda: launch_cost.into(64)(a, c),
        "one": lambda: one(a),
        "one, factory": lambda: launch_cost.returned(64)(a),
        "one, eager": lambda: launch_cost.copied(a),
        "one, eager, keywords": lambda: launch_cost.copied(A=a, block=64),
    }


stand_in = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the driver that does nothing is for CPU tensors"
)


@stand_in
def test_what_a_call_goes_through(called):
    functions = {name: set(calls_of(call)) for name, call in called.items()}
    assert functions["two"] == set()
    assert functions["two, factory"] <= {"is_initialized"}
    for name in ("one", "one, factory", "one, eager", "one, eager, keywords"):
        assert functions[name] <= {"is_initialized", "empty"}


@stand_in
def test_what_a_call_allocates(called):
    found = {name: allocated_by(call) for name, call in called.items()}
    assert found["two"] == found["two, factory"] == 0
    # Of the output: its shape, the tensor.
    assert 0 < found["one"] == found["one, factory"] == found["one, eager"] < 1000
    # Python makes a dict of the keywords.
    assert found["one, eager, keywords"] - found["one"] < 300
