"""Memory by element type, vector width and what its index depends on: arrays in registers above
all, which a compiler keeps there only if it knows every index.

Values are small whole numbers, exact in every type, so that results are equal bit for bit.
"""

import functools
import itertools
import operator as python_operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from metamorphic import OPERATORS
from operators import operator
from runner import Case

import tilelang.language as T

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SMALL_FLOATS = ("float8_e4m3fn", "float8_e5m2")
FLOATS = ("float16", "bfloat16", "float32", "float64")
EXTENT, THREADS, START = 32, 64, 3

INDICES = ("constant", "unrolled", "loop", "thread", "thread+unrolled", "thread+loop", "value")
"""What the index of an access depends on; a value is one that was read from memory."""
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": python_operator.add,
    "max": lambda a, b: T.max(a, b),
    "min": lambda a, b: T.min(a, b),
}


def _small(dtype: str, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape).to(getattr(torch, dtype))


def _places(index: str, width: int) -> torch.Tensor:
    """Which elements of each thread are accessed."""
    count = EXTENT // width
    thread = torch.arange(THREADS) % count
    touched = torch.zeros(THREADS, count, dtype=torch.bool)
    if "loop" in index or "unrolled" in index:
        touched[:] = True
    elif index == "thread":
        touched[torch.arange(THREADS), thread] = True
    else:
        touched[:, START % count] = True
    return touched.repeat_interleave(width, 1)


def _accesses(what: str, scope: str, dtype: str, index: str, width: int) -> Callable[[], object]:
    count = EXTENT // width
    steps = count if "loop" in index or "unrolled" in index else 1

    @T.macro
    def access(A, C, I, B):  # noqa: E741
        tx = T.get_thread_binding()
        if scope == "local":
            memory = T.alloc_local((EXTENT,), dtype)
        elif scope == "shared":
            shared = T.alloc_shared((THREADS, EXTENT), dtype)
        for k in T.unroll(EXTENT):
            if scope == "local":
                memory[k] = A[tx, k]
            elif scope == "shared":
                shared[tx, k] = A[tx, k]
        first = I[0] if index == "value" else tx if "thread" in index else START
        for k in T.unroll(steps) if "unrolled" in index else T.serial(steps):
            for v in T.vectorized(width) if width > 1 else T.serial(1):
                at = (first + k) % count * width + v
                if scope == "local":
                    if what == "load":
                        B[tx, at] = memory[at]
                    elif what == "store":
                        memory[at] = C[tx, at]
                    else:
                        memory[at] = COMBINE[what](memory[at], C[tx, at])
                elif scope == "shared":
                    if what == "load":
                        B[tx, at] = shared[tx, at]
                    elif what == "store":
                        shared[tx, at] = C[tx, at]
                    else:
                        shared[tx, at] = COMBINE[what](shared[tx, at], C[tx, at])
                else:
                    B[tx, at] = C[tx, at]
        if what != "load" and scope == "local":
            for k in T.unroll(EXTENT):
                B[tx, k] = memory[k]
        if what != "load" and scope == "shared":
            for k in T.unroll(EXTENT):
                B[tx, k] = shared[tx, k]

    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((THREADS, EXTENT), dtype),
            C: T.Tensor((THREADS, EXTENT), dtype),
            I: T.Tensor((1,), "int32"),  # noqa: E741
            B: T.Tensor((THREADS, EXTENT), dtype),
        ):
            with T.Kernel(1, threads=THREADS):
                access(A, C, I, B)

        return main

    return define


def _wide(a: torch.Tensor) -> torch.Tensor:
    return a.double() if a.is_floating_point() else a.long()


