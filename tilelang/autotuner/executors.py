"""Ray as a `concurrent.futures.Executor`; Dask has one itself, ``client.get_executor()``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class _Worker:
    """A process of Ray's that keeps what tasks leave in it, such as loaded kernels."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns."""
        return function(*arguments)


class RayExecutor(Executor):
    """Workers of a Ray cluster, one actor each. Needs the extra ``ray`` and `ray.init()`.

    Example::

        with RayExecutor(2, num_gpus=1) as gpus:
            tuner.set_executors(timing=gpus, timing_workers=2).run()
    """

    def __init__(self, workers: int, **options: Any):
        """`options` are those of an actor, such as ``num_cpus`` and ``num_gpus``. Raises
        `ImportError` where Ray is not installed."""
        import ray  # type: ignore[import-not-found, unused-ignore]

        self._ray = ray
        actor = ray.remote(_Worker).options(**options)
        self._actors = [actor.remote() for _ in range(workers)]
        self._pending = [0] * workers
        self._lock = threading.Lock()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls a function on the worker that has the fewest calls to come."""
        if kwargs:
            raise TypeError(f"submit takes positional arguments, got {', '.join(kwargs)}")
        with self._lock:
            if not self._actors:
                raise RuntimeError("submit of an executor that was shut down")
            number = self._pending.index(min(self._pending))
            self._pending[number] += 1
            future: Future[Any] = self._actors[number].call.remote(function, *args).future()
        found: Future[Any] = Future()
        found.set_running_or_notify_cancel()  # a call of Ray's cannot be taken back
        future.add_done_callback(lambda done: self._finish(number, done, found))
        return found

    def _finish(self, number: int, done: Future[Any], found: Future[Any]) -> None:
        with self._lock:
            self._pending[number] -= 1
        error = done.exception()
        if error is None:
            found.set_result(done.result())
        else:
            # Ray's own begins with the names of its process; what was raised there is its cause.
            found.set_exception(getattr(error, "cause", None) or error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the workers, whatever they do."""
        with self._lock:
            actors, self._actors = self._actors, []
        for actor in actors:
            self._ray.kill(actor)
