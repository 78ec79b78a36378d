"""``T.reduce_*`` over a dimension of a tile, and scalars combined over a warp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from tilelang.language.allocation import alloc_fragment
from tilelang.language.copies import copy
from tilelang.language.dtypes import is_bits_dtype, is_number_dtype
from tilelang.language.ops import emit_tile_op
from tilelang.language.regions import is_whole, region_of, simplify, whole_region
from tilelang.language.scalars import (
    as_expr,
    as_int,
    describe,
    is_buffer,
    is_number,
    is_scalar_expr,
    unwrap,
)
from tilelang.language.tracer import current_tracer

_BITS = ("bitand", "bitor", "bitxor")
_REDUCTIONS = ("sum", "abssum", "max", "absmax", "min", *_BITS)


def reduce(
    buffer: Any,
    out: Any,
    reduce_type: str,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Combine the elements of dimension ``dim`` of a tile; the whole block may use ``out`` after
    it.

    Parameters
    ----------
    buffer
        Tile of at least one dimension, or a part of one, in a fragment or in shared memory; or a
        tile in memory of each thread (``T.alloc_local``; each thread then reduces its own).
    out
        Tile of the same shape without dimension ``dim``, or with extent 1 there; a scalar of shape
        (1,) if ``buffer`` has one dimension. Its dtype is what is computed in. A fragment, in
        shared memory, or a part of one; with a ``buffer`` of each thread, of each thread too.
    reduce_type
        ``sum``, ``max``, ``min``, ``abssum``, ``absmax`` (of absolute values), ``bitand``,
        ``bitor`` or ``bitxor``.
    clear
        Whether ``out`` is overwritten; if not, its value is combined with the result.
    batch
        Results that are exchanged between threads at once. Accepted for compatibility: all results
        of a thread are.
    nan_propagate
        Whether a NaN makes the result of ``max``, ``min`` and ``absmax`` NaN; else it is ignored.
    annotations
        Notes on the operator in the program.

    Raises
    ------
    ValueError
        If the shapes, dtypes or memories do not fit each other, or there is no such dimension or
        reduction.
    TypeError
        If an operand is not a tile.

    Example
    -------
    ``T.reduce(scores, row_max, "max", dim=1)``
    """
    name = f"T.reduce_{reduce_type}" if reduce_type in _REDUCTIONS else "T.reduce"
    current_tracer(name)
    if reduce_type not in _REDUCTIONS:
        raise ValueError(
            f"reduce_type of T.reduce is {reduce_type!r}, wanted one of {', '.join(_REDUCTIONS)}"
        )
    if (as_int(batch) or 0) < 1:
        raise ValueError(f"batch of {name} is {batch!r}, wanted 1 or more results")
    if not isinstance(clear, bool | int):
        raise TypeError(f"clear of {name} is {describe(clear)}, wanted True or False")
    src = region_of(buffer, f"the source of {name}")
    dst = region_of(out, f"the result of {name}")
    axis = _check_shapes(name, src, dst, dim)
    check_dtype(
        name,
        f"a result of dtype {dst.source.dtype}",
        dst.source.dtype,
        reduce_type in _BITS,
        "allocate the result in one of them",
    )
    attrs = dict(annotations or {})
    if nan_propagate:
        attrs["nan_propagate"] = True
    if src.source.same_as(dst.source) and not _is_shared(src):
        raise ValueError(
            f"{name} found {src.source.name} as its source and its result, wanted two tiles; "
            "allocate one for the result"
        )
    _emit(name, src, dst, [reduce_type, axis, bool(clear)], attrs)


def _emit(
    name: str,
    src: ir.TensorRegion,
    dst: ir.TensorRegion,
    arguments: list[Any],
    attrs: dict[str, Any],
) -> None:
    """Reduce between fragments, to and from which tiles in shared memory and parts of fragments are
    copied, or in the memory of each thread."""
    if _is_of_thread(src) and _is_of_thread(dst):
        emit_tile_op(
            "reduce", [whole_region(src, name), whole_region(dst, name), *arguments], attrs
        )
        return
    for region in (src, dst):
        if not (_is_fragment(region) or _is_shared(region)):
            raise ValueError(
                f"Invalid buffer scopes: {name} found {src.source.name} in memory "
                f"{src.source.scope()!r} and {dst.source.name} in {dst.source.scope()!r}, wanted "
                "fragments and shared memory, or both in memory of each thread; copy one with "
                "T.copy"
            )
    source = src if _is_whole_fragment(src) else _staged(src)
    if _is_whole_fragment(dst):
        emit_tile_op("reduce", [source, dst, *arguments], attrs)
        return
    *_, clear = arguments
    result = _staged(dst, load=not clear)
    emit_tile_op("reduce", [source, result, *arguments], attrs)
    copy(result, dst)


