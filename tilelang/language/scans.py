"""``T.cumsum`` and ``T.cummax``: running sums and maxima along a dimension of a tile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir

from tilelang.language.allocation import alloc_shared
from tilelang.language.copies import copy
from tilelang.language.ops import emit_tile_op
from tilelang.language.reductions import axis_of, check_dtype
from tilelang.language.regions import region_of, simplify
from tilelang.language.scalars import as_int
from tilelang.language.tracer import current_tracer

_SCOPES = ("shared", "shared.dyn", "local.fragment")


def cumsum(
    src: Any,
    dst: Any = None,
    dim: int = 0,
    reverse: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Replace each element by the sum of the elements up to it; the whole block may use the result.

    Parameters
    ----------
    src
        Tile in shared memory or a fragment, which is staged through shared memory.
    dst
        Tile of the same shape; ``src`` itself by default, or a part of its buffer that ``src`` has
        nothing of. Its dtype is what is computed in.
    dim
        Dimension along which elements are summed.
    reverse
        Whether to sum from the last element to the first.
    annotations
        Notes on the operator in the program.

    Raises
    ------
    ValueError
        If there is no such dimension, or ``dst`` has another shape; if a tile is in other memory or
        has no dtype to compute in.
    TypeError
        If an operand is not a tile.

    Example
    -------
    ``T.cumsum(lengths, offsets, dim=0)``
    """
    _scan("T.cumsum", "sum", src, dst, dim, reverse, annotations)


def cummax(
    src: Any,
    dst: Any = None,
    dim: int = 0,
    reverse: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Replace each element by the maximum of the elements up to it (see ``cumsum``).

    Example
    -------
    ``T.cummax(A_shared, dim=1)``
    """
    _scan("T.cummax", "max", src, dst, dim, reverse, annotations)


def _scan(
    name: str,
    reduction: str,
    src: Any,
    dst: Any,
    dim: Any,
    reverse: bool,
    annotations: Mapping[str, Any] | None,
) -> None:
    current_tracer(name)
    source = region_of(src, f"the source of {name}")
    target = source if dst is None else region_of(dst, f"the result of {name}")
    axis = _check(name, source, target, dim)
    from_fragment, to_fragment = _is_fragment(source), _is_fragment(target)
    result = _shared_like(target) if to_fragment else target
    if from_fragment:
        copy(source, result)
        source = result
    operands = [source, result, reduction, axis, bool(reverse)]
    emit_tile_op("scan", operands, dict(annotations or {}))
    if to_fragment:
        copy(result, target)


def _check(name: str, src: ir.TensorRegion, dst: ir.TensorRegion, dim: Any) -> int:
    shapes = [[simplify(r.extent) for r in region.region] for region in (src, dst)]
    axis = axis_of(name, src, dim)
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"{name} found {src.source.name} of shape {tuple(shapes[0])} and {dst.source.name} of "
            f"shape {tuple(shapes[1])}, wanted equal shapes"
        )
    for region in (src, dst):
        if region.source.scope() not in _SCOPES:
            raise ValueError(
                f"Invalid buffer scopes: {name} found {region.source.name} in memory "
                f"{region.source.scope()!r}, wanted shared memory or a fragment; copy it there "
                "with T.copy"
            )
    if any(as_int(e) is None for e in shapes[0]):
        raise ValueError(f"{name} found the shape {tuple(shapes[0])}, wanted constants")
    found = f"a result of dtype {dst.source.dtype}"
    check_dtype(name, found, dst.source.dtype, False, "allocate the result in one of them")
    # Counted from the last: versions of a tile get a dimension in front.
    return axis - len(src.region)


def _is_fragment(region: ir.TensorRegion) -> bool:
    return region.source.scope() == "local.fragment"


def _shared_like(region: ir.TensorRegion) -> ir.TensorRegion:
    tile = alloc_shared([as_int(r.extent) for r in region.region], str(region.source.dtype))
    current_tracer("T.cumsum").name(f"{region.source.name}_shared", tile)
    return region_of(tile, "a staged tile")
