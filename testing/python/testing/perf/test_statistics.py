"""Times with the faults of real ones: a chip that drifts, changes its clock, is disturbed."""

import numpy as np
import pytest

from tilelang.testing.perf.statistics import Session, interval, judge, together

TURNS = 60


class Chip:
    """A clock with two speeds that last, a slow drift, and other work now and then."""

    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)
        self.now, self.is_slow = 0, False
        self.phase = self.draw.uniform(0, 2 * np.pi)

    def time(self, milliseconds):
        self.now += 1
        self.is_slow ^= self.draw.random() < 0.05
        drift = 1 + 0.03 * np.sin(self.now / 20 + self.phase) + 0.0005 * self.now
        outlier = self.draw.uniform(1.1, 3) if self.draw.random() < 0.05 else 1.0
        clock = 1.06 if self.is_slow else 1.0
        return milliseconds * drift * outlier * clock * self.draw.lognormal(0, 0.005)

    def session(self, base, head):
        times = {"base": [], "head": []}
        given = {"base": base, "head": head}
        base_first = self.draw.permutation([True, False] * (TURNS // 2))
        for first in base_first:
            for which in ("base", "head") if first else ("head", "base"):
                times[which].append(self.time(given[which]))
        return Session(times["base"], times["head"], base_first)


@pytest.mark.parametrize(
    ("head", "verdict"), [(2.0, "unchanged"), (2.06, "slower"), (1.94, "faster")]
)
def test_ten_comparisons(head, verdict):
    found = []
    for seed in range(10):
        chip = Chip(seed)
        found.append(judge(lambda chip=chip: chip.session(2.0, head), 0.01))
    assert [comparison.verdict for comparison in found] == [verdict] * 10
    assert all(abs(comparison.interval.estimate / (head / 2) - 1) < 0.01 for comparison in found)


def alternating(base, head):
    return Session(base, head, np.arange(len(base)) % 2 == 0)


def paired(base, head):
    return interval(alternating(base, head))


def test_a_difference_within_the_threshold_is_none():
    times = np.linspace(1, 1.2, TURNS)
    assert paired(times, times * 1.009).verdict(0.01) == "unchanged"
    assert paired(times, times * 1.011).verdict(0.01) == "slower"
    assert paired(times, times / 1.011).verdict(0.01) == "faster"


def test_the_second_of_a_pair_may_be_faster():
    orders = [True, False, True, True, False, True, True]
    head = [0.8 if first else 1.25 for first in orders]
    found = interval(Session([1.0] * 7, head, orders))
    assert (found.low, found.estimate, found.high) == pytest.approx((1, 1, 1))


def test_a_process_that_is_slow_as_a_whole_is_not_head():
    sessions = iter([alternating([1.0] * 9, [1.1] * 9), alternating([1.0] * 9, [1.0] * 9)])
    found = judge(lambda: next(sessions), 0.01)
    assert (found.verdict, found.sessions) == ("unchanged", 2)
    sessions = iter([alternating([1.0] * 9, [1.1] * 9), alternating([1.0] * 9, [0.9] * 9)])
    assert judge(lambda: next(sessions), 0.01).verdict == "unchanged"


def test_what_all_share_shows_together():
    """10 % more, in noise of 10 %."""
    draw = np.random.default_rng(0)

    def session(head):
        noise = draw.lognormal(0, 0.1, size=(2, 9))
        return alternating(noise[0], noise[1] * head)

    slower = [judge(lambda: session(1.1), 0.05) for _ in range(20)]
    assert [comparison.verdict for comparison in slower].count("slower") < 5
    assert together(slower).verdict(0.05) == "slower"
    equal = [judge(lambda: session(1.0), 0.05) for _ in range(20)]
    assert together(equal).verdict(0.05) == "unchanged"


def test_what_is_equal_is_measured_once():
    assert judge(lambda: alternating([1.0, 2.0], [1.0, 2.0]), 0.01).sessions == 1


@pytest.mark.parametrize(("base", "head"), [([], []), ([1.0], [1.0, 1.0]), ([1.0], [0.0])])
def test_times_without_ratios_are_refused(base, head):
    with pytest.raises(ValueError, match=r"wanted|not above 0"):
        paired(base, head)
