"""From something that fails to something smaller that fails, step by step."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def descend(
    start: T,
    smaller: Callable[[T], Iterator[T]],
    measure: Callable[[T], tuple[int, ...]],
    fails: Callable[[Sequence[T]], Sequence[bool]],
    seconds: float,
    has_meaning: Callable[[T], bool] = lambda _: True,
    batch: int = 4,
) -> T:
    """The smallest one, by `measure`, that `fails` and is found in about `seconds`.

    `smaller` gives smaller ones of one, the boldest steps first. `fails` tells of each of up to
    `batch` of those that have a meaning whether it fails as `start` does.

    Example: ``descend(9, lambda n: iter(range(n)), lambda n: (n,), are_odd, 1.0)`` is 1
    """
    end = time.monotonic() + seconds
    position, improved = 0, True
    while improved:
        # What was tried before the last step is tried again only when all else is done.
        improved = position > 0
        candidates = itertools.islice(enumerate(smaller(start)), position, None)
        position = 0 if improved else position
        for found in _batches(candidates, has_meaning, end, batch):
            failing = [c for _, c in itertools.compress(found, fails([c for _, c in found]))]
            if failing:
                position = found[0][0]
                start = min(failing, key=measure)
                improved = True
                break
        if time.monotonic() > end:
            break
    return start


def _batches(
    candidates: Iterator[tuple[int, T]], has_meaning: Callable[[T], bool], end: float, size: int
) -> Iterator[list[tuple[int, T]]]:
    """Those that have a meaning, a few at a time, until the time is over."""
    batch: list[tuple[int, T]] = []
    for number, candidate in candidates:
        if time.monotonic() > end:
            return
        if has_meaning(candidate):
            batch.append((number, candidate))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
