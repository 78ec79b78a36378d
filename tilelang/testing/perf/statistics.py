"""Is one of two programs slower? Judged from pairs of times that were taken next to each other.

The chip's clock drifts, other work makes outliers, and a process may be a little slow as a whole.
Pairs cancel the drift; the mean of the middle fifth of their ratios takes no notice of outliers.
The second of a pair finds warm caches: pairs with base first and with head first count the same.
What looks different is measured again in new processes: it is different if both sessions say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.99
"""Of one interval. A report has dozens, and one that compares equal things is to be silent."""

LEAST_PAIRS = 6
"""Of a session: three of each order. An interval of one pair of each order is a point."""

RESAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """The ratio of head to base, above 1 where head takes longer, and where it lies between."""

    estimate: float
    low: float
    high: float

    def verdict(self, threshold: float) -> str:
        """``slower`` or ``faster`` where the whole interval is further from 1 than `threshold`,
        else ``unchanged``.

        Example: ``Interval(1.03, 1.02, 1.04).verdict(0.01) == "slower"``
        """
        if self.low > 1 + threshold:
            return "slower"
        return "faster" if self.high < 1 / (1 + threshold) else "unchanged"

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Session:
    """Times of base and head, the n-th of one taken next to the n-th of the other, and which of the
    two was first."""

    base: Sequence[float]
    head: Sequence[float]
    base_first: Sequence[bool]


@dataclass(frozen=True)
class Comparison:
    """What the sessions say of two programs.

    Attributes:
        interval: of the last session, which was not chosen by its result.
        verdict: ``slower``, ``faster`` or ``unchanged``.
        last: that session.
        sessions: how many there were.
    """

    interval: Interval
    verdict: str
    last: Session
    sessions: int

    @property
    def base(self) -> float:
        """The median time of base in the last session."""
        return float(np.median(self.last.base))

    @property
    def head(self) -> float:
        """The median time of head in the last session."""
        return float(np.median(self.last.head))


def middle_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the middle fifth along the last axis: nearly as steady as the median against
    outliers, and less coarse."""
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] * 2 // 5
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def interval(session: Session) -> Interval:
    """The ratio of paired times with its percentile bootstrap interval of `CONFIDENCE`.

    Raises `ValueError` where there are no pairs, or a time is not above 0.

    Example: ``interval(Session([1.0, 1.1], [2.0, 2.2], [True, False])).estimate`` is 2 but for
    rounding.
    """
    base, head, base_first = map(np.asarray, (session.base, session.head, session.base_first))
    if not len(base) == len(head) == len(base_first) or not len(base):
        raise ValueError(f"found {len(base)} and {len(head)} times, wanted as many, one or more")
    if not min(base.min(), head.min()) > 0:
        raise ValueError("found a time that is not above 0")
    ratios = np.log(head / base)
    # The same draws each time: the same times have the same report.
    draw = np.random.default_rng(0)
    estimates, resampled = [], []
    for order in (ratios[base_first], ratios[~base_first]):
        if len(order):
            draws = draw.integers(len(order), size=(RESAMPLES, len(order)))
            estimates.append(middle_mean(order))
            resampled.append(middle_mean(order[draws]))
    tail = (1 - CONFIDENCE) / 2
    means = np.mean(resampled, axis=0)
    ends = [float(np.quantile(means, at)) for at in (tail, 1 - tail)]
    return Interval(*(math.exp(x) for x in (float(np.mean(estimates)), *ends)))


def judge(measure: Callable[[], Session], threshold: float) -> Comparison:
    """Measures a session, and a second one where the first shows a difference."""
    verdicts = []
    while True:
        session = measure()
        found = interval(session)
        verdicts.append(found.verdict(threshold))
        if verdicts[-1] == "unchanged" or len(verdicts) == 2:
            break
    agreed = verdicts[-1] if len(set(verdicts)) == 1 else "unchanged"
    return Comparison(found, agreed, session, len(verdicts))


def together(comparisons: Sequence[Comparison]) -> Interval:
    """The ratio that the last sessions of all have, as if they were one: what all cases share
    shows when it is too small to be seen in one. Raises `ValueError` where there are none."""
    sessions = [comparison.last for comparison in comparisons]
    return interval(
        Session(
            [time for session in sessions for time in session.base],
            [time for session in sessions for time in session.head],
            [first for session in sessions for first in session.base_first],
        )
    )
