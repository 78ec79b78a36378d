"""Reducers: values that all threads of a block accumulate in ``T.Parallel`` loops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir, tirx

from tilelang.language.allocation import allocate
from tilelang.language.copies import copy
from tilelang.language.ops import emit_tile_op
from tilelang.language.reductions import check_dtype
from tilelang.language.regions import full_region, store_element
from tilelang.language.scalars import as_dtype, as_int, describe, is_buffer
from tilelang.language.tracer import current_tracer

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "max": tirx.max,
    "min": tirx.min,
    "bitand": tirx.bitwise_and,
    "bitor": tirx.bitwise_or,
    "bitxor": tirx.bitwise_xor,
}
_COMBINE_BOOL: dict[str, Callable[[Any, Any], Any]] = {
    "bitand": tirx.And,
    "bitor": tirx.Or,
    "bitxor": lambda a, b: a != b,
}


def alloc_reducer(
    shape: Any, dtype: Any, op: str = "sum", replication: str | None = None
) -> ir.Var:
    """Allocate a tile that the threads of a block accumulate, each its own part, and then combine.

    Between ``T.reducer_init`` and ``T.finalize_reducer`` it is updated in ``T.Parallel`` loops;
    after that every thread may read it. Each thread has an array of all elements, so that it should
    be small.

    Parameters
    ----------
    shape
        Positive int or several.
    dtype
        Data type of the elements, which is what is computed in.
    op
        ``sum``, ``max``, ``min``, ``bitand``, ``bitor`` or ``bitxor``.
    replication
        Deprecated: ``all`` or ``none``. The reducer is then initialised by ``T.fill`` or
        ``T.clear`` and updated by ``acc[i] += x``, which any reducer may be.

    Raises
    ------
    ValueError, TypeError
        Outside of a kernel; if there is no such ``op`` for the dtype; if the shape is not constant.

    Example
    -------
    ``total = T.alloc_reducer((1,), T.float32)``, then ``T.reducer_init(total)``, in a loop
    ``T.reducer_update(total[0], A[i] * B[i])``, and ``T.finalize_reducer(total)``
    """
    if op not in _COMBINE:
        raise ValueError(f"op of T.alloc_reducer is {op!r}, wanted one of {', '.join(_COMBINE)}")
    if replication is not None:
        if replication not in ("all", "none"):
            raise ValueError(
                f"replication of T.alloc_reducer is {replication!r}, wanted 'all' or 'none'; leave "
                "it out"
            )
        warnings.warn(
            "replication of T.alloc_reducer is deprecated; leave it out and use T.reducer_init "
            "and T.reducer_update",
            DeprecationWarning,
            stacklevel=2,
        )
    buffer = allocate("T.alloc_reducer", shape, dtype, "local.reducer", "local.reducer")
    found = f"dtype {buffer.dtype} for {op}"
    check_dtype("T.alloc_reducer", found, buffer.dtype, op.startswith("bit"), "accumulate in one")
    current_tracer("T.alloc_reducer").add_reducer(buffer, op)
    return buffer


def reducer_init(acc: Any, init: Any = None, annotations: Mapping[str, Any] | None = None) -> None:
    """Start an accumulation: from the scalar ``init``, counted once, or from nothing;
    ``annotations`` are notes on the operator in the program.

    Raises
    ------
    TypeError
        If ``acc`` is not a reducer or ``init`` not a scalar.

    Example
    -------
    ``T.reducer_init(total)``
    """
    op = _op("T.reducer_init", acc)
    value = [] if init is None else [as_dtype(init, str(acc.dtype))]
    emit_tile_op("reducer_init", [full_region(acc), op, *value], dict(annotations or {}))


def reducer_update(element: Any, value: Any) -> None:
    """Combine an element ``acc[i]`` of a reducer with a scalar, inside ``T.Parallel``.

    Raises
    ------
    TypeError
        If ``element`` is not an element of a reducer or ``value`` is not a scalar.

    Example
    -------
    ``T.reducer_update(total[i], A[i, j])``
    """
    if not isinstance(element, ir.TensorLoad):
        raise TypeError(
            f"T.reducer_update found {describe(element)}, wanted an element of a reducer, acc[i]"
        )
    op = _op("T.reducer_update", element.source)
    dtype = str(element.source.dtype)
    combine = _COMBINE_BOOL[op] if dtype == "bool" else _COMBINE[op]
    store_element(element, combine(element, as_dtype(value, dtype)))


def finalize_reducer(
    acc: Any,
    dst: Any = None,
    batch: int = 1,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """End an accumulation: combine the parts of all threads, each of which then has the result.

    Parameters
    ----------
    dst
        Tile that the result is copied to; it stays in ``acc`` too.
    batch
        Elements that are exchanged between threads at once. Accepted for compatibility: all are.
    annotations
        Notes on the operator in the program.

    Raises
    ------
    TypeError, ValueError
        If ``acc`` is not a reducer; if ``dst`` does not have its shape; if ``batch`` is not
        positive.

    Example
    -------
    ``T.finalize_reducer(total)``
    """
    op = _op("T.finalize_reducer", acc)
    if (as_int(batch) or 0) < 1:
        raise ValueError(f"batch of T.finalize_reducer is {batch!r}, wanted 1 or more elements")
    emit_tile_op("reducer_finalize", [full_region(acc), op], dict(annotations or {}))
    if dst is not None:
        copy(acc, dst)


def _op(name: str, acc: Any) -> str:
    op = current_tracer(name).reduction_of(acc) if is_buffer(acc) else None
    if op is None:
        raise TypeError(
            f"{name} found {describe(acc)}, wanted a reducer; allocate it with T.alloc_reducer"
        )
    return op
