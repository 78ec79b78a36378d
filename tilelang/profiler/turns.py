"""Comparing functions by turns, and what the host takes for a call apart from the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tilelang.profiler.bench import do_bench

if TYPE_CHECKING:
    from tilelang.testing.perf.statistics import Interval

ROUNDS = 6


@dataclass(frozen=True)
class Turns:
    """The times of functions that took turns.

    Attributes:
        times: milliseconds of each function's turns, by name; the n-th of one was taken next to the
            n-th of the others.
    """

    times: Mapping[Any, list[float]]

    @property
    def medians(self) -> dict[Any, float]:
        """The median of each function's turns, in milliseconds."""
        return {name: statistics.median(found) for name, found in self.times.items()}

    def ratio(self, name: Any, base: Any) -> Interval:
        """The time of one function over that of another, with the interval that it lies in.

        Example: ``str(turns.ratio("ours", "torch"))`` is such as ``0.953 (0.951 to 0.956)``
        """
        from tilelang.testing.perf.statistics import Session, interval

        names = list(self.times)
        # Turns go through the functions forwards and backwards, backwards in the first that counts.
        forwards = names.index(base) < names.index(name)
        first = [forwards == bool(turn % 2) for turn in range(len(self.times[base]))]
        return interval(Session(self.times[base], self.times[name], first))


def compare(
    functions: Mapping[Any, Callable[[], Any]],
    rep: float = 100,
    rounds: int = ROUNDS,
    rest: float = 0,
    **options: Any,
) -> Turns:
    """Times functions by name, the L2 cache flushed: they take turns of `rep` milliseconds, every
    other time in the opposite order, so that the chip's clock is the same for all. The first turn
    of each only warms the chip up: a cool one is faster.

    With `rest`, the chip idles for so many seconds before each turn, as it does for a lone
    `do_bench`, whose `options` are taken.

    Example: ``compare({"ours": lambda: kernel(a, b), "torch": lambda: a @ b}).medians["ours"]``
    """
    times: dict[Any, list[float]] = {name: [] for name in functions}
    for turn in range(1 + rounds):
        for name, function in list(functions.items())[:: -1 if turn % 2 else 1]:
            time.sleep(rest)
            found = do_bench(function, rep=rep, return_mode="median", **options)
            assert isinstance(found, float)
            times[name].append(found)
    return Turns({name: found[1:] for name, found in times.items()})


@dataclass(frozen=True)
class CallTime:
    """What a call takes, in milliseconds: of the host until it returns, and of the device."""

    host: float
    device: float


def time_call(
    fn: Callable[[], Any], calls: int = 100, batches: int = 10, **options: Any
) -> CallTime:
    """The times of host and device for ``fn()``, apart from each other.

    The host's time is the least mean of `batches` of `calls` calls, each batch behind a wait for
    the device; that is the time of a launch as long as the device's queue, of some thousand
    launches, is not full. The device's is the median by `do_bench`, whose `options` are taken. A
    function that runs on the CPU takes its time on both.

    Example: ``time_call(lambda: kernel(a, b)).host * 1e3`` microseconds
    """
    device = do_bench(fn, return_mode="median", **options)
    assert isinstance(device, float)
    found = []
    for _ in range(batches):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            fn()
        found.append((time.perf_counter() - start) / calls)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return CallTime(min(found) * 1e3, device)
