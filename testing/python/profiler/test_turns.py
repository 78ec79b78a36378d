"""Turns, and the host's time, by a clock that is made up."""

import functools
import time

import pytest

from tilelang.profiler import CallTime, Turns, compare, time_call, turns


def test_functions_take_turns_behind_one_that_warms_up(monkeypatch):
    """Each turn takes as long as the last one and a millisecond, as on a chip that gets warm."""
    calls, clock = [], iter(range(100))

    def bench(function, **options):
        function()
        return float(next(clock))

    monkeypatch.setattr(turns, "do_bench", bench)
    found = compare({name: functools.partial(calls.append, name) for name in "ab"}, rounds=3)
    assert "".join(calls) == "abbaabba"
    assert found.medians == {"a": 4.0, "b": 5.0}
    assert found.times == {"a": [3.0, 4.0, 7.0], "b": [2.0, 5.0, 6.0]}


def test_the_chip_rests_before_each_turn(monkeypatch):
    events = []
    monkeypatch.setattr(turns, "do_bench", lambda function, **options: function() or 1.0)
    monkeypatch.setattr(time, "sleep", events.append)
    compare({name: functools.partial(events.append, name) for name in "ab"}, rounds=1, rest=0.5)
    assert events == [0.5, "a", 0.5, "b", 0.5, "b", 0.5, "a"]


def test_a_ratio_has_its_interval():
    found = Turns({"torch": [2.0, 2.2, 2.0, 2.2], "ours": [1.0, 1.1, 1.0, 1.1]})
    assert found.ratio("ours", "torch").estimate == pytest.approx(0.5)
    assert found.ratio("torch", "ours").estimate == pytest.approx(2.0)


def test_who_goes_second_in_a_turn_is_not_favoured():
    """The second of two equal functions takes a tenth longer; more turns are backwards."""
    found = Turns({"a": [1.1, 1.0, 1.1], "b": [1.0, 1.1, 1.0]})
    assert found.ratio("b", "a").estimate == pytest.approx(1.0)
    assert found.ratio("a", "b").estimate == pytest.approx(1.0)


def test_the_host_is_timed_apart_from_the_device(monkeypatch):
    """A call takes the host a millisecond, two in the first batch; the device takes seven."""
    now, calls = [0.0], []
    monkeypatch.setattr(turns, "do_bench", lambda function, **options: 7.0)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def call():
        calls.append(1)
        now[0] += 0.002 if len(calls) <= 5 else 0.001

    assert time_call(call, calls=5, batches=3) == CallTime(pytest.approx(1.0), 7.0)
    assert len(calls) == 15
