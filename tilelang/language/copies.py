"""``T.copy`` and ``T.async_copy``: which tile of either side moves, and the keywords that choose
how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.effects import reads_memory
from tilelang.language.element_address import as_element
from tilelang.language.intrinsics import address_of
from tilelang.language.loops import loop_layout_notes
from tilelang.language.ops import device_call, emit_tile_op
from tilelang.language.regions import (
    element_extents,
    full_region,
    region_at,
    simplify,
    store_element,
)
from tilelang.language.scalars import as_dtype, as_int, describe, is_buffer, is_number
from tilelang.language.tracer import current_tracer

_EVICTION_POLICIES = {"evict_normal": 0, "evict_first": 1, "evict_last": 2}
_INSTRUCTIONS = ("tma", "cp_async", "sync")


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy a tile; when it returns, the whole block may use ``dst``.

    Each operand is a buffer, a region ``A[a:b, c:d]`` or an element ``A[i, j]``, which stands for
    the tile that starts there and has the other operand's extents. These count from the last
    dimension: beside a tile of shape ``(n,)``, ``A[i, j]`` is a part of row ``i``, and
    ``A[i:i + n, j]`` one of column ``j``. Ranks may differ in dimensions of extent 1. Elements are
    cast to the dtype of ``dst``. Global elements out of bounds read as zero and are not written; a
    warning says where a tile of fewer dimensions than the tensor is larger than the dimension that
    it lies in and seems to be meant for another one.

    Parameters
    ----------
    coalesced_width
        Vector width in elements.
    disable_tma
        Never use TMA.
    eviction_policy
        L2 hint: ``evict_normal``, ``evict_first`` or ``evict_last`` (PTX ISA, "Cache Eviction
        Priority Hints"). Only copies by TMA have a place for it; others ignore it.
    prefer_instruction
        ``cp_async``: require asynchronous copies (PTX ISA, cp.async). They are complete when
        ``T.copy`` returns, unless ``T.Pipelined`` overlaps them. ``sync``: use neither these nor
        TMA. ``tma``: require TMA; an error says why if it cannot be used, and a load is complete
        when ``T.copy`` returns. Without it, stores from shared memory use TMA on sm_90 when the
        kernel accesses the tensor in no other way.
    annotations
        Further keywords; they win over those above.
    loop_layout
        Fragment of the tile's extents without those of 1: the thread that copies an element, and
        when.

    Raises
    ------
    ValueError
        If the tiles do not fit each other; if a keyword has no such value; when compiled, if a
        demanded instruction cannot make the copy, with the reason.
    TypeError
        If an operand is not a buffer, a region or an element.

    Example
    -------
    ``T.copy(A[by * 128, k * 32], A_shared)``
    """
    current_tracer("T.copy")
    attrs = _attrs(coalesced_width, disable_tma, eviction_policy, prefer_instruction)
    attrs |= loop_layout_notes("T.copy", loop_layout, coalesced_width) | dict(annotations or {})
    _emit(src, dst, attrs)


