"""What lanes of a warp, and threads of a block, tell each other: shuffles, votes, matches."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.language.ops import intrinsic_call
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import current_tracer

TRACED_LANES = 32
"""Lanes of a warp while a program is traced, which is before its target is known. NarrowThreads
makes reductions over these, and the mask of all of them, those of the target's warp."""
_ALL_LANES = 0xFFFFFFFF
_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
_MATCHED = ("int32", "uint32", "float32", "int64", "uint64", "float64")


def _value(name: str, value: Any) -> ir.Expr:
    current_tracer(name).kernel_scope(name)
    value = as_expr(value)
    if isinstance(value, bool | int | float):
        value = as_dtype(value, "float32" if isinstance(value, float) else "int32")
    if not is_scalar_expr(value):
        raise TypeError(f"{name} found {describe(value)}, wanted a scalar")
    return value


def _mask(name: str, mask: Any) -> ir.Expr:
    constant = as_int(mask)
    if constant is not None and not 0 < constant <= _ALL_LANES:
        raise ValueError(f"mask of {name} is {mask!r}, wanted an int from 1 to 0xFFFFFFFF")
    return as_dtype(mask, "uint32")


def _predicate(name: str, predicate: Any) -> ir.Expr:
    value = _value(name, predicate)
    return value if value.ty.dtype == "bool" else value != tirx.const(0, value.ty.dtype)


def _shuffle(name: str, value: Any, lane: Any, width: int, mask: Any) -> ir.Call:
    value = _value(f"T.{name}", value)
    if as_int(width) not in _WIDTHS:
        raise ValueError(f"width of T.{name} is {width!r}, wanted a power of two up to 64")
    function = "shfl_sync" if name == "shfl_sync" else f"{name}_sync"
    arguments = [_mask(f"T.{name}", mask), value, as_dtype(lane, "int32"), as_dtype(width, "int32")]
    return intrinsic_call(function, value.ty.dtype, arguments)


def shfl_sync(
    value: Any, srcLane: Any, width: int = TRACED_LANES, mask: Any = _ALL_LANES
) -> ir.Call:
    """Return the ``value`` of lane ``srcLane`` of this thread's warp.

    ``T.shfl_up``, ``T.shfl_down`` and ``T.shfl_xor`` are like it (CUDA C++ Programming Guide, "Warp
    Shuffle Functions").

    Parameters
    ----------
    value
        A scalar of any data type.
    width
        Lanes are numbered within groups of ``width``, a power of two; 64 for the wavefronts of
        AMD's CDNA.
    mask
        A bit for each lane that takes part; each of them has to get here.

    Raises
    ------
    TypeError, ValueError
        If ``value`` is not a scalar; for another ``width`` or ``mask``; outside of a kernel.

    Example
    -------
    ``first = T.shfl_sync(x, 0)``
    """
    return _shuffle("shfl_sync", value, srcLane, width, mask)


def shfl_up(value: Any, delta: Any, width: int = TRACED_LANES, mask: Any = _ALL_LANES) -> ir.Call:
    """Return the value of the lane ``delta`` below; a group's first lanes keep their own (see
    ``shfl_sync``).

    Example
    -------
    ``before = T.shfl_up(x, 1)``
    """
    return _shuffle("shfl_up", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: int = TRACED_LANES, mask: Any = _ALL_LANES) -> ir.Call:
    """Return the value of the lane ``delta`` above; a group's last lanes keep their own (see
    ``shfl_sync``).

    Example
    -------
    ``x += T.shfl_down(x, 16)``
    """
    return _shuffle("shfl_down", value, delta, width, mask)


def shfl_xor(value: Any, delta: Any, width: int = TRACED_LANES, mask: Any = _ALL_LANES) -> ir.Call:
    """Return the value of the lane whose number differs in the bits ``delta`` (see
    ``shfl_sync``).

    Example
    -------
    ``x = T.max(x, T.shfl_xor(x, 1))``
    """
    return _shuffle("shfl_xor", value, delta, width, mask)


def _vote(name: str, dtype: str, predicate: Any, mask: Any) -> ir.Call:
    function = name.removesuffix("_sync") + "_sync"
    arguments = [_mask(f"T.{name}", mask), _predicate(f"T.{name}", predicate)]
    return intrinsic_call(function, dtype, arguments)


