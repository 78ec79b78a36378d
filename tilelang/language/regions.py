"""Subscripts of buffers: elements, regions, and where a tile operator's operand lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.sym import Analyzer
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    as_int,
    describe,
    in_signed,
    is_buffer,
    is_scalar_expr,
)


def simplify(value: Any) -> Any:
    """Return an integer expression in its simplest form, constants as Python ints."""
    if isinstance(value, int):
        return value
    value = Analyzer().simplify(as_expr(value))
    constant = as_int(value)
    return value if constant is None else constant


def subscript(buffer: ir.Var, index: Any) -> ir.TensorLoad | ir.TensorRegion:
    """Return ``buffer[index]``: an element, or a region if an index is a slice.

    Negative constants count from the end.

    Raises
    ------
    IndexError
        If there is not one index for each dimension, or a constant lies outside of on-chip memory.
    TypeError
        If an index is neither an integer nor a slice of step 1.
    """
    indices = list(index) if isinstance(index, list | tuple) else [index]
    shape = list(buffer.shape)
    if len(indices) != len(shape):
        raise IndexError(
            f"{buffer.name} has rank {len(shape)}, found {len(indices)} indices, wanted "
            f"{len(shape)}; index every dimension (`:` takes all of one)"
        )
    if not any(isinstance(i, slice) for i in indices):
        checked = [_element_index(buffer, d, i) for d, i in enumerate(indices)]
        return tirx.BufferLoad(buffer, checked)
    return tirx.BufferRegion(buffer, [_range(buffer, d, i) for d, i in enumerate(indices)])


def _integer(buffer: ir.Var, dim: int, index: Any) -> Any:
    index = as_expr(index)
    constant = as_int(index)
    if constant is not None:
        return constant
    if is_scalar_expr(index) and index.ty.dtype.startswith(("int", "uint")):
        return index
    repair = ""
    if is_scalar_expr(index):
        repair = "; T.cast(x, 'int32') makes one"
    elif isinstance(index, list | tuple):
        repair = "; name each of its values, as in `for i, j in T.Parallel(m, n)`"
    raise TypeError(f"index {dim} of {buffer.name} is {describe(index)}; wanted an integer{repair}")


def _element_index(buffer: ir.Var, dim: int, index: Any) -> Any:
    index = _integer(buffer, dim, index)
    extent = as_int(buffer.shape[dim])
    if not isinstance(index, int):
        return index
    wrapped = index
    if index < 0:
        wrapped = simplify(buffer.shape[dim] + index) if extent is None else extent + index
    # A global element past the end is legal: it reads as zero and is not written.
    last = extent if buffer.scope() != "global" else None
    if isinstance(wrapped, int) and (wrapped < 0 or (last is not None and wrapped >= last)):
        raise IndexError(
            f"index {dim} of {buffer.name} is {index}, wanted {-extent if extent else 0} to "
            f"{extent - 1 if extent else 'the extent'}; the extent of that dimension is "
            f"{buffer.shape[dim]}"
        )
    return wrapped


def _range(buffer: ir.Var, dim: int, index: Any) -> ir.Range:
    if not isinstance(index, slice):
        return ir.Range.from_min_extent(_element_index(buffer, dim, index), 1)
    if index.step is not None and as_int(index.step) != 1:
        raise TypeError(
            f"slice {dim} of {buffer.name} has step {index.step}, wanted 1; copy with a "
            "T.Parallel loop instead"
        )
    start, stop = (
        default if bound is None else _bound(buffer, dim, bound)
        for bound, default in ((index.start, 0), (index.stop, buffer.shape[dim]))
    )
    extent = simplify(stop - start)
    if isinstance(extent, int) and extent <= 0:
        raise IndexError(
            f"slice {dim} of {buffer.name} is {start}:{stop}, which is empty; wanted at least one "
            "element"
        )
    size = as_int(buffer.shape[dim])
    ends_outside = (
        isinstance(stop, int) and size is not None and stop > size and buffer.scope() != "global"
    )
    if (isinstance(start, int) and start < 0) or ends_outside:
        raise IndexError(
            f"slice {dim} of {buffer.name} is {start}:{stop}, wanted it in 0:{buffer.shape[dim]}, "
            "the extent of that dimension"
        )
    return ir.Range.from_min_extent(start, extent)


def _bound(buffer: ir.Var, dim: int, bound: Any) -> Any:
    bound = in_signed(_integer(buffer, dim, bound))
    return simplify(buffer.shape[dim] + bound) if isinstance(bound, int) and bound < 0 else bound


def store(buffer: ir.Var, index: Any, value: Any) -> None:
    """Emit ``buffer[index] = value`` for an element; the value is cast to the buffer's dtype.

    Raises
    ------
    IndexError, TypeError
        As for :func:`subscript`; also TypeError if ``value`` is not a scalar.
    """
    target = subscript(buffer, index)
    assert isinstance(target, ir.TensorLoad)
    store_element(target, value)


def store_element(target: ir.TensorLoad, value: Any) -> None:
    """Emit a store of the scalar ``value`` to the place that ``target`` loads from."""
    buffer = target.source
    if target.ty.dtype.lanes > 1:
        raise ValueError(
            f"found a vector index of {buffer.name} in a store, wanted scalar indices; write the "
            "access in a T.vectorized loop"
        )
    tir_builder.buffer_store(buffer, as_dtype(value, str(buffer.dtype)), list(target.indices))


def full_region(buffer: ir.Var) -> ir.TensorRegion:
    """Return the region that is all of ``buffer``."""
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(0, s) for s in buffer.shape])


def region_of(value: Any, what: str) -> ir.TensorRegion:
    """Return a buffer, a region or an element as a region; ``what`` names the operand in errors.

    Raises
    ------
    TypeError
        If ``value`` is none of them.
    """
    if is_buffer(value):
        return full_region(value)
    if isinstance(value, ir.TensorRegion):
        return value
    if isinstance(value, ir.TensorLoad):
        extents = element_extents(value) or [1] * len(value.indices)
        return region_at(value, extents, what)
    raise TypeError(f"{what} is {describe(value)}; wanted a buffer, a region or an element of one")


def whole_region(region: ir.TensorRegion, what: str) -> ir.TensorRegion:
    """Return ``region``, which has to be all of its buffer; ``what`` names its user in the error.

    Raises
    ------
    ValueError
        If it is a part of the buffer.
    """
    if not is_whole(region):
        raise ValueError(
            f"{what} found {region}, a slice of memory {region.source.scope()!r}, wanted all "
            "of it; copy the slice to a tile of its own with T.copy"
        )
    return region


def is_whole(region: ir.TensorRegion) -> bool:
    """Return whether a region is all of its buffer, by constants."""
    pairs = zip(region.region, region.source.shape, strict=True)
    return all(as_int(r.min) == 0 and simplify(r.extent) == as_int(size) for r, size in pairs)


def element_extents(load: ir.TensorLoad) -> list[int] | None:
    """Return the extents of a load with a vector index, None for a load of one element."""
    if not any(isinstance(i, tirx.Ramp) for i in load.indices):
        return None
    return [int(i.lanes) if isinstance(i, tirx.Ramp) else 1 for i in load.indices]


def starts(value: ir.TensorLoad | ir.TensorRegion) -> list[Any]:
    """Return the first index of an element or region in each dimension."""
    if isinstance(value, ir.TensorRegion):
        return [r.min for r in value.region]
    return [i.base if isinstance(i, tirx.Ramp) else i for i in value.indices]


def region_at(
    value: ir.TensorLoad | ir.TensorRegion, extents: Sequence[Any], what: str
) -> ir.TensorRegion:
    """Return the region that starts where ``value`` does and has ``extents``, aligned from the
    right.

    Raises
    ------
    ValueError
        If ``extents`` has more dimensions that are not 1 than the buffer has dimensions.
    """
    begin = starts(value)
    missing = len(begin) - len(extents)
    surplus = extents[: max(-missing, 0)]
    if any(as_int(e) != 1 for e in surplus):
        raise ValueError(
            f"{what}: a tile of shape ({', '.join(map(str, extents))}) does not fit "
            f"{value.source.name} of rank {len(begin)}; give both operands the same number of "
            "dimensions"
        )
    padded = [1] * max(missing, 0) + list(extents[len(surplus) :])
    return tirx.BufferRegion(
        value.source, [ir.Range.from_min_extent(b, e) for b, e in zip(begin, padded, strict=True)]
    )