def async_copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    annotations: Mapping[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Start copying a tile from global to shared memory, as one group of asynchronous copies.

    ``dst`` may be used after ``T.ptx_wait_group``. Operands and keywords are those of ``T.copy``;
    see PTX ISA, cp.async.

    Raises
    ------
    ValueError, TypeError
        As for ``T.copy``; when compiled, ValueError if cp.async cannot make the copy.

    Example
    -------
    ``T.async_copy(A[0], S); T.ptx_wait_group(0)``
    """
    current_tracer("T.async_copy")
    attrs = _attrs(coalesced_width, False, None, None) | {"is_async_copy": True}
    attrs |= loop_layout_notes("T.async_copy", loop_layout, coalesced_width)
    _emit(src, dst, attrs | dict(annotations or {}))


_CP_ASYNC_BYTES = (4, 8, 16)


def ptx_cp_async(dst: Any, src: Any, bytes: int, predicate: Any = None) -> None:
    """Copy ``bytes`` neighbouring bytes from global to shared memory, asynchronously (PTX ISA,
    cp.async). ``ptx_commit_group`` and ``ptx_wait_group`` complete it.

    Parameters
    ----------
    dst, src
        The first element, or a pointer to it (``T.address_of``, ``T.access_ptr``), in shared and in
        global memory; at multiples of ``bytes``.
    bytes
        4, 8 or 16.
    predicate
        Where it is false, zeros are written and nothing is read.

    Raises
    ------
    TypeError
        If ``dst`` or ``src`` is neither.
    ValueError
        For another memory or another number of bytes.

    Example
    -------
    ``T.ptx_cp_async(A_shared[tx, 0], A[bx * 128 + tx, 0], 16)``
    """
    current_tracer("T.ptx_cp_async")
    if as_int(bytes) not in _CP_ASYNC_BYTES:
        raise ValueError(f"T.ptx_cp_async found {bytes!r} bytes, wanted 4, 8 or 16")
    arguments = [bytes, _pointer(dst, "shared"), _pointer(src, "global")]
    if predicate is None:
        tir_builder.evaluate(device_call("cp_async_gs", arguments))
    else:
        holds = as_dtype(predicate, "bool")
        tir_builder.evaluate(device_call("cp_async_gs_conditional", [*arguments, holds]))


def _pointer(place: Any, memory: str) -> ir.Call:
    element = as_element("T.ptx_cp_async", place, f"an element of {memory} memory")
    if not element.source.scope().startswith(memory):
        raise ValueError(
            f"T.ptx_cp_async found {element.source.name} in scope {element.source.scope()}, wanted "
            f"{memory} memory; it copies from global to shared memory"
        )
    return address_of(element)


def ptx_commit_group() -> None:
    """Make this thread's asynchronous copies since the last commit a group (PTX ISA,
    cp.async.commit_group).

    Example
    -------
    ``T.ptx_commit_group()``
    """
    current_tracer("T.ptx_commit_group")
    tir_builder.evaluate(device_call("cp_async_commit", []))


def ptx_wait_group(groups: int) -> None:
    """Wait until at most ``groups`` groups of asynchronous copies of this thread are in flight (PTX
    ISA, cp.async.wait_group). What the block needs to see the copies is added where they are used.

    Raises
    ------
    ValueError
        If ``groups`` is not a constant, 0 or more.

    Example
    -------
    ``T.ptx_wait_group(0)``
    """
    current_tracer("T.ptx_wait_group")
    count = as_int(groups)
    if count is None or count < 0:
        raise ValueError(
            f"T.ptx_wait_group found {groups!r} groups, wanted a constant, 0 or more; use 0 to "
            "wait for all"
        )
    tir_builder.evaluate(device_call("cp_async_wait", [count]))


def _emit(src: Any, dst: Any, attrs: dict[str, Any]) -> None:
    _check_operand(src, "the source of T.copy", is_source=True)
    _check_operand(dst, "the destination of T.copy", is_source=False)
    if not has_extents(src) and not has_extents(dst) and not attrs:
        store_element(dst, src)
        return
    emit_tile_op("copy", list(fit_tiles("T.copy", src, dst)), attrs)


def has_extents(value: Any) -> bool:
    """Whether an operand stands for several elements by itself: a buffer, a region, a vector."""
    return not isinstance(value, ir.TensorLoad) or element_extents(value) is not None


def fit_tiles(operator: str, src: Any, dst: Any) -> tuple[ir.TensorRegion, ir.TensorRegion]:
    """Return two operands (buffers, regions, elements) as regions with corresponding extents.

    Raises
    ------
    ValueError
        In the name of ``operator``, if the tiles do not fit each other.
    """
    if is_buffer(src) and is_buffer(dst):
        _check_same_shape(operator, src, dst)
    src_region, dst_region = _fit(operator, src, dst, _extents(src), _extents(dst))
    _check_iteration_space(operator, src_region, dst_region)
    for value, region in ((src, src_region), (dst, dst_region)):
        if isinstance(value, ir.TensorLoad) and element_extents(value) is None:
            _warn_of_other_dimension(operator, region)
    return src_region, dst_region


def _warn_of_other_dimension(operator: str, region: ir.TensorRegion) -> None:
    """Warn of a tile, given by its first element, that is larger than the dimension of the tensor
    that it lies in, if its place says that another dimension was meant.

    Such a tile is legal, and a tensor that is smaller than a tile is usual. That does not begin
    inside of the dimension, and the others do not go in steps of the tile.
    """
    if region.source.scope() != "global":
        return
    ranges = list(region.region)
    single = [d for d, r in enumerate(ranges) if as_int(r.extent) == 1]
    for dim, place in enumerate(ranges):
        extent, size = as_int(place.extent), as_int(region.source.shape[dim])
        if dim in single or not single or extent is None or size is None or extent <= size:
            continue
        stepped = [d for d in single if _is_stepped(ranges[d].min, extent)]
        if not stepped and not _begins_inside(place.min, extent):
            continue
        name, meant = region.source.name, (stepped or single)[-1]
        found = [str(r.min) for r in ranges]
        other = list(found)
        found[dim] = _slice(ranges[dim].min, extent)
        other[meant] = _slice(ranges[meant].min, extent)
        current_tracer(operator).warn(
            f"{operator} found the tile {name}[{', '.join(found)}] of {describe(region.source)}, "
            f"which leaves dimension {dim} wherever it is and is zero there; for a tile in "
            f"dimension {meant} write {name}[{', '.join(other)}]"
        )


def _slice(start: Any, extent: int) -> str:
    return f"{start}:{simplify(start + extent)}"


def _is_stepped(index: Any, extent: int) -> bool:
    """Whether an index that is not constant is a multiple of ``extent``."""
    return as_int(index) is None and simplify(tirx.floormod(index, extent)) == 0


def _begins_inside(start: Any, extent: int) -> bool:
    """Whether a start is surely no multiple of ``extent`` for some block or iteration."""
    constant = as_int(start)
    if constant is not None:
        return 0 < constant < extent
    places = undefined_vars(start)
    of_loops = all(current_tracer("T.copy").is_owned(var) for var in places)
    return of_loops and not reads_memory(start) and not _is_stepped(start, extent)


def _attrs(
    coalesced_width: int | None,
    disable_tma: bool,
    eviction_policy: str | None,
    prefer_instruction: str | None,
) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    if coalesced_width is not None:
        if (as_int(coalesced_width) or 0) < 1:
            raise ValueError(
                f"coalesced_width of T.copy is {coalesced_width!r}, wanted a number of elements, "
                "1 or more"
            )
        attrs["coalesced_width"] = as_int(coalesced_width)
    if disable_tma:
        attrs["disable_tma"] = True
    if eviction_policy is not None:
        attrs["eviction_policy"] = eviction_number("T.copy", eviction_policy)
    if prefer_instruction is not None:
        if prefer_instruction not in _INSTRUCTIONS:
            raise ValueError(
                f"prefer_instruction of T.copy is {prefer_instruction!r}, wanted one of "
                f"{', '.join(_INSTRUCTIONS)}"
            )
        if prefer_instruction == "tma" and disable_tma:
            raise ValueError(
                "T.copy found prefer_instruction='tma' and disable_tma=True, wanted one of them; "
                "leave one out"
            )
        attrs["prefer_instruction"] = prefer_instruction
    return attrs


def eviction_number(operator: str, word: str) -> int:
    """Return the number of an L2 eviction policy.

    Raises
    ------
    ValueError
        In the name of ``operator``, if there is no such policy.
    """
    if word not in _EVICTION_POLICIES:
        raise ValueError(
            f"eviction_policy of {operator} is {word!r}, wanted one of "
            f"{', '.join(_EVICTION_POLICIES)}"
        )
    return _EVICTION_POLICIES[word]


def _check_operand(value: Any, what: str, is_source: bool) -> None:
    if is_buffer(value) or isinstance(value, ir.TensorRegion | ir.TensorLoad):
        return
    scalar = is_source and (is_number(value) or isinstance(value, ir.Expr))
    repair = "; T.fill(buf, value) sets every element to a scalar" if scalar else ""
    raise TypeError(
        f"{what} is {describe(value)}, wanted a buffer, a region A[a:b] or an element A[i]{repair}"
    )


def _extents(value: Any) -> list[Any] | None:
    if isinstance(value, ir.TensorLoad):
        return element_extents(value)
    if isinstance(value, ir.TensorRegion):
        return [simplify(r.extent) for r in value.region]
    return [simplify(s) for s in value.shape]


def _check_same_shape(operator: str, src: ir.Var, dst: ir.Var) -> None:
    if len(src.shape) != len(dst.shape) or any(
        _differ(a, b) is not False for a, b in zip(src.shape, dst.shape, strict=True)
    ):
        raise ValueError(
            f"{operator} found {describe(src)} and {describe(dst)}, wanted equal shapes; "
            f"give the tile's start, as in {operator}(A[i, j], A_shared)"
        )


def _differ(a: Any, b: Any) -> bool | None:
    """Whether two extents differ, None if that is not known."""
    difference = simplify(a - b)
    return difference != 0 if isinstance(difference, int) else None


def _fit(
    operator: str,
    src: Any,
    dst: Any,
    src_extents: list[Any] | None,
    dst_extents: list[Any] | None,
) -> tuple[ir.TensorRegion, ir.TensorRegion]:
    """Return both operands as regions whose extents that are not 1 correspond in order."""
    fitted_src = src_extents or [1] * len(dst_extents or src.indices)
    fitted_dst = dst_extents or [1] * len(src_extents or dst.indices)
    if _tile_shape(fitted_src, count=True) != _tile_shape(fitted_dst, count=True):
        fitted_src, fitted_dst = _align(fitted_src, fitted_dst)
    pair = tuple(
        region_at(full_region(v) if is_buffer(v) else v, e, operator)
        for v, e in ((src, fitted_src), (dst, fitted_dst))
    )
    ranks = [_tile_shape([r.extent for r in region.region], count=True) for region in pair]
    if ranks[0] != ranks[1]:
        raise ValueError(
            f"{operator} found a tile of shape {_text(pair[0])} in {pair[0].source.name} and one "
            f"of shape {_text(pair[1])} in {pair[1].source.name}, wanted the same number of "
            "dimensions that are not 1; index the dimensions that the other side does not have"
        )
    return pair[0], pair[1]


def _tile_shape(extents: Sequence[Any], count: bool = False) -> Any:
    tile = [e for e in extents if as_int(e) != 1]
    return len(tile) if count else tile


def _align(src: Sequence[Any], dst: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Give both sides the larger extent of each pair, from the last dimension on."""
    a, b = list(src), list(dst)
    for i in range(1, min(len(a), len(b)) + 1):
        x, y = a[-i], b[-i]
        if as_int(x) == 1 or (isinstance(x, int) and isinstance(y, int) and x < y):
            a[-i] = y
        elif as_int(y) == 1 or (isinstance(x, int) and isinstance(y, int)):
            b[-i] = x
    return a, b


