import time

import pytest
import torch

from tilelang.profiler import bench as timers
from tilelang.profiler import do_bench
from tilelang.profiler.bench import times_of_runs


def bench(**options):
    calls = []
    options = {"device": "cpu", "_n_warmup": 2, "_n_repeat": 3} | options
    return do_bench(lambda: calls.append(time.sleep(0.001 * (1 + len(calls) % 3))), **options), len(
        calls
    )


def test_the_numbers_of_runs_can_be_given():
    milliseconds, calls = bench()
    assert calls == 1 + 1 + 2 + 3
    assert 1 < milliseconds < 50


def test_budgets_give_the_numbers_of_runs():
    _, calls = bench(_n_warmup=0, _n_repeat=0, warmup=1, rep=60)
    assert 6 < calls < 40


@pytest.fixture
def timed(monkeypatch):
    """do_bench of a function whose runs take 1, 2 and 4 ms by a clock of its own."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def run(**options):
        runs = iter([1, 1, 1, 1, 1, 2, 4])

        def function():
            now[0] += next(runs) / 1000

        return do_bench(function, device="cpu", _n_warmup=2, _n_repeat=3, **options)

    return run


@pytest.mark.parametrize(
    ("mode", "wanted"), [("min", 1), ("median", 2), ("mean", 7 / 3), ("max", 4)]
)
def test_return_modes(timed, mode, wanted):
    assert timed(return_mode=mode) == pytest.approx(wanted)


def test_an_unknown_return_mode_is_refused():
    with pytest.raises(AssertionError, match="return_mode 'best'"):
        bench(return_mode="best")


def test_the_result_of_a_call_is_no_function():
    with pytest.raises(TypeError, match=r"got Tensor\. Pass a function that makes the call"):
        do_bench(torch.ones(1))


def test_quantiles(timed):
    assert timed(quantiles=[0.0, 0.5, 1.0]) == pytest.approx([1, 2, 4])


def test_an_estimate_over_the_baseline_stops():
    _, calls = bench(early_stop_baseline=0.1)
    assert calls == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "clock"}, "backend 'clock' is not supported: expected .*event, cupti"),
        ({"backend": "cupti"}, "'cupti' needs a CUDA device"),
        ({"backend": "cupti", "clean_flush": True}, "found clean_flush with backend 'cupti'"),
        ({"backend": "cudagraph"}, "needs a CUDA device"),
        ({"device": "meta"}, "expected a CUDA device, or cpu"),
    ],
)
def test_what_cannot_be_timed_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        bench(**options)


FLUSH, GEMM, FILL = ("flush", 9.0), ("gemm", 2.0), ("flush", 1.0)


@pytest.mark.parametrize("launches", range(1, 10))
def test_runs_begin_at_all_places(launches, monkeypatch):
    """Launches in front of a run, modulo _PLACES, are each as frequent."""
    launched, places = [0], []

    class Launches:
        def zero_(self):
            launched[0] += 1

        def record(self):
            pass

        def elapsed_time(self, other):
            return 1.0

    def run():
        places.append(launched[0] % timers._PLACES)
        launched[0] += launches

    monkeypatch.setattr(timers, "_event", Launches)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timer = object.__new__(timers._CudaTimer)
    timer._cache, timer._spare, timer._clean = Launches(), Launches(), False
    timer.run(run, 16)
    assert all(places.count(place) == 4 for place in range(timers._PLACES))


def records(*kernels):
    """Records in the order of the kernels, the last one first."""
    return [(float(i), time, name) for i, (name, time) in enumerate(kernels)][::-1]


@pytest.mark.parametrize(
    ("kernels", "wanted"),
    [
        ((FLUSH, GEMM, FLUSH, GEMM, GEMM, FLUSH), [2, 4, 0]),  # as many as there are
        ((FLUSH, GEMM, FILL) * 3, [3, 3, 3]),  # the function fills, too
    ],
)
def test_records_of_the_device_are_dealt_to_runs_without_the_flush(kernels, wanted):
    assert times_of_runs(records(*kernels), 3) == wanted


@pytest.mark.parametrize("kernels", [(), (FLUSH, GEMM, FLUSH, GEMM), (FLUSH, GEMM) * 4])
def test_records_that_do_not_tell_runs_apart_are_refused(kernels):
    with pytest.raises(RuntimeError, match=rf"found {len(kernels)} records .* for 3 runs"):
        times_of_runs(records(*kernels), 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cupti_counts_the_kernels_of_a_call_alone():
    a = torch.randn(2048, 2048, device="cuda")

    def run():
        a @ a
        time.sleep(0.002)  # of the host: not counted

    assert 0 < do_bench(run, backend="cupti", _n_warmup=2, _n_repeat=5) < 2
