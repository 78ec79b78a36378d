"""Tuning on clusters of one machine with two workers, where Ray or Dask is installed."""

import contextlib
import math
import pickle

import pytest
import torch

import tilelang.language as T
from tilelang.autotuner import AutoTuner
from tilelang.autotuner.executors import RayExecutor
from tilelang.autotuner.processes import CallFailed

N = 128


def adder(block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(N // block, threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1

    return main


@contextlib.contextmanager
def of_ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        with RayExecutor(2) as executor:
            yield executor
    finally:
        ray.shutdown()


@contextlib.contextmanager
def of_dask():
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


@pytest.mark.parametrize("cluster", [of_ray, of_dask])
def test_a_cluster_compiles_and_times(cluster):
    with cluster() as executor:
        assert executor.submit(math.sqrt, 4.0).result() == 2.0
        with pytest.raises(ValueError, match="math domain error"):
            executor.submit(math.sqrt, -1.0).result()
        tuner = AutoTuner.from_kernel(adder, {"block": [32, 64, 128]})
        tuner.set_compile_args(out_idx=-1, execution_backend="emulate")
        tuner.set_profile_args(ref_prog=lambda a: a + 1, timeout=60)
        found = tuner.set_executors(executor, executor, timing_workers=2).run()
    assert all(trial.counts for trial in found.trials)
    assert found.config == {"block": 128}
    assert torch.equal(found.kernel(torch.ones(N)), torch.full((N,), 2.0))


class RayTaskError(Exception):
    def __init__(self, cause):
        super().__init__("ray::_Worker.call() (pid=1)")
        self.cause = cause


def test_what_a_worker_raises_travels():
    error = pickle.loads(pickle.dumps(CallFailed("ValueError", "math domain error")))
    assert (error.kind, str(error)) == ("ValueError", "ValueError: math domain error")


def test_calls_go_to_the_worker_with_the_fewest(monkeypatch):
    """On a stand-in for Ray."""
    from concurrent.futures import Future

    futures = []

    class Call:
        def __init__(self, number):
            self.number = number

        def remote(self, function, *args):
            futures.append((self.number, Future()))
            return self

        def future(self):
            return futures[-1][1]

    class Ray:
        count, killed = 0, []

        def remote(self, cls):
            return self

        def options(self, **options):
            made = iter(range(9))
            self.remote = lambda: type("Actor", (), {"call": Call(next(made))})
            return self

        def kill(self, actor):
            self.killed.append(actor.call.number)

    ray = Ray()
    monkeypatch.setitem(__import__("sys").modules, "ray", ray)
    with RayExecutor(2, num_gpus=1) as executor:
        for _ in range(3):
            executor.submit(math.sqrt, 4.0)
        futures[1][1].set_result(2.0)
        failed = executor.submit(math.sqrt, -1.0)
        # Ray's errors are of its own class and name a process first.
        cause = CallFailed("ValueError", "math domain error")
        futures[3][1].set_exception(RayTaskError(cause))
        assert failed.exception() is cause
        assert [number for number, _ in futures] == [0, 1, 0, 1]
        with pytest.raises(TypeError, match="positional"):
            executor.submit(math.sqrt, x=4.0)
    assert ray.killed == [0, 1]
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(math.sqrt, 4.0)