def _text(region: ir.TensorRegion) -> str:
    return "(" + ", ".join(str(r.extent) for r in region.region) + ")"


def _distance(buffer: ir.Var) -> int:
    """How far memory is from the registers."""
    scope = buffer.scope()
    return 2 if scope == "global" else int(scope.startswith("shared"))


def _check_iteration_space(operator: str, src: ir.TensorRegion, dst: ir.TensorRegion) -> None:
    """Refuse a copy that drops elements of the source, or goes past a tile of on-chip memory.

    The tile nearest to the registers (the source of two equally near) is what is iterated over.
    """
    source, target = (_tile_shape([r.extent for r in side.region]) for side in (src, dst))
    from_source = _distance(src.source) <= _distance(dst.source)
    for s, d in zip(source, target, strict=True):
        difference = simplify(s - d)
        if not isinstance(difference, int) or difference == 0:
            continue
        too_large = difference > 0 and (not from_source or dst.source.scope() != "global")
        too_small = difference < 0 and not from_source and src.source.scope() != "global"
        if too_large or too_small:
            raise ValueError(
                f"{operator} found a source tile of shape {_text(src)} in {src.source.name} and a "
                f"destination tile of shape {_text(dst)} in {dst.source.name}, wanted equal "
                "extents; slice the larger one"
            )
