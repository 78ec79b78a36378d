"""Processes that check items: what a crash, a hang and a lost GPU cost."""

import importlib
import pathlib

import pytest

from tilelang.testing.workers import Outcome, Workers


@pytest.fixture
def check(monkeypatch):
    """A function that another process finds, which knows nothing of how pytest imports."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parent)
    return importlib.import_module("numbered").check


def test_one_item_fails_and_the_others_do_not(check):
    """Those behind a lost GPU go to another process; those beside a crash run again."""
    with Workers(check, 1) as workers:
        first, lost, *others = workers.check([1, 5, 7, 8], batch=4)
        (crash,) = workers.check([3])
    assert [first.status, lost.status] == ["equal", "failed"]
    assert first.reason == lost.reason
    assert [o.status for o in others] == ["equal", "equal"]
    assert len({first.reason, *(o.reason for o in others)}) == 2
    assert crash == Outcome("failed", *["crash: the process ended with 7"] * 2)


def test_a_hang_ends(check):
    with Workers(check, 1, seconds=0) as workers:
        assert workers.check([4]) == [Outcome("failed", *["hang: no result in time"] * 2)]


def test_a_process_that_can_run_nothing_is_no_endless_loop(check):
    with Workers(check, 1) as workers:
        assert workers.check([6])[0].reason == "crash: the process can run nothing"


def test_a_process_that_cannot_start_is_a_crash(check, monkeypatch):
    """It ends before it has read its items."""
    with Workers(check, 1) as workers, monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("sys"), "path", [])
        assert workers.check([1])[0].reason.startswith("crash: the process ended with 1")
