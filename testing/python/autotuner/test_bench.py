"""Checks and timings in real processes, on a chip that is made up, of configurations that behave as
they say."""

import importlib
import statistics

import pytest
import torch

from tilelang.autotuner.bench import ROUNDS, Batch, Bench, Rules
from tilelang.autotuner.candidate import Candidate, Lowered
from tilelang.autotuner.session import DeviceLost, Session, Workload, WrongResult

CHIP = '''
"""Stands for a GPU: a candidate's source says what it does."""

import os
import time

import torch


class Chip:
    name = "cpu"

    def __init__(self, number=0, backend="event"):
        self.calls, self.lost = [], False

    def load(self, candidate):
        word, *rest = candidate.lowered.source.split()
        if word == "refused":
            raise RuntimeError("the driver refuses it")

        def call(a, b):
            if word == "crash":
                os.kill(os.getpid(), 11)
            if word == "hang":
                time.sleep(600)
            if word == "lost":
                self.lost = True
            if word == "grows":
                a += 1
            return a + b + (word == "wrong")

        return call

    def wait(self):
        if self.lost:
            raise RuntimeError("an illegal memory access was encountered")

    def milliseconds(self, candidate, call, inputs, runs):
        self.wait()
        word, *rest = candidate.lowered.source.split()
        if word == "later" and len(self.calls) > 4:
            os.kill(os.getpid(), 11)
        self.calls.append((word, runs))
        # It gets warm: each turn takes longer than the one before.
        return float(rest[0]) * (1 + 0.01 * len(self.calls))
'''


@pytest.fixture
def chip(tmp_path, monkeypatch):
    """The module of the chip, here and in processes that are started from now on."""
    (tmp_path / "made_up_chip.py").write_text(CHIP)
    monkeypatch.syspath_prepend(tmp_path)
    return "made_up_chip:Chip"


def does(source: str) -> Candidate:
    """A candidate that does what the chip reads in its source."""
    return Candidate(Lowered("", source, "sm_90a", (), (), False, ""), b"", 0, 0, 0)


A, B = torch.arange(4.0), torch.ones(4)


def workload(**options):
    return Workload([A, B], **{"expected": [A + B], **options})


@pytest.fixture
def run(chip):
    """Times candidates by what they do; the results in their order."""
    benches = []

    def time(*sources, factor=None, seconds=30.0, best=None, **options):
        rules = Rules(chip, rep=100, seconds=seconds, factor=factor)
        benches.append(Bench(rules))
        candidates = {i: (does(source), "w") for i, source in enumerate(sources)}
        batch = Batch("run", 0, rules, candidates, {"w": workload(**options).to_bytes()}, best)
        return list(benches[-1].run(batch).values())

    yield time
    for bench in benches:
        bench.close()


def test_who_fails_costs_nobody_else(run):
    found = run("right 3", "crash 1", "wrong 1", "refused 1", "lost 1", "right 2")
    assert [m.latency is None for m in found] == [False, True, True, True, True, False]
    assert found[5].latency < found[0].latency
    assert "has ended" in found[1].failure
    assert "WrongResult" in found[2].failure
    assert "4 of 4 elements" in found[2].failure
    assert "the driver refuses it" in found[3].failure
    assert "illegal memory access" in found[4].failure


def test_who_hangs_is_ended(run):
    found = run("hang 1", "right 2", seconds=1.0)
    assert "more than 1 s" in found[0].failure
    assert found[1].latency is not None


def test_who_crashes_in_a_later_turn_is_told_from_who_comes_behind(run):
    found = run("right 2", "later 1", "right 3")
    assert [bool(m.failure) for m in found] == [False, True, False]


def test_a_warming_chip_favours_nobody(run):
    """By the first estimates the second of two equal ones is slower."""
    first, second = run("right 2", "right 2")
    assert first.latency == pytest.approx(second.latency, rel=0.012)
    assert first.latency > 2.05  # not of the cool chip


def test_a_clear_loser_is_given_up(run):
    found = run("right 2", "right 9", "right 3", factor=2.0)
    assert [m.stopped for m in found] == [False, True, False]
    assert run("right 2", factor=2.0, best=0.5)[0].stopped


def test_turns_are_in_alternating_order_behind_one_that_warms_up(chip):
    device = importlib.import_module(chip.split(":")[0]).Chip()
    bench, session = Bench(Rules(chip, rep=50)), Session(device)

    class Here:
        """A child in this process."""

        def call(self, function, method, *arguments, seconds):
            return getattr(session, method)(*arguments) if function.__name__ == "in_session" else 0

        def close(self):
            pass

    bench._child = Here()
    candidates = {0: (does("a 1"), "w"), 1: (does("b 1"), "w")}
    found = bench.run(Batch("run", 0, bench._rules, candidates, {"w": workload().to_bytes()}))
    assert [name for name, runs in device.calls if runs == 10] == list("abba" * 3)[: 2 * ROUNDS + 2]
    of_a = [1 + 0.01 * (i + 1) for i, call in enumerate(device.calls) if call == ("a", 10)]
    assert found[0].latency == statistics.median(of_a[1:])


@pytest.fixture
def session(chip):
    found = Session(importlib.import_module(chip.split(":")[0]).Chip())
    found.add_workload("w", workload().to_bytes())
    return found


def test_inputs_are_as_they_were_for_each_candidate(session):
    for number in range(3):
        with pytest.raises(WrongResult):
            session.admit(number, does("grows 1"), "w")
        assert session.admit(number, does("right 1"), "w") is None


def test_inputs_that_the_reference_changes_are_compared(session):
    expected = [A + 1 + B, A + 1]
    session.add_workload("in place", workload(expected=expected, changed=(0,)).to_bytes())
    session.admit(0, does("grows 1"), "in place")
    with pytest.raises(WrongResult):
        session.admit(1, does("right 1"), "in place")


def test_shared_inputs_stay_as_the_last_one_has_left_them(session):
    session.add_workload("shared", workload(shared=True, expected=None).to_bytes())
    session.admit(0, does("grows 1"), "shared")
    assert torch.equal(session._workloads["shared"][1][0], A + 1)


def test_outputs_are_returned_to_be_checked_by_hand(session):
    session.add_workload("by hand", workload(returns=True, expected=None).to_bytes())
    (found,) = session.admit(0, does("wrong 1"), "by hand")
    assert torch.equal(found, A + B + 1)


def test_a_lost_device_is_told(session):
    with pytest.raises(DeviceLost, match="illegal memory access"):
        session.admit(0, does("lost 1"), "w")


def test_another_number_of_outputs_is_wrong(session):
    session.add_workload("two", workload(expected=[A, B]).to_bytes())
    with pytest.raises(WrongResult, match="returned 2 outputs, the kernel 1"):
        session.admit(0, does("right 1"), "two")


def test_workloads_travel_with_their_types_and_strides():
    tensors = [
        torch.ones(4, 6, dtype=torch.float16).T,
        torch.ones(4).to(torch.float8_e4m3fn),
        torch.ones(4, dtype=torch.bool),
        torch.ones(4, dtype=torch.bfloat16),
        torch.ones(4, dtype=torch.uint16),
    ]
    found = Workload.of_bytes(Workload([*tensors, 3, 0.5]).to_bytes())
    for tensor, old in zip(found.inputs, tensors, strict=False):
        assert (tensor.dtype, tensor.stride()) == (old.dtype, old.stride())
        assert torch.equal(tensor.float(), old.float())
    assert found.inputs[5:] == [3, 0.5]
