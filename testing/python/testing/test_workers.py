"""Processes that check items: what a crash, a hang and a lost GPU cost."""

import os
import time

from tilelang.testing.workers import Outcome, Workers


def check(items):
    """By number: 3 crashes, 4 hangs, 5 loses the GPU, 6 is not come to; others are equal."""
    outcomes = [None] * len(items)
    for i, item in enumerate(items):
        if item == 3:
            os._exit(7)
        if item == 4:
            time.sleep(600)
        if item == 6:
            break
        outcomes[i] = Outcome("failed" if item == 5 else "equal", str(os.getpid()))
        if item == 5:
            break
    return outcomes


def test_one_item_fails_and_the_others_do_not():
    """Those behind a lost GPU go to another process; those beside a crash run again."""
    with Workers(check, 1) as workers:
        first, lost, *others = workers.check([1, 5, 7, 8], batch=4)
        (crash,) = workers.check([3])
    assert [first.status, lost.status] == ["equal", "failed"]
    assert first.reason == lost.reason
    assert [o.status for o in others] == ["equal", "equal"]
    assert len({first.reason, *(o.reason for o in others)}) == 2
    assert crash == Outcome("failed", *["crash: the process ended with 7"] * 2)


def test_a_hang_ends():
    with Workers(check, 1, seconds=0) as workers:
        assert workers.check([4]) == [Outcome("failed", *["hang: no result in time"] * 2)]


def test_a_process_that_can_run_nothing_is_no_endless_loop():
    with Workers(check, 1) as workers:
        assert workers.check([6])[0].reason == "crash: the process can run nothing"
