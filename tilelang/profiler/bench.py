"""Timing of a function: CUDA events, records of kernels, CUDA graphs, or the wall clock for what
runs on the CPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

_RETURN_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "median": statistics.median,
}

_BACKENDS = ("event", "cupti", "cudagraph")

_PLACES = 4
"""The launches in front of a run, modulo this number, decide about the time of a run of several
kernels: on an H200 about 1.1 us of 13, and 1.9 of 17 for two of torch's copies."""


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    fast_flush: bool = True,
    backend: str = "event",
    return_mode: str = "mean",
    device: str | torch.device | int | None = None,
    cache_size: int = 256,
    early_stop_baseline: float | None = None,
    clean_flush: bool = False,
) -> float | list[float]:
    """The time of ``fn()`` in milliseconds; a list of them where `quantiles` (0 to 1) are asked
    for.

    `warmup` and `rep` are budgets in milliseconds, from which the number of runs is estimated;
    `_n_warmup` and `_n_repeat`, above 0, are numbers of runs. Before each timed run `cache_size` MB
    are written, so that the run finds nothing of its inputs in the L2 cache; `fast_flush` writes
    them as 4-byte instead of 1-byte elements. `backend` is ``"event"`` (a pair of CUDA events
    around each run), ``"cupti"`` (the time that the kernels, copies and fills of each run take on
    the device, by CUPTI's activity records, without what is between them) or ``"cudagraph"`` (the
    mean over a captured graph of the runs, with a warm cache). An estimate above
    `early_stop_baseline` is returned at once. With `clean_flush`, which is for the backend
    ``"event"``, what was written is read, too: else a run's first loads wait until lines of the
    cache are written back that are none of its own: on an H200 1.4, 4.3 and 8.4 us of 13, 25 and 63
    (torch's maximum of 12, 48 and 192 MB).

    A run of several kernels has one of four times, a microsecond or two apart, that the number of
    launches in front of it decides; by ``"event"``, every fourth run stands behind one launch more,
    so that as many runs have each.

    `device` is a CUDA device, by default the current one; ``"cpu"``, the default without a GPU,
    takes the wall clock.

    Raises `TypeError` for what is no function, such as the result of a call, `AssertionError` for
    an unknown `return_mode`, `ValueError` for another backend or
    device, or for `clean_flush` with another backend, `RuntimeError` where CUPTI's records do not
    tell the runs apart.

    Example: ``do_bench(lambda: kernel(a, b), return_mode="median")``
    """
    if not callable(fn):
        raise TypeError(
            f"do_bench: expected a function without arguments, got {type(fn).__name__}. Pass a "
            "function that makes the call, such as `lambda: kernel(a, b)`."
        )
    assert return_mode in _RETURN_MODES, (
        f"return_mode {return_mode!r}: expected one of {list(_RETURN_MODES)}"
    )
    if backend not in _BACKENDS:
        raise ValueError(
            f"backend {backend!r} is not supported: expected one of {', '.join(_BACKENDS)}"
        )
    if clean_flush and backend != "event":
        raise ValueError(
            f"found clean_flush with backend {backend!r}, wanted 'event'; leave it out"
        )
    timer = _timer(device, cache_size, fast_flush, clean_flush)
    with timer:
        fn()
        timer.synchronize()
        estimate = timer.estimate(fn)
        if early_stop_baseline is not None and estimate > early_stop_baseline:
            return estimate
        estimate = max(estimate, 1e-6)
        n_warmup = _n_warmup or max(1, int(warmup / estimate))
        n_repeat = _n_repeat or max(1, int(rep / estimate))
        for _ in range(n_warmup):
            fn()
        measure = {"event": timer.run, "cupti": timer.record, "cudagraph": timer.replay}[backend]
        times = measure(fn, n_repeat)
    if quantiles is not None:
        points = torch.tensor(times, dtype=torch.float64)
        return torch.quantile(points, torch.tensor(quantiles, dtype=torch.float64)).tolist()
    return _RETURN_MODES[return_mode](times)