def reduce_sum(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Sum over a dimension (see ``reduce``).

    Example
    -------
    ``T.reduce_sum(scores, row_sum, dim=1)``
    """
    reduce(buffer, out, "sum", dim, clear, batch, annotations=annotations)


def reduce_max(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Maximum over a dimension (see ``reduce``); ``clear=False`` keeps a larger ``out``.

    Example
    -------
    ``T.reduce_max(scores, row_max, dim=1)``
    """
    reduce(buffer, out, "max", dim, clear, batch, nan_propagate, annotations)


def reduce_min(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Minimum over a dimension (see ``reduce``).

    Example
    -------
    ``T.reduce_min(scores, row_min, dim=1)``
    """
    reduce(buffer, out, "min", dim, clear, batch, nan_propagate, annotations)


def reduce_absmax(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Largest absolute value over a dimension (see ``reduce``).

    Example
    -------
    ``T.reduce_absmax(scores, row_absmax, dim=1)``
    """
    reduce(buffer, out, "absmax", dim, clear, batch, nan_propagate, annotations)


def reduce_abssum(
    buffer: Any,
    out: Any,
    dim: int = -1,
    batch: int = 1,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Sum of absolute values over a dimension (see ``reduce``).

    Example
    -------
    ``T.reduce_abssum(scores, row_abssum, dim=1)``
    """
    reduce(buffer, out, "abssum", dim, True, batch, annotations=annotations)


def reduce_bitand(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Bitwise and over a dimension, of integers or bools (see ``reduce``).

    Example
    -------
    ``T.reduce_bitand(scores, row_bitand, dim=1)``
    """
    reduce(buffer, out, "bitand", dim, clear, batch, annotations=annotations)


def reduce_bitor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Bitwise or over a dimension, of integers or bools (see ``reduce``).

    Example
    -------
    ``T.reduce_bitor(scores, row_bitor, dim=1)``
    """
    reduce(buffer, out, "bitor", dim, clear, batch, annotations=annotations)


def reduce_bitxor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Bitwise exclusive or over a dimension, of integers or bools (see ``reduce``).

    Example
    -------
    ``T.reduce_bitxor(scores, row_bitxor, dim=1)``
    """
    reduce(buffer, out, "bitxor", dim, clear, batch, annotations=annotations)


def _check_shapes(name: str, src: ir.TensorRegion, dst: ir.TensorRegion, dim: Any) -> int:
    shape = [simplify(r.extent) for r in src.region]
    found = [simplify(r.extent) for r in dst.region]
    axis = axis_of(name, src, dim)
    if any(as_int(e) is None for e in shape):
        raise ValueError(
            f"{name} found the shape {tuple(shape)} of {src.source.name}, wanted constants; reduce "
            "the largest tile and fill what does not exist"
        )
    without, kept = shape[:axis] + shape[axis + 1 :], [*shape[:axis], 1, *shape[axis + 1 :]]
    if found not in (without, kept):
        wanted = " or ".join(str(tuple(s)) for s in (without, kept) if s)
        raise ValueError(
            f"{name} found {src.source.name} of shape {tuple(shape)} and {dst.source.name} of "
            f"shape {tuple(found)}, wanted a result of shape {wanted}"
        )
    return axis


def axis_of(name: str, tile: ir.TensorRegion, dim: Any) -> int:
    """Return the number of the dimension ``dim`` of ``tile``, which may count from the last."""
    rank, axis = len(tile.region), as_int(dim)
    if axis is None or not -rank <= axis < rank:
        raise ValueError(
            f"dim of {name} is {dim!r}, wanted {-rank} to {rank - 1} for {tile.source.name} of "
            f"rank {rank}"
        )
    return axis % rank


def check_dtype(name: str, found: str, dtype: Any, of_bits: bool, repair: str) -> None:
    """Refuse what ``found`` says, of ``dtype``, where the reduction, perhaps one of bits, has no
    such type."""
    if (is_bits_dtype if of_bits else is_number_dtype)(str(dtype)):
        return
    numbers = "an integer type, float16, bfloat16, float32 or float64"
    wanted = "integers or bool" if of_bits else numbers
    raise ValueError(f"{name} found {found}, wanted {wanted}; {repair}")


def _is_fragment(region: ir.TensorRegion) -> bool:
    return region.source.scope() == "local.fragment"


def _is_whole_fragment(region: ir.TensorRegion) -> bool:
    return _is_fragment(region) and is_whole(region)


def _is_shared(region: ir.TensorRegion) -> bool:
    return region.source.scope() in ("shared", "shared.dyn")


def _is_of_thread(region: ir.TensorRegion) -> bool:
    return region.source.scope() in ("local", "local.var")


def _staged(region: ir.TensorRegion, load: bool = True) -> ir.TensorRegion:
    """Return a fragment for a tile of shared memory, or for a part of a fragment; ``load`` copies
    it there."""
    shape = [as_int(r.extent) for r in region.region]
    fragment = alloc_fragment(shape, str(region.source.dtype))
    current_tracer("T.reduce").name(f"{region.source.name}_fragment", fragment)
    if load:
        copy(region, fragment)
    return region_of(fragment, "a staged tile")


def any_of(*values: Any) -> Any:
    """Return whether any element of a tile, or any of several conditions, is not zero.

    Parameters
    ----------
    values
        One buffer, or one region whose extents are 1 but for the last, of at most 256 elements; or
        scalars. Each thread reads all elements, so that a fragment cannot be one.

    Raises
    ------
    ValueError, TypeError
        If the tile has another shape or lies in a fragment; if a value is not a scalar.

    Example
    -------
    ``if T.any_of(block_mask[i, 0:4]):``
    """
    return _connect("T.any_of", tirx.any, values)


def all_of(*values: Any) -> Any:
    """Return whether all elements of a tile, or all of several conditions, are not zero (see
    ``any_of``).

    Example
    -------
    ``T.all_of(mask)``
    """
    return _connect("T.all_of", tirx.all, values)


_MOST_CONDITIONS = 256


def _connect(name: str, connect: Any, values: tuple[Any, ...]) -> Any:
    current_tracer(name)
    is_tile = len(values) == 1 and (is_buffer(values[0]) or isinstance(values[0], ir.TensorRegion))
    conditions = _elements(name, region_of(values[0], name)) if is_tile else list(values)
    if not conditions:
        raise TypeError(f"{name} found no values, wanted a tile or conditions")
    return unwrap(connect(*(_nonzero(name, c) for c in conditions)))


def _elements(name: str, region: ir.TensorRegion) -> list[ir.Expr]:
    extents = [simplify(r.extent) for r in region.region]
    size = as_int(extents[-1])
    if any(e != 1 for e in extents[:-1]) or size is None or size > _MOST_CONDITIONS:
        raise ValueError(
            f"{name} found a tile of shape {tuple(extents)}, wanted extents of 1 and at most "
            f"{_MOST_CONDITIONS} elements in the last dimension; reduce a larger one with "
            "T.reduce_bitor or T.reduce_bitand first"
        )
    if region.source.scope() == "local.fragment":
        raise ValueError(
            f"{name} found the fragment {region.source.name}, whose elements are in several "
            "threads; copy it to shared memory first with T.copy"
        )
    begin = [r.min for r in region.region]
    return [tirx.BufferLoad(region.source, [*begin[:-1], begin[-1] + i]) for i in range(size)]


def _nonzero(name: str, value: Any) -> Any:
    value = as_expr(value)
    if is_number(value):
        return tirx.const(bool(value), "bool")
    if not is_scalar_expr(value):
        raise TypeError(f"{name} found {describe(value)}, wanted a tile or conditions")
    dtype = value.ty.dtype
    return value if dtype == "bool" else value != tirx.const(0, dtype)


def _warp_reduce(name: str, reduce_op: str, value: Any) -> ir.Call:
    current_tracer(name)
    value = as_expr(value)
    if not is_scalar_expr(value):
        raise TypeError(f"{name} found {describe(value)}, wanted a scalar expression")
    dtype = value.ty.dtype
    of_bits = reduce_op.startswith("Bit")
    check_dtype(name, f"a value of dtype {dtype}", dtype, of_bits, "cast it with T.cast")
    arguments = [ir.StringImm(f"tl::{reduce_op}"), tirx.const(32), tirx.const(1), value]
    return ir.Call(ir.Op.get("tl.all_reduce"), arguments, ret_ty=ir.PrimType(dtype))


def warp_reduce_sum(value: Any) -> ir.Call:
    """Return the sum of a scalar over the lanes of each warp that get there.

    Which these are, in a branch or in a block of less than whole warps, has to follow from the
    numbers of the threads.

    Raises
    ------
    TypeError, ValueError
        If ``value`` is not a scalar expression; if its dtype has no such operation; when it is
        compiled, if data decide which lanes get there.

    Example
    -------
    ``total = T.warp_reduce_sum(partial)``
    """
    return _warp_reduce("T.warp_reduce_sum", "SumOp", value)


def warp_reduce_max(value: Any) -> ir.Call:
    """Return the maximum of a scalar over each warp (see ``warp_reduce_sum``).

    Example
    -------
    ``T.warp_reduce_max(value)``
    """
    return _warp_reduce("T.warp_reduce_max", "MaxOp", value)


def warp_reduce_min(value: Any) -> ir.Call:
    """Return the minimum of a scalar over each warp (see ``warp_reduce_sum``).

    Example
    -------
    ``T.warp_reduce_min(value)``
    """
    return _warp_reduce("T.warp_reduce_min", "MinOp", value)


def warp_reduce_bitand(value: Any) -> ir.Call:
    """Return the bitwise and of a scalar over each warp (see ``warp_reduce_sum``).

    Example
    -------
    ``T.warp_reduce_bitand(value)``
    """
    return _warp_reduce("T.warp_reduce_bitand", "BitAndOp", value)


def warp_reduce_bitor(value: Any) -> ir.Call:
    """Return the bitwise or of a scalar over each warp (see ``warp_reduce_sum``).

    Example
    -------
    ``T.warp_reduce_bitor(value)``
    """
    return _warp_reduce("T.warp_reduce_bitor", "BitOrOp", value)


def warp_reduce_bitxor(value: Any) -> ir.Call:
    """Return the bitwise exclusive or of a scalar over each warp (see ``warp_reduce_sum``).

    Example
    -------
    ``T.warp_reduce_bitxor(value)``
    """
    return _warp_reduce("T.warp_reduce_bitxor", "BitXorOp", value)
