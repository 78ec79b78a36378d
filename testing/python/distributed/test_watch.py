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
    """The error of the rank's next launch, once the watch has found something."""
    end = time.monotonic() + seconds
    while watch._found is None and time.monotonic() < end:
        time.sleep(0.02)
    with pytest.raises(RuntimeError) as found:
        watch.launched("again")
    return str(found.value)


@pytest.fixture
def three():
    """Rank 0's launch does not end."""
    made = watches(3, [lambda _: Mark(False), lambda _: Mark(True), lambda _: Mark(True)])
    yield made
    for watch in made:
        watch.stop()


def test_a_rank_that_does_something_else_is_named(three, capfd):
    for watch in three[:2]:
        watch.launched("Kernel `gather`")
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
    late, other = watches(2, [lambda _: mark, lambda _: Mark(True)])
    late.launched("Kernel `gather`")
    assert "rank 1 has not come to it" in found_by(late)
    other.launched("Kernel `gather`")
    mark.is_over = True
    time.sleep(0.2)
    late.launched("Kernel `gather`")
    for watch in (late, other):
        watch.stop()


def test_the_last_launch_is_watched_too():
    """That which the watch has not seen while an earlier one ran."""
    marks = [Mark(False), Mark(False)]
    first, other = watches(2, [lambda old: old or marks.pop(0), lambda _: Mark(True)])
    for watch in (first, other):
        watch.launched("Kernel `gather`")
    running = marks[0]
    time.sleep(0.1)
    first.launched("Kernel `scatter`")
    first.launched("Kernel `scatter`")
    assert not marks
    first._pending.mark.is_over = True
    time.sleep(0.7)
    assert first._pending.mark is running
    assert "launch 3 of rank 0, of Kernel `scatter`" in first._found
    assert "rank 1 has not come to it: its last launch is 1, of Kernel `gather`" in first._found
    for watch in (first, other):
        watch.stop()


def test_a_capture_is_no_launch():
    (watch,) = watches(1, [lambda _: None])
    watch.launched("Kernel `gather`")
    assert (watch._count, watch._last) == (0, None)
    watch.stop()
