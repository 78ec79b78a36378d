"""Who is missing while a launch waits; events and stores stand in."""

import time

import pytest
from torch import distributed as dist

from tilelang._paths import device_root
from tilelang.distributed.watch import KERNEL_WAITS, PATIENCE, Watch


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
        watch.check()
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
    assert "After 300 s the kernel prints the signal that it waits for" in text
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
        watch.check()


def test_a_rank_that_comes_late_is_forgiven():
    mark = Mark(False)
    late, other = watches(2, [lambda _: mark, lambda _: Mark(True)])
    late.launched("Kernel `gather`")
    assert "rank 1 has not come to it" in found_by(late)
    other.launched("Kernel `gather`")
    mark.is_over = True
    time.sleep(0.2)
    late.check()
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


class BrokenMark:
    """Stands in for an event of a device that has ended with an error."""

    def query(self):
        raise RuntimeError("CUDA error: unspecified launch failure\nand advice")


def test_a_kernel_that_ends_by_its_time_limit_is_told_with_the_rank(capfd):
    mark = Mark(False)
    marks = [mark]
    first, other = watches(2, [lambda _: marks[0], lambda _: Mark(True)])
    first.launched("Kernel `gather`")
    assert "has waited" in found_by(first)
    mark.query = BrokenMark().query
    end = time.monotonic() + 5
    while "has ended" not in first._found and time.monotonic() < end:
        time.sleep(0.02)
    with pytest.raises(RuntimeError) as found:
        first.check()
    text = str(found.value)
    assert (
        "of Kernel `gather`, has ended with an error: CUDA error: unspecified launch fail" in text
    )
    assert (
        "rank 1 has not come to it: its last launch is 0, of nothing; the kernel's own line" in text
    )
    assert "and advice" not in text
    assert text in capfd.readouterr().err
    # It goes on to say how far it is, and is not taken for dead.
    other.launched("Kernel `gather`")
    time.sleep(0.5)
    other.check()
    for watch in (first, other):
        watch.stop()


@pytest.mark.parametrize("all_have_come", [True, False])
def test_a_kernel_that_fails_by_itself(all_have_come, capfd):
    """Who is late for a moment is not blamed."""
    first, other = watches(2, [lambda _: BrokenMark(), lambda _: Mark(True)])
    if all_have_come:
        other.launched("Kernel `gather`")
        time.sleep(0.1)
    first.launched("Kernel `gather`")
    assert "No rank kept it waiting for 0.3 s. Look at what the kernel" in found_by(first)
    assert "rank 1" not in capfd.readouterr().err
    for watch in (first, other):
        watch.stop()


def test_the_error_of_a_launch_names_the_rank():
    """What follows a launch that waits in vain fails by the device's error."""
    (watch,) = watches(1, [lambda _: Mark(True)])
    error = RuntimeError("CUDA error: unspecified launch failure")
    assert watch.explained(error) is error
    watch._found = "launch 1 of rank 0: rank 1 has died"
    text = str(watch.explained(error))
    assert text == f"launch 1 of rank 0: rank 1 has died. This launch: {error}"
    watch.stop()


def test_a_kernel_waits_as_long_as_the_text_says():
    header = (device_root() / "cuda/tl/rank.h").read_text()
    assert f"kSignalSeconds = {KERNEL_WAITS};" in header
    assert KERNEL_WAITS - 60 < PATIENCE < KERNEL_WAITS