def any_sync(predicate: Any, mask: Any = _ALL_LANES) -> ir.Call:
    """Return, as int32, whether the predicate holds in any lane of ``mask``, by default in any lane
    of the warp that the block has.

    Each lane of ``mask`` has to get here (CUDA C++ Programming Guide, "Warp Vote Functions").

    Raises
    ------
    TypeError, ValueError
        If the predicate is not a scalar; for another ``mask``; outside of a kernel.

    Example
    -------
    ``if T.any_sync(x > limit) != 0: ...``
    """
    return _vote("any_sync", "int32", predicate, mask)


def all_sync(predicate: Any, mask: Any = _ALL_LANES) -> ir.Call:
    """Return, as int32, whether the predicate holds in all lanes of ``mask`` (see ``any_sync``).

    Example
    -------
    ``if T.all_sync(x <= limit) != 0: ...``
    """
    return _vote("all_sync", "int32", predicate, mask)


def ballot_sync(predicate: Any, mask: Any = _ALL_LANES) -> ir.Call:
    """Return, as uint64, a bit for each lane of ``mask`` in which the predicate holds (see
    ``any_sync``).

    Example
    -------
    ``lanes = T.ballot_sync(x > 0, 0x0000FFFF)``
    """
    return _vote("ballot_sync", "uint64", predicate, mask)


def ballot(predicate: Any) -> ir.Call:
    """Return ``ballot_sync(predicate)``, of all lanes.

    Example
    -------
    ``lanes = T.ballot(x > 0)``
    """
    return _vote("ballot", "uint64", predicate, _ALL_LANES)


def activemask() -> ir.Call:
    """Return, as uint64, a bit for each lane that runs this statement together with this thread.

    Which lanes do is up to the hardware; in the emulator all that have not exited.

    Example
    -------
    ``lanes = T.activemask()``
    """
    current_tracer("T.activemask").kernel_scope("T.activemask")
    return intrinsic_call("activemask", "uint64", [])


def _match(name: str, value: Any, mask: Any) -> ir.Call:
    value = _value(f"T.{name}", value)
    if value.ty.dtype not in _MATCHED:
        raise TypeError(
            f"T.{name} found a value of dtype {value.ty.dtype}, wanted one of "
            f"{', '.join(_MATCHED)}; cast it with T.cast"
        )
    return intrinsic_call(name, "uint32", [_mask(f"T.{name}", mask), value])


def match_any_sync(value: Any, mask: Any = _ALL_LANES) -> ir.Call:
    """Return, as uint32, a bit for each lane of ``mask`` whose value has the bits of this one's.

    Each lane of ``mask`` has to get here (CUDA C++ Programming Guide, "Warp Match Functions").

    Raises
    ------
    TypeError, ValueError
        If the value does not have 4 or 8 bytes; for another ``mask``; outside of a kernel.

    Example
    -------
    ``peers = T.match_any_sync(key)``
    """
    return _match("match_any_sync", value, mask)


def match_all_sync(value: Any, mask: Any = _ALL_LANES) -> ir.Call:
    """Return ``mask`` if the values of its lanes have the same bits, else 0 (see
    ``match_any_sync``).

    Example
    -------
    ``if T.match_all_sync(key) != 0: ...``
    """
    return _match("match_all_sync", value, mask)


def syncthreads_count(predicate: Any) -> ir.Call:
    """Wait for all threads of the block, and return for how many of them the predicate holds.

    All threads of the block have to get here (CUDA C++ Programming Guide, "Synchronization
    Functions").

    Raises
    ------
    TypeError, ValueError
        If the predicate is not a scalar; outside of a kernel.

    Example
    -------
    ``passed = T.syncthreads_count(x > 0)``
    """
    return intrinsic_call(
        "syncthreads_count", "int32", [_predicate("T.syncthreads_count", predicate)]
    )


def syncthreads_and(predicate: Any) -> ir.Call:
    """Wait for all threads, and return, as int32, whether the predicate holds for all (see
    ``syncthreads_count``).

    Example
    -------
    ``if T.syncthreads_and(error < limit) != 0: ...``
    """
    return intrinsic_call("syncthreads_and", "int32", [_predicate("T.syncthreads_and", predicate)])


def syncthreads_or(predicate: Any) -> ir.Call:
    """Wait for all threads, and return, as int32, whether the predicate holds for any (see
    ``syncthreads_count``).

    Example
    -------
    ``if T.syncthreads_or(changed) == 0: ...``
    """
    return intrinsic_call("syncthreads_or", "int32", [_predicate("T.syncthreads_or", predicate)])
