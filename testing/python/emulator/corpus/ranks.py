"""What kernels of several ranks are launched with."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import tilelang

from .kit import Launch, RankBase

RANKS = 3


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Of each rank."""
    return np.zeros((RANKS, *shape), dtype)


def arrivals(slots: int) -> np.ndarray:
    """What T.sync_ranks counts."""
    return np.zeros((RANKS, slots, RANKS), np.uint32)


def launches(
    arguments: list[np.ndarray], results: list[tuple[np.ndarray, np.ndarray]]
) -> list[Launch]:
    """A launch of each rank; each argument is an array over ranks."""
    # Apart, as GPUs have them.
    of_ranks = [[np.ascontiguousarray(a[r]).copy() for a in arguments] for r in range(RANKS)]
    copies = {id(a): [of_ranks[r][i] for r in range(RANKS)] for i, a in enumerate(arguments)}
    wanted: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(RANKS)]
    for found, value in results:
        for r in range(RANKS):
            for a in arguments:
                if found.base is a and np.shares_memory(found, a[r]):
                    wanted[r].append((copies[id(a)][r], value))
    assert sum(map(len, wanted)) == len(results)
    return [Launch(of_ranks[r], wanted[r]) for r in range(RANKS)]


@functools.cache
def lowered(program: Callable[[], Any]) -> Any:
    return tilelang.lower(program(), target="cuda -arch=sm_90a")


def base(
    program: Callable[[], Any], launch: Callable[[], list[Launch]], block: int, grid: int = 1
) -> RankBase:
    """A program of `grid` blocks of `block` threads as a base of the corpus."""
    return RankBase(
        lambda: lowered(program).kernel_source,
        launch,
        grid=grid,
        block=block,
        shared=8192,
        plan=lambda: lowered(program).launch_plan,
    )
