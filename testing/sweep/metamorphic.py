"""Programs that must have one result however they are written: 0, 2 or 3 stages, copies of whole
tiles or of slices, static or dynamic shapes, t or 2 t threads, tiles in shared memory or fragments.

Values are small whole numbers, so that sums are exact in every order: every form of a program has
to equal one reference bit for bit.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from operators import OPERATORS, operator, poison
from runner import Case

import tilelang.language as T

M, N, ROWS, COLUMNS = 70, 100, 32, 16
Step = Callable[..., None]
Reference = Callable[[torch.Tensor], torch.Tensor]
PROGRAMS: dict[str, tuple[Step, Reference, float]] = {}


def program(reference: Reference, start: float = 0.0) -> Callable[[Step], Step]:
    """Registers a step over a tile of columns: (tile, total of each row, out, row, column)."""

    def register(step: Step) -> Step:
        PROGRAMS[step.__name__] = (T.macro(step), reference, start)
        return step

    return register


def _columns(a: torch.Tensor) -> torch.Tensor:
    """With the zeros that copies of the last tile read beyond the tensor."""
    return torch.nn.functional.pad(a, (0, -N % COLUMNS))


@program(lambda a: _columns(a).sum(1))
def row_sum(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    T.reduce_sum(tile, total, dim=1, clear=False)


@program(lambda a: _columns(a).amax(1), -100.0)
def row_max(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    T.reduce_max(tile, total, dim=1, clear=False)


@program(lambda a: _columns(a).abs().amax(1))
def row_absmax(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    T.reduce_absmax(tile, total, dim=1, clear=False)


@program(lambda a: (_columns(a) * 2 + 1).sum(1))
def affine(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    scaled = T.alloc_fragment((ROWS, COLUMNS), "float32")
    for i, j in T.Parallel(ROWS, COLUMNS):
        scaled[i, j] = tile[i, j] * 2 + 1
    T.reduce_sum(scaled, total, dim=1, clear=False)


@program(lambda a: (a * torch.arange(N)).sum(1))
def weighted(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    scaled = T.alloc_fragment((ROWS, COLUMNS), "float32")
    for i, j in T.Parallel(ROWS, COLUMNS):
        scaled[i, j] = tile[i, j] * T.cast(column + j, "float32")
    T.reduce_sum(scaled, total, dim=1, clear=False)


@program(lambda a: _columns(a).view(M, -1, COLUMNS).amax(2).sum(1))
def sum_of_maxima(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    top = T.alloc_fragment((ROWS,), "float32")
    T.reduce_max(tile, top, dim=1)
    for i in T.Parallel(ROWS):
        total[i] = total[i] + top[i]


@program(lambda a: (_columns(a).view(M, -1, COLUMNS).cumsum(2)).sum((1, 2)))
def scanned(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    running = T.alloc_shared((ROWS, COLUMNS), "float32")
    T.copy(tile, running)
    T.cumsum(running, dim=1)
    T.reduce_sum(running, total, dim=1, clear=False)


@program(lambda a: _columns(a).sum(1) * 2)
def through_a_transpose(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    straight = T.alloc_shared((ROWS, COLUMNS), "float32")
    turned = T.alloc_shared((COLUMNS, ROWS), "float32")
    T.copy(tile, straight)
    T.transpose(straight, turned)
    for _ in T.serial(2):
        T.reduce_sum(turned, total, dim=0, clear=False)


@program(lambda a: _columns(a).sum(1))
def product_with_ones(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    ones, product = T.alloc_shared((COLUMNS, 8), "float16"), T.alloc_fragment((ROWS, 8), "float32")
    half = T.alloc_shared((ROWS, COLUMNS), "float16")
    first = T.alloc_fragment((ROWS,), "float32")
    T.fill(ones, 1)
    T.copy(tile, half)
    T.gemm(half, ones, product, clear_accum=True)
    T.reduce_max(product, first, dim=1)
    for i in T.Parallel(ROWS):
        total[i] = total[i] + first[i]


@program(lambda a: (_columns(a) > 0).sum(1).float())
def counted(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    positive = T.alloc_fragment((ROWS, COLUMNS), "float32")
    for i, j in T.Parallel(ROWS, COLUMNS):
        positive[i, j] = T.if_then_else(tile[i, j] > 0, 1.0, 0.0)
    T.reduce_sum(positive, total, dim=1, clear=False)


@program(lambda a: torch.zeros(M))
def written_back(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    T.copy(tile, out[row, column])


@program(lambda a: a.sum(1))
def gathered_by_atomics(tile: Any, total: Any, out: Any, row: Any, column: Any) -> None:
    part = T.alloc_shared((ROWS,), "float32")
    T.clear(part)
    for i, j in T.Parallel(ROWS, COLUMNS):
        T.atomic_add(part[i], tile[i, j])
    for i in T.Parallel(ROWS):
        total[i] = total[i] + part[i]


def _define(
    name: str, stages: int, sliced: bool, dynamic: bool, threads: int, shared: bool
) -> Callable[[], object]:
    step, _, start = PROGRAMS[name]

    def define() -> object:
        m, n = T.dynamic("m, n") if dynamic else (M, N)

        @T.prim_func
        def main(
            A: T.Tensor((m, n), "float32"),
            out: T.Tensor((m, n), "float32"),
            totals: T.Tensor((m,), "float32"),
        ):
            with T.Kernel(T.ceildiv(m, ROWS), threads=threads) as by:
                alloc = T.alloc_shared if shared else T.alloc_fragment
                tile = alloc((ROWS, COLUMNS), "float32")
                total = T.alloc_fragment((ROWS,), "float32")
                T.fill(total, start)
                for ko in T.Pipelined(T.ceildiv(n, COLUMNS), num_stages=stages):
                    row, column = by * ROWS, ko * COLUMNS
                    if sliced:
                        T.copy(A[row : row + ROWS, column : column + COLUMNS], tile)
                    else:
                        T.copy(A[row, column], tile)
                    step(tile, total, out, row, column)
                T.copy(total, totals[by * ROWS])

        return main

    return define


@operator
def metamorphic() -> Iterator[Case]:
    """Every form of every program."""
    torch.manual_seed(0)
    a = torch.randint(-4, 5, (M, N)).float()
    axes = itertools.product((0, 2, 3), (False, True), (False, True), (64, 128), (False, True))
    for name, form in itertools.product(PROGRAMS, list(axes)):
        stages, sliced, dynamic, threads, shared = form
        out = a if name == "written_back" else poison("float32", M, N)
        totals = PROGRAMS[name][1](a)
        yield Case(
            f"{name}: {stages} stages, sliced {sliced}, dynamic {dynamic}, {threads} threads, "
            f"{'shared' if shared else 'fragment'}",
            _define(name, stages, sliced, dynamic, threads, shared),
            (a, poison("float32", M, N), poison("float32", M)),
            lambda *_, out=out, totals=totals: (None, out, totals),
        )


__all__ = ["OPERATORS"]
