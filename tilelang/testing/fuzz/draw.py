"""Programs with their twins, drawn by processes of their own: to interpret a program takes as long
as to check it on a GPU."""

from __future__ import annotations

import collections
import functools
import itertools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from tilelang.testing.fuzz.coverage import features
from tilelang.testing.fuzz.generate import generate
from tilelang.testing.fuzz.interpret import interpret
from tilelang.testing.fuzz.program import Program
from tilelang.testing.fuzz.twins import twins


@dataclass(frozen=True)
class Drawn:
    """The program of a number, what it contains, and its twins with their names."""

    number: int
    program: Program
    features: set[str]
    twins: list[tuple[str, Program]]


def draw(seed: int, twin_count: int, without: Sequence[str], number: int) -> Drawn:
    """The program `number` of a seed; its twins are not of the kinds `without`."""
    program = generate(seed, number)
    is_rounded = any(np.any(v.error) for v in interpret(program).values())
    found = twins(program, twin_count, without)
    return Drawn(number, program, features(program, is_rounded), found)


def _end_with_parent() -> None:
    """A process of the pool would wait for ever for the next number of one that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def drawn(
    seed: int, twin_count: int, without: Sequence[str], numbers: Iterator[int], jobs: int
) -> Iterator[Drawn]:
    """What `draw` gives of each number, in order; a few are drawn ahead of who takes them."""
    function: Callable[[int], Drawn] = functools.partial(draw, seed, twin_count, without)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_end_with_parent) as pool:
        ahead: collections.deque[Future[Drawn]] = collections.deque()
        try:
            for number in itertools.islice(numbers, 8 * jobs):
                ahead.append(pool.submit(function, number))
            while ahead:
                yield ahead.popleft().result()
                for number in itertools.islice(numbers, 1):
                    ahead.append(pool.submit(function, number))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
