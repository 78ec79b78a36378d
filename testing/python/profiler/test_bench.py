import time

import pytest

from tilelang.profiler import do_bench


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


def test_quantiles(timed):
    assert timed(quantiles=[0.0, 0.5, 1.0]) == pytest.approx([1, 2, 4])


def test_an_estimate_over_the_baseline_stops():
    _, calls = bench(early_stop_baseline=0.1)
    assert calls == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "cupti"}, "backend 'cupti' is not supported"),
        ({"backend": "cudagraph"}, "needs a CUDA device"),
        ({"device": "meta"}, "expected a CUDA device, or cpu"),
    ],
)
def test_what_cannot_be_timed_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        bench(**options)