def _timer(
    device: str | torch.device | int | None, cache_size: int, fast_flush: bool, clean_flush: bool
) -> _CudaTimer | _WallTimer:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if found.type == "cpu":
        return _WallTimer()
    if found.type != "cuda":
        raise ValueError(
            f"device {device!r}: expected a CUDA device, or cpu for an emulated kernel"
        )
    return _CudaTimer(found, cache_size, fast_flush, clean_flush)


class _WallTimer:
    """Times what runs to its end before it returns."""

    def __enter__(self) -> _WallTimer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def estimate(self, fn: Callable[[], Any]) -> float:
        return self.run(fn, 1)[0]

    def run(self, fn: Callable[[], Any], count: int) -> list[float]:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            fn()
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def record(self, fn: Callable[[], Any], count: int) -> list[float]:
        raise _needs_cuda("cupti")

    def replay(self, fn: Callable[[], Any], count: int) -> list[float]:
        raise _needs_cuda("cudagraph")


class _CudaTimer:
    """Times what runs on the current stream of a CUDA device."""

    def __init__(self, device: torch.device, cache_size: int, fast_flush: bool, clean_flush: bool):
        dtype = torch.int32 if fast_flush else torch.int8
        elements = cache_size * 1024 * 1024 // dtype.itemsize
        self._cache = torch.empty(elements, dtype=dtype, device=device)
        self._spare = torch.empty(1, dtype=dtype, device=device)
        self._clean = clean_flush
        self._scope = torch.cuda.device(device)

    def flush(self) -> None:
        self._cache.zero_()
        if self._clean:
            # More than the cache holds: what is read evicts all that was written.
            self._cache.max()

    def move(self, run: int) -> None:
        """Makes runs begin at all places, of 16 runs at each as often, however many launches a run
        has: every fourth one stands behind one launch more."""
        if run % _PLACES == _PLACES - 1:
            self._spare.zero_()

    def __enter__(self) -> _CudaTimer:
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def estimate(self, fn: Callable[[], Any]) -> float:
        """Milliseconds of a run and a flush: the budgets are of time that passes."""
        start, end = _event(), _event()
        start.record()
        for _ in range(5):
            self.flush()
            fn()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 5

    def run(self, fn: Callable[[], Any], count: int) -> list[float]:
        events = [(_event(), _event()) for _ in range(count)]
        for run, (start, end) in enumerate(events):
            self.move(run)
            self.flush()
            start.record()
            fn()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

    def record(self, fn: Callable[[], Any], count: int) -> list[float]:
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(count):
                self.flush()
                fn()
            torch.cuda.synchronize()
        records = [
            (event.time_range.start, event.time_range.elapsed_us() / 1e3, event.name)
            for event in profiler.events()
            if event.device_type == DeviceType.CUDA and not event.is_user_annotation
        ]
        return times_of_runs(records, count)

    def replay(self, fn: Callable[[], Any], count: int) -> list[float]:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                fn()
        graph.replay()
        start, end = _event(), _event()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / count]


def times_of_runs(records: Iterable[tuple[float, float, str]], count: int) -> list[float]:
    """Milliseconds that the device worked in each of `count` runs, in front of each of which one
    kernel flushed the cache.

    `records` are the start of each kernel, copy or fill, its milliseconds and its name. Raises
    `RuntimeError` where it cannot be told what belongs to which run.
    """
    found = sorted(records)
    names = [name for _, _, name in found]
    starts = [i for i, name in enumerate(names) if name == names[0]]
    if len(starts) != count and len(found) % max(1, count) == 0:
        # The function itself runs what the flush runs: each run has as many records.
        starts = list(range(0, len(found), len(found) // count)) if found else []
    if len(starts) != count or len({names[i] for i in starts}) != 1:
        raise RuntimeError(
            f"do_bench with backend 'cupti' found {len(found)} records of the device for {count} "
            "runs, wanted the same number for each; let each run do the same work, or use backend "
            "'event'"
        )
    ends = [*starts[1:], len(found)]
    return [
        sum(time for _, time, _ in found[start + 1 : end])
        for start, end in zip(starts, ends, strict=True)
    ]


def _needs_cuda(backend: str) -> ValueError:
    return ValueError(
        f"backend {backend!r} needs a CUDA device; use 'event' for an emulated kernel"
    )


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
