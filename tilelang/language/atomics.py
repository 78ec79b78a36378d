"""Atomic operations on elements (one for each executing thread) and on tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.copies import fit_tiles, has_extents
from tilelang.language.intrinsics import address_of
from tilelang.language.ops import emit_tile_op, intrinsic_call
from tilelang.language.regions import region_of, starts
from tilelang.language.scalars import as_dtype, as_expr, describe, is_buffer, is_number
from tilelang.language.tracer import current_tracer

_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_LOAD_ORDERS = ("relaxed", "consume", "acquire", "seq_cst")
_STORE_ORDERS = ("relaxed", "release", "seq_cst")
_INTEGERS = ("int32", "uint32", "int64", "uint64")
_HALVES = ("float16", "bfloat16")
_DTYPES = (*_HALVES, "float32", "float64", *_INTEGERS)


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """Add ``value`` to ``dst`` atomically.

    With an element ``dst[i, j]`` and a scalar, each thread that gets here does one operation. If
    either is a buffer or a region, the block does one for each element of the tile; extents align
    as in ``T.copy``, and a scalar is added to every element. What lies outside of a global tensor
    is left alone. The value is cast to the dtype of ``dst``.

    Parameters
    ----------
    dst
        Global or shared memory of float16, bfloat16, float32, float64, (u)int32 or (u)int64.
    memory_order
        ``relaxed`` (default), ``consume``, ``acquire``, ``release``, ``acq_rel`` or ``seq_cst``, as
        in C++, for the whole device.
    return_prev
        Return the value that was there (elements only).
    use_tma
        Let TMA add a tile of shared memory to global memory (sm_90): one
        thread issues, and all go on when the tile may be written again. Of float16, bfloat16,
        float32, int32, uint32 or uint64; operands and tensor as for ``T.tma_copy``; ``relaxed``
        only. PTX ISA, cp.reduce.async.bulk.tensor.

    Raises
    ------
    ValueError
        If the tiles do not fit; if ``dst`` is other memory or has another dtype; if there is no
        such order; with ``use_tma`` for elements and other orders, and, when compiled, if the unit
        cannot add the tile, with the reason.
    NotImplementedError
        For ``return_prev`` on tiles.
    TypeError
        If an operand is not a buffer, a region, an element or a scalar.

    Example
    -------
    ``T.atomic_add(C[by * 128, bx * 128], C_local)``
    """
    attrs = dict(annotations or {}) | ({"use_tma": True} if use_tma else {})
    return _atomic("add", _DTYPES, dst, value, memory_order, return_prev, attrs)


def atomic_max(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """Replace ``dst`` by the larger of it and ``value``, atomically; otherwise as ``atomic_add``.

    NaN loses against a number, as in ``T.max``.

    Example
    -------
    ``T.atomic_max(largest[0], x)``
    """
    return _atomic("max", _DTYPES, dst, value, memory_order, return_prev, annotations)


def atomic_min(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> Any:
    """Replace ``dst`` by the smaller of it and ``value``, atomically; otherwise as
    ``atomic_add``.

    Example
    -------
    ``T.atomic_min(smallest[0], x)``
    """
    return _atomic("min", _DTYPES, dst, value, memory_order, return_prev, annotations)


def atomic_or(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False
) -> Any:
    """Set in the integer ``dst`` the bits of ``value``, atomically; otherwise as ``atomic_add``.

    Example
    -------
    ``T.atomic_or(flags[i], 1)``
    """
    return _atomic("or", _INTEGERS, dst, value, memory_order, return_prev, None)


def atomic_addx2(dst: Any, value: Any, return_prev: bool = False) -> Any:
    """Add two adjacent elements to two adjacent elements, each of them atomically.

    One instruction where the architecture has it (float16 everywhere, the others from sm_90 on, PTX
    ISA, red and atom), else one for each element.

    Parameters
    ----------
    dst
        The first element, or a region; float16, bfloat16 or float32 in global or shared memory.
        Its address must be a multiple of the size of two elements. A pair that is not wholly inside
        of a global tensor is left alone.
    value
        The first element of two, a region, or a vector such as a ``float16x2``.
    return_prev
        Return what was there, as a vector (``T.extract_lane`` takes it apart).

    Raises
    ------
    ValueError, TypeError
        As for ``atomic_add``; if ``value`` has another dtype or number of elements.

    Example
    -------
    ``T.atomic_addx2(C[i, 2 * j], part[i, 2 * j])``
    """
    return _atomic_vector(2, dst, value, return_prev)


def atomic_addx4(dst: Any, value: Any, return_prev: bool = False) -> Any:
    """Add four adjacent elements to four adjacent elements; otherwise as ``atomic_addx2``.

    Example
    -------
    ``T.atomic_addx4(C[i, 0], A[i, 0])``
    """
    return _atomic_vector(4, dst, value, return_prev)


def atomic_load(src: Any, memory_order: str = "seq_cst") -> ir.Call:
    """Return the element ``src``, read atomically.

    Parameters
    ----------
    src
        An element of global or shared memory, of a dtype of ``atomic_add``.
    memory_order
        ``relaxed``, ``consume``, ``acquire`` or ``seq_cst``.

    Raises
    ------
    ValueError, TypeError
        If there is no such order; as for ``atomic_add``.

    Example
    -------
    ``ready = T.atomic_load(flag[0], "acquire")``
    """
    order = _order("T.atomic_load", memory_order, _LOAD_ORDERS)
    target = _element("T.atomic_load", src, _DTYPES)
    order = _scoped(order, target.source)
    return intrinsic_call("atomic_load", str(target.source.dtype), [order, address_of(target)])


def atomic_store(dst: Any, src: Any, memory_order: str = "seq_cst") -> None:
    """Write the scalar ``src`` to the element ``dst`` atomically.

    ``memory_order`` is ``relaxed``, ``release`` or ``seq_cst``; otherwise as ``atomic_load``.

    Example
    -------
    ``T.atomic_store(ready[0], 1, memory_order="release")``
    """
    order = _order("T.atomic_store", memory_order, _STORE_ORDERS)
    target = _element("T.atomic_store", dst, _DTYPES)
    value = as_dtype(src, str(target.source.dtype))
    order = _scoped(order, target.source)
    tir_builder.evaluate(intrinsic_call("atomic_store", "void", [order, address_of(target), value]))


def _atomic(
    operation: str,
    dtypes: tuple[str, ...],
    dst: Any,
    value: Any,
    memory_order: str | None,
    return_prev: bool,
    annotations: Mapping[str, Any] | None,
) -> Any:
    name = f"T.atomic_{operation}"
    current_tracer(name)
    attrs = dict(annotations or {})
    order = _order(name, attrs.pop("memory_order", memory_order) or "relaxed", _ORDERS)
    value = as_expr(value)
    tile = is_buffer(value) or isinstance(value, ir.TensorRegion | ir.TensorLoad)
    if attrs.get("use_tma") and not (tile and order == "relaxed"):
        raise ValueError(
            f"{name} found use_tma=True for {describe(value)} with order {order}, wanted a tile of "
            "shared memory and order relaxed; leave use_tma out"
        )
    if not (tile and has_extents(value)) and _is_element(dst):
        target = _element(name, dst, dtypes)
        return _emit(
            operation, order, target, as_dtype(value, str(target.source.dtype)), return_prev
        )
    if return_prev:
        raise NotImplementedError(
            f"{name} found return_prev=True on a tile, wanted an element and a scalar; index both "
            "in a T.Parallel loop"
        )
    if tile:
        _check_tile(name, dst)
        source, region = fit_tiles(name, value, dst)
    else:
        region = region_of(dst, f"the destination of {name}")
        source = as_dtype(value, str(region.source.dtype))
    _check_memory(name, region.source, dtypes)
    if attrs.get("use_tma") and current_tracer(name).header.is_symmetric(region.source):
        raise ValueError(
            f"{name} found use_tma=True for the symmetric tensor {region.source.name}, which TMA "
            "updates for this GPU alone; leave use_tma out"
        )
    emit_tile_op("atomic", [region, source, operation, _scoped(order, region.source)], attrs)
    return None


def _atomic_vector(lanes: int, dst: Any, value: Any, return_prev: bool) -> Any:
    name = f"T.atomic_addx{lanes}"
    current_tracer(name)
    target = tirx.BufferLoad(*_first(name, dst, lanes))
    _check_memory(name, target.source, (*_HALVES, "float32"))
    dtype = f"{target.source.dtype}x{lanes}"
    value = as_expr(value)
    if is_buffer(value) or isinstance(value, ir.TensorRegion | ir.TensorLoad):
        buffer, first = _first(name, value, lanes)
        elements = [tirx.BufferLoad(buffer, [*first[:-1], first[-1] + i]) for i in range(lanes)]
        value = tirx.Shuffle(
            [as_dtype(e, str(target.source.dtype)) for e in elements], list(range(lanes))
        )
    found = getattr(getattr(value, "ty", None), "dtype", None)
    if found != dtype:
        raise ValueError(
            f"{name} found the value {describe(value)}, wanted a {dtype} or the first of {lanes} "
            f"adjacent elements; T.{dtype}(..) packs scalars"
        )
    return _emit("add", "relaxed", target, value, return_prev)


def _first(name: str, value: Any, lanes: int) -> tuple[ir.Var, list[Any]]:
    """Return the buffer and the first index of ``lanes`` elements along the last dimension."""
    region = region_of(value, f"an operand of {name}")
    extents = [r.extent for r in region.region]
    last = extents.pop()
    single = isinstance(value, ir.TensorLoad) and not has_extents(value)
    if not single and (any(e != 1 for e in extents) or last != lanes):
        raise ValueError(
            f"{name} found {describe(value)}, wanted {lanes} elements along the last dimension; "
            "give the first of them, as in C[i, j]"
        )
    return region.source, starts(region)


def _emit(operation: str, order: str, target: ir.TensorLoad, value: Any, return_prev: bool) -> Any:
    arguments = [_scoped(order, target.source), address_of(target), value]
    if return_prev:
        return intrinsic_call(f"fetch_{operation}", str(value.ty.dtype), arguments)
    tir_builder.evaluate(intrinsic_call(f"atomic_{operation}", "void", arguments))
    return None


def _order(name: str, order: Any, wanted: tuple[str, ...]) -> str:
    if order not in wanted:
        raise ValueError(f"memory_order of {name} is {order!r}, wanted one of {', '.join(wanted)}")
    return str(order)


def _scoped(order: str, buffer: ir.Var) -> str:
    """The order at the scope of who shares the buffer: other GPUs, too, if it is symmetric."""
    tracer = current_tracer("an atomic operation")
    return f"{order}_system" if tracer.header.is_symmetric(buffer) else order


def _is_element(value: Any) -> bool:
    return isinstance(value, ir.TensorLoad) and not has_extents(value)


def _element(name: str, value: Any, dtypes: tuple[str, ...]) -> ir.TensorLoad:
    if not _is_element(value):
        raise TypeError(
            f"the operand of {name} is {describe(value)}, wanted an element of a buffer, as in "
            "C[i, j]"
        )
    _check_memory(name, value.source, dtypes)
    return value


def _check_tile(name: str, dst: Any) -> None:
    if not is_buffer(dst) and not isinstance(dst, ir.TensorRegion | ir.TensorLoad):
        what = f"{dst!r}" if is_number(dst) else describe(dst)
        raise TypeError(
            f"the destination of {name} is {what}, wanted a buffer, a region A[a:b] or an element "
            "A[i]"
        )


def _check_memory(name: str, buffer: ir.Var, dtypes: tuple[str, ...]) -> None:
    scope = buffer.scope()
    if scope != "global" and not scope.startswith("shared"):
        raise ValueError(
            f"{name} found {buffer.name} of scope {scope}, wanted global or shared memory, which "
            "threads have in common; an ordinary assignment does for memory of one thread"
        )
    if str(buffer.dtype) not in dtypes:
        raise ValueError(
            f"{name} found {buffer.name} of dtype {buffer.dtype}, wanted one of "
            f"{', '.join(dtypes)}; cast to one of them"
        )
