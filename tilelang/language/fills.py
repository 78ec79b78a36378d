"""``T.fill`` and ``T.clear``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir

from tilelang.language.ops import emit_tile_op
from tilelang.language.regions import region_of, store_element, whole_region
from tilelang.language.scalars import as_dtype
from tilelang.language.tracer import current_tracer


def fill(buf: Any, value: Any, annotations: Mapping[str, Any] | None = None) -> None:
    """Set every element of ``buf`` to the scalar ``value``, cast to the buffer's dtype.

    Parameters
    ----------
    buf
        A buffer, a region or an element of one, in any memory; a mutable scalar is stored to, a
        reducer is initialised (see ``reducer_init``).

    Raises
    ------
    TypeError
        If ``buf`` is none of them or ``value`` is not a scalar.

    Example
    -------
    ``T.fill(scores, -T.infinity(T.float32))``
    """
    tracer = current_tracer("T.fill")
    if isinstance(buf, ir.TensorLoad) and tracer.is_scalar_buffer(buf.source):
        store_element(buf, value)
        return
    region = region_of(buf, "the operand of T.fill")
    converted = as_dtype(value, str(region.source.dtype))
    reduction = tracer.reduction_of(region.source)
    if reduction is not None:
        whole = whole_region(region, "T.fill")
        emit_tile_op("reducer_init", [whole, reduction, converted])
        return
    emit_tile_op("fill", [region, converted], dict(annotations or {}))


def clear(buf: Any, annotations: Mapping[str, Any] | None = None) -> None:
    """Set every element of ``buf`` to zero (see ``fill``).

    Example
    -------
    ``T.clear(C_local)``
    """
    fill(buf, 0, annotations)