def _combined(what: str, a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """What is loaded from `a`, stored from `c`, or computed of both."""
    if what in ("load", "store"):
        return a if what == "load" else c
    return {"add": torch.add, "max": torch.maximum, "min": torch.minimum}[what](a, c)


def _wanted(what: str, touched: torch.Tensor) -> Callable[..., tuple[torch.Tensor | None, ...]]:
    def wanted(a: torch.Tensor, c: torch.Tensor, i: torch.Tensor, b: torch.Tensor):
        x, y = _wide(a), _wide(c)
        old, new = _wide(b) if what == "load" else x, _combined(what, x, y)
        return None, None, None, torch.where(touched, new, old).to(a.dtype)

    return wanted


def _forms() -> Iterator[tuple[str, str, str, str, int]]:
    """What, scope, dtype, index, width."""
    for dtype in (*FLOATS, *SMALL_FLOATS, *SIGNED, *UNSIGNED, "bool"):
        size = getattr(torch, dtype).itemsize
        widths = [width for width in (1, 2, 4, 8, 16) if width * size <= 16]
        for what, index, width in itertools.product(("load", "store"), INDICES, widths):
            yield what, "local", dtype, index, width
        for what, width in itertools.product(("load", "store"), widths):
            yield what, "shared", dtype, "thread+loop", width
        for width in widths:
            yield "store", "global", dtype, "thread+loop", width
        if dtype in ("bool", *SMALL_FLOATS):
            continue
        for what, index, width in itertools.product(COMBINE, INDICES, {1, widths[-1]}):
            yield what, "local", dtype, index, width


@operator
def accesses() -> Iterator[Case]:
    """Loads, stores and updates of elements and vectors."""
    for what, scope, dtype, index, width in _forms():
        touched = _places(index, width)
        if scope == "global":
            what_is_wanted = lambda a, c, i, b: (None, None, None, c)  # noqa: E731
        else:
            what_is_wanted = _wanted(what, touched)
        high = 2 if dtype == "bool" else 5
        yield Case(
            f"{what} of {scope} {dtype} x{width}, index {index}",
            _accesses(what, scope, dtype, index, width),
            (
                _small(dtype, 0, high, THREADS, EXTENT),
                _small(dtype, 0, high + 3, THREADS, EXTENT),
                torch.tensor([START], dtype=torch.int32),
                _small(dtype, 0, high, THREADS, EXTENT),
            ),
            what_is_wanted,
        )


def _reducer(
    op: str, rows: bool, through: str, shape: tuple[int, int], dtype: str, threads: int
) -> Callable[[], object]:
    m, n = shape
    extent = m if rows else n

    def define() -> object:
        @T.prim_func
        def main(A: T.Tensor((m, n), dtype), B: T.Tensor((extent,), dtype)):
            with T.Kernel(1, threads=threads):
                total = T.alloc_reducer((extent,), dtype, op)
                result = T.alloc_fragment((extent,), dtype)
                source = A
                if through == "fragment":
                    source = T.alloc_fragment((m, n), dtype)
                    T.copy(A, source)
                T.reducer_init(total)
                for i, j in T.Parallel(m, n):
                    T.reducer_update(total[i if rows else j], source[i, j])
                T.finalize_reducer(total, result)
                T.copy(result, B)

        return main

    return define


_REDUCE: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda a, dim: a.sum(dim),
    "max": lambda a, dim: a.amax(dim),
    "min": lambda a, dim: a.amin(dim),
    "bitand": lambda a, dim: functools.reduce(torch.bitwise_and, a.unbind(dim)),
    "bitor": lambda a, dim: functools.reduce(torch.bitwise_or, a.unbind(dim)),
    "bitxor": lambda a, dim: functools.reduce(torch.bitwise_xor, a.unbind(dim)),
}


def _reduced(a: torch.Tensor, op: str, dim: int) -> torch.Tensor:
    return _REDUCE[op](_wide(a), dim).to(a.dtype)


@operator
def reducer_types() -> Iterator[Case]:
    """Reducers by operation and type, of rows and of columns, where several elements of a thread's
    array are the block's: its index depends on the thread."""
    shapes = (((64, 128), 256), ((64, 128), 128), ((8, 32), 32), ((4, 64), 64), ((2, 32), 32))
    for dtype in (*FLOATS, *SIGNED, *UNSIGNED):
        for op, (shape, threads), rows, through in itertools.product(
            ("sum", "max", "min") if dtype in FLOATS else _REDUCE,
            shapes,
            (True, False),
            ("global", "fragment"),
        ):
            yield Case(
                f"reducer {op} of {'rows' if rows else 'columns'} {shape[0]}x{shape[1]} by way of "
                f"{through}, {dtype} {threads} threads",
                _reducer(op, rows, through, shape, dtype, threads),
                (
                    _small(dtype, 0 if dtype in UNSIGNED else -1, 2, *shape),
                    _small(dtype, 5, 6, shape[0 if rows else 1]),
                ),
                lambda a, b, op=op, rows=rows: (None, _reduced(a, op, 1 if rows else 0)),
            )


def _cast(what: str, n: int, source: str, target: str) -> Callable[[], object]:
    def define() -> object:
        @T.prim_func
        def main(
            A: T.Tensor((4, n), source), C: T.Tensor((4, n), source), B: T.Tensor((4, n), target)
        ):
            with T.Kernel(1, threads=32):
                for i, j in T.Parallel(4, n):
                    if what == "load":
                        B[i, j] = T.cast(A[i, j], target)
                    else:
                        B[i, j] = T.cast(COMBINE[what](A[i, j], C[i, j]), target)

        return main

    return define


@operator
def casts() -> Iterator[Case]:
    """Between all types, of what was loaded and of what was computed, of elements and vectors."""
    dtypes = (*FLOATS, *SMALL_FLOATS, *SIGNED, *UNSIGNED, "bool")
    for source, target in itertools.permutations(dtypes, 2):
        computes = source not in ("bool", *SMALL_FLOATS)
        high = 2 if source == "bool" else 5
        for what, n in itertools.product(("load", *(COMBINE if computes else ())), (7, 64)):
            yield Case(
                f"cast {source} to {target} of {what}, 4x{n}",
                _cast(what, n, source, target),
                (
                    _small(source, 0, high, 4, n),
                    _small(source, 0, high, 4, n),
                    _small(target, 0, 2, 4, n),
                ),
                lambda a, c, b, what=what: (
                    None,
                    None,
                    _combined(what, _wide(a), _wide(c)).to(b.dtype),
                ),
            )


__all__ = ["OPERATORS"]
