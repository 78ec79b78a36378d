"""What the tile operators compute: copies, fills, matrix products, reductions, scans, atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelang.testing.fuzz.operations import (
    FLOATS,
    INTS,
    Values,
    apply,
    cast,
    exact,
    fit,
    magnitude_fits,
    unit,
)
from tilelang.testing.fuzz.program import (
    Accumulate,
    Atomic,
    AtomicTile,
    Copy,
    Fill,
    FinishReducer,
    Gemm,
    Invalid,
    Num,
    Reduce,
    Scan,
    StartReducer,
    Stmt,
    Tile,
    Transpose,
)

if TYPE_CHECKING:
    from tilelang.testing.fuzz.interpret import Frame, Machine


def execute(machine: Machine, statement: Stmt, frame: Frame) -> None:
    """A tile operator, by the block as one."""
    _STATEMENTS[type(statement)](machine, statement, frame)


def _extents(machine: Machine, tile: Tile, frame: Frame) -> list[int] | None:
    if tile.starts is None:
        return list(machine.named(tile.buffer).shape)
    if tile.extents is None:
        return None
    return [machine.integer(e, frame) for e in tile.extents]


def _places(
    machine: Machine, tile: Tile, frame: Frame, other: list[int] | None = None
) -> tuple[list[np.ndarray], list[int]]:
    """The indices of a tile's elements in row-major order, and its extents; `other` are those of
    the other operand."""
    rank = len(machine.named(tile.buffer).shape)
    extents = _extents(machine, tile, frame)
    if extents is None:
        if other is None:
            raise Invalid("a tile without extents")
        if any(e != 1 for e in other[: max(len(other) - rank, 0)]):
            raise Invalid("a tile of too many dimensions")
        extents = [1] * (rank - len(other)) + other[max(len(other) - rank, 0) :]
    if len(extents) != rank or any(e < 1 for e in extents):
        raise Invalid("a tile of a wrong rank or empty")
    starts = [machine.integer(s, frame) for s in tile.starts or (Num(0),) * rank]
    grid = np.indices(extents).reshape(rank, -1)
    return [start + index for start, index in zip(starts, grid, strict=True)], extents


def _get(machine: Machine, tile: Tile, frame: Frame) -> tuple[Values, list[int]]:
    places, extents = _places(machine, tile, frame)
    return machine.read(tile.buffer, places, frame), extents


def _put(machine: Machine, tile: Tile, values: Values, frame: Frame) -> None:
    places, _ = _places(machine, tile, frame)
    machine.write(tile.buffer, places, cast(machine.root_dtype(tile.buffer), values), frame)


def _pair(machine: Machine, src: Tile, dst: Tile, frame: Frame) -> tuple[Any, Any]:
    """The places of two tiles whose extents other than 1 correspond."""
    if machine.root(src.buffer) is machine.root(dst.buffer):
        raise Invalid("an operator between parts of one buffer")
    sides = [_extents(machine, t, frame) for t in (src, dst)]
    source, src_extents = _places(machine, src, frame, sides[1])
    target, dst_extents = _places(machine, dst, frame, sides[0])
    if [e for e in src_extents if e != 1] != [e for e in dst_extents if e != 1]:
        raise Invalid("tiles of different extents")
    return source, target


def _copy(machine: Machine, statement: Copy, frame: Frame) -> None:
    source, target = _pair(machine, statement.src, statement.dst, frame)
    values = machine.read(statement.src.buffer, source, frame)
    dtype = machine.root_dtype(statement.dst.buffer)
    machine.write(statement.dst.buffer, target, cast(dtype, values), frame)


def _fill(machine: Machine, statement: Fill, frame: Frame) -> None:
    value = Values(np.array([statement.value.value]), 0.0, "float64")
    _put(machine, statement.dst, value, frame)


def _transpose(machine: Machine, statement: Transpose, frame: Frame) -> None:
    if machine.root(statement.src.buffer) is machine.root(statement.dst.buffer):
        raise Invalid("an operator between parts of one buffer")
    values, extents = _get(machine, statement.src, frame)
    _, wanted = _places(machine, statement.dst, frame)
    if len(extents) != 2 or extents[::-1] != wanted:
        raise Invalid("a transposition to another shape")
    order = np.arange(len(values.value)).reshape(extents).T.reshape(-1)
    _put(machine, statement.dst, _pick(values, order), frame)


def _pick(values: Values, order: np.ndarray) -> Values:
    error = values.error if isinstance(values.error, float) else values.error[order]
    return Values(values.value[order], error, values.dtype)


def _matrix(
    machine: Machine, tile: Tile, frame: Frame, transposed: bool
) -> tuple[np.ndarray, np.ndarray]:
    values, extents = _get(machine, tile, frame)
    if len(extents) < 2 or any(e != 1 for e in extents[:-2]):
        raise Invalid("no matrix")
    value = values.value.reshape(extents[-2:])
    error = np.broadcast_to(values.error, values.value.shape).reshape(extents[-2:])
    return (value.T, error.T) if transposed else (value, error)


def _gemm(machine: Machine, statement: Gemm, frame: Frame) -> None:
    if machine.root_dtype(statement.a.buffer) != machine.root_dtype(statement.b.buffer):
        raise Invalid("a product of different dtypes")
    a, ea = _matrix(machine, statement.a, frame, statement.transpose_a)
    b, eb = _matrix(machine, statement.b, frame, statement.transpose_b)
    dtype = machine.root_dtype(statement.c.buffer)
    clear = statement.clear is not None and machine.integer(statement.clear, frame)
    places, extents = _places(machine, statement.c, frame)
    if a.shape[1] != b.shape[0] or [a.shape[0], b.shape[1]] != extents[-2:]:
        raise Invalid("a product of other extents")
    c: np.ndarray
    ec: np.ndarray
    if clear:
        c, ec = np.zeros(a.shape[0] * b.shape[1]), np.zeros(1)
    else:
        before = machine.read(statement.c.buffer, places, frame)
        c, ec = before.value, np.asarray(before.error)
    value = (a @ b).reshape(-1) + c
    if dtype not in FLOATS:
        machine.write(statement.c.buffer, places, fit(dtype, value.astype(np.int64)), frame)
        return
    total = (np.abs(a) @ np.abs(b)).reshape(-1) + np.abs(c)
    error = (np.abs(a) @ eb + ea @ np.abs(b) + ea @ eb).reshape(-1) + ec
    if not magnitude_fits(dtype, total, a, b, c):
        # Tensor cores truncate where others round.
        error = error + 2 * (a.shape[1] + 2) * unit(dtype) * total
    machine.write(statement.c.buffer, places, fit(dtype, value, error), frame)


def combine(kind: str, dtype: str, values: Values, axis_length: int) -> Values:
    """The elements of consecutive rows of `axis_length` combined, in the dtype."""
    x = cast(dtype, values)
    if kind.startswith("abs"):
        x = apply("abs", [x])
    rows = x.value.reshape(-1, axis_length)
    errors = np.broadcast_to(x.error, x.value.shape).reshape(-1, axis_length)
    if kind in ("max", "absmax", "min"):
        extreme = rows.min(1) if kind == "min" else rows.max(1)
        return fit(dtype, extreme, errors.max(1))
    if kind in ("bitand", "bitor", "bitxor"):
        return fit(dtype, getattr(np, f"bitwise_{kind[3:]}").reduce(rows, axis=1))
    total = np.abs(rows).sum(1)
    if dtype not in FLOATS:
        fit(dtype, total)  # no order of additions overflows
        return fit(dtype, rows.sum(1))
    error = errors.sum(1)
    if not magnitude_fits(dtype, total, rows):
        error = error + axis_length * unit(dtype) * total
    return fit(dtype, rows.sum(1), error)


def _reduce(machine: Machine, statement: Reduce, frame: Frame) -> None:
    values, extents = _get(machine, statement.src, frame)
    places, found = _places(machine, statement.dst, frame)
    axis = statement.dim % len(extents)
    without = extents[:axis] + extents[axis + 1 :]
    if found not in (without, [*extents[:axis], 1, *extents[axis + 1 :]]):
        raise Invalid("a reduction to another shape")
    dtype = machine.root_dtype(statement.dst.buffer)
    order = np.moveaxis(np.arange(len(values.value)).reshape(extents), axis, -1).reshape(-1)
    result = combine(statement.kind, dtype, _pick(values, order), extents[axis])
    if not statement.clear and statement.kind != "abssum":
        before = machine.read(statement.dst.buffer, places, frame)
        pairs = _interleave(result, before)
        result = combine(statement.kind.removeprefix("abs"), dtype, pairs, 2)
    machine.write(statement.dst.buffer, places, result, frame)


def _interleave(a: Values, b: Values) -> Values:
    errors = [np.broadcast_to(v.error, v.value.shape) for v in (a, b)]
    return Values(
        np.stack([a.value, b.value], 1).reshape(-1), np.stack(errors, 1).reshape(-1), a.dtype
    )


def _scan(machine: Machine, statement: Scan, frame: Frame) -> None:
    target = statement.dst or statement.src
    values, extents = _get(machine, statement.src, frame)
    dtype = machine.root_dtype(target.buffer)
    if _places(machine, target, frame)[1] != extents:
        raise Invalid("a scan to another shape")
    x = cast(dtype, values)
    axis = statement.dim % len(extents)
    flip: Callable[[Any], Any] = (lambda a: np.flip(a, axis)) if statement.reverse else np.asarray
    value = flip(x.value.reshape(extents))
    error = flip(np.broadcast_to(x.error, x.value.shape).reshape(extents))
    if statement.kind == "cummax":
        result = np.maximum.accumulate(value, axis)
        error = np.maximum.accumulate(error, axis)
    else:
        result, error = np.cumsum(value, axis), np.cumsum(error, axis)
        total = np.cumsum(np.abs(value), axis)
        if dtype in FLOATS and not magnitude_fits(dtype, total, value):
            error = error + extents[axis] * unit(dtype) * total
    scanned = fit(dtype, flip(result).reshape(-1), flip(error).reshape(-1))
    _put(machine, target, scanned, frame)


_ATOMIC = {"add": "sum", "max": "max", "min": "min", "or": "bitor"}


def _atomic_tile(machine: Machine, statement: AtomicTile, frame: Frame) -> None:
    name = statement.dst.buffer
    if isinstance(statement.value, Num):
        target, _ = _places(machine, statement.dst, frame)
        values = Values(np.full(len(target[0]), statement.value.value), 0.0, "float64")
    else:
        source, target = _pair(machine, statement.value, statement.dst, frame)
        values = machine.read(statement.value.buffer, source, frame)
    _accumulate(machine, name, _ATOMIC[statement.kind], target, values, frame)


def update(machine: Machine, statement: Atomic | Accumulate, frame: Frame) -> None:
    """An atomic operation, or the update of a reducer, of each iteration."""
    name = statement.buffer
    places = machine.indices(name, statement.indices, frame)
    values = machine.evaluate(statement.value, frame)
    if isinstance(statement, Atomic):
        if frame.who is None:
            raise Invalid("an atomic operation of the block as one")
        kind = _ATOMIC[statement.kind]
    else:
        kind = machine.buffers[name].detail
        if frame.who is None or frame.thread is not None or name not in machine.open:
            raise Invalid("an update of no reducer or outside of T.Parallel")
    _accumulate(machine, name, kind, places, values, frame)


def _accumulate(
    machine: Machine,
    name: str,
    kind: str,
    indices: list[np.ndarray],
    values: Values,
    frame: Frame,
) -> None:
    """Combines values with the elements at `indices` in any order."""
    storage = machine.root(name)
    if machine.named(name).dtype != storage.dtype:
        raise Invalid("atomic operations on bits")
    where, inside = machine.named(name).place(indices)
    machine.note(name, where[inside], inside, frame, "update")
    x = cast(storage.dtype, values)
    value = np.broadcast_to(x.value, where.shape)[inside]
    error = np.broadcast_to(x.error, where.shape)[inside]
    where = where[inside]
    if storage.order_free is None:
        storage.order_free = kind, np.abs(storage.value) * storage.defined
    before, total = storage.order_free
    if before != kind:
        raise Invalid("different operations on the same elements, in any order")
    if storage is not machine.storages.get(name) and not storage.is_global:
        raise Invalid("atomic operations on a view")
    if name not in machine.open and not storage.defined[where].all():
        raise Invalid("an atomic operation on what is not defined")
    if kind == "sum":
        np.add.at(total, where, np.abs(value))
        np.add.at(storage.value, where, value)
        np.add.at(storage.error, where, error)
        if storage.dtype in FLOATS:
            if not magnitude_fits(storage.dtype, total, value, storage.value):
                raise Invalid("an inexact sum in any order")
        else:
            fit(storage.dtype, total)
    else:
        _extremes(storage, kind, where, value)
    storage.defined[where] = True
    fit(storage.dtype, storage.value)


def _extremes(storage: Any, kind: str, where: np.ndarray, value: np.ndarray) -> None:
    if storage.error.any():
        raise Invalid("order-free operations on rounded values")
    new = np.unique(where[~storage.defined[where]])
    if kind in ("max", "min"):
        low, high = (-np.inf, np.inf) if storage.dtype in FLOATS else INTS["int64"]
        storage.value[new] = low if kind == "max" else high
    elif kind == "bitand":
        storage.value[new] = -1
    function = {"max": np.maximum, "min": np.minimum}.get(kind)
    (function or getattr(np, f"bitwise_{kind[3:]}")).at(storage.value, where, value)


def _start(machine: Machine, statement: StartReducer, frame: Frame) -> None:
    storage = machine.root(statement.buffer)
    storage.order_free = None
    storage.value[:] = 0
    storage.error[:] = 0
    storage.defined[:] = False
    if statement.value is not None:
        start = cast(storage.dtype, Values(np.array([statement.value.value]), 0.0, "float64"))
        storage.value[:] = start.value
        storage.defined[:] = True
    machine.open.add(statement.buffer)


def _finish(machine: Machine, statement: FinishReducer, frame: Frame) -> None:
    storage = machine.root(statement.buffer)
    if statement.buffer not in machine.open:
        raise Invalid("a reducer that is not started")
    machine.open.discard(statement.buffer)
    if machine.buffers[statement.buffer].detail in ("sum", "bitor", "bitxor"):
        storage.defined[:] = True  # of no values: 0
    if statement.dst is not None:
        values = Values(storage.value, storage.error, storage.dtype)
        if not storage.defined.all():
            raise Invalid("a reducer without values")
        if _extents(machine, statement.dst, frame) != list(storage.shape):
            raise Invalid("a reducer's result of another shape")
        exact(values)
        _put(machine, statement.dst, values, frame)


_STATEMENTS: dict[type, Callable[..., None]] = {
    Copy: _copy,
    Fill: _fill,
    Transpose: _transpose,
    Gemm: _gemm,
    Reduce: _reduce,
    Scan: _scan,
    AtomicTile: _atomic_tile,
    StartReducer: _start,
    FinishReducer: _finish,
}
