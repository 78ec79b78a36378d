"""Who is missing while a launch waits; events and stores stand in."""

import time

import pytest
from torch import distributed as dist

from tilelang.distributed.watch import Watch


class Mark:
    """Stands in for an event."""

    def __init__(self, is_over=False):
        self.is_over = is_over

    def query(self):
        return self.is_over


def watches(ranks, marks):
    store = dist.HashStore()
    return [
        Watch(store, rank, ranks, marks[rank], patience=0.3, silent=0.25, says=0.02)
        for rank in range(ranks)
    ]


def found_by(watch, seconds=5.0):
    """The error of the rank's next launch."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            watch.launched("again")
        except RuntimeError as error:
            return str(error)
        time.sleep(0.02)
    return ""


@pytest.fixture
def three():
    """Rank 0's launch does not end."""
    made = watches(3, [lambda: Mark(False), lambda: Mark(True), lambda: Mark(True)])
    yield made
    for watch in made:
        watch.stop()


def test_a_rank_that_does_something_else_is_named(three, capfd):
    for watch in (*three[:2], three[0]):
        watch.launched("Kernel `gather`")
    three[1].launched("Kernel `gather`")
    text = found_by(three[0])
    assert "launch 1 of rank 0, of Kernel `gather`, has waited" in text
    assert "rank 2 has not come to it: its last launch is 0, of nothing" in text
    assert "rank 1" not in text
    assert text in capfd.readouterr().err


def test_a_rank_that_has_died_is_named(three):
    for watch in three:
        watch.launched("Kernel `gather`")
    time.sleep(0.1)  # in which it says so
    three[1].stop()
    text = found_by(three[0])
    assert "rank 1 has died, or its process stands still, at its launch 1" in text
    assert "rank 2" not in text


def test_a_launch_that_ends_and_one_that_is_long_are_silent(three):
    for watch in three:
        watch.launched("Kernel `gather`")
    time.sleep(0.8)
    # All have come to it, and all live: it may take long.
    for watch in three:
        watch.launched("Kernel `scatter`")


def test_a_rank_that_comes_late_is_forgiven():
    mark = Mark(False)
    late, other = watches(2, [lambda: mark, lambda: Mark(True)])
    late.launched("Kernel `gather`")
    assert "rank 1 has not come to it" in found_by(late)
    other.launched("Kernel `gather`")
    mark.is_over = True
    time.sleep(0.2)
    late.launched("Kernel `gather`")
    for watch in (late, other):
        watch.stop()


def test_a_capture_is_no_launch():
    (watch,) = watches(1, [lambda: None])
    watch.launched("Kernel `gather`")
    assert watch._pending is None
    watch.stop()
