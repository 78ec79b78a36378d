"""Integer expressions of TVM as numbers, where all that they depend on is known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, tirx

_OPERATORS: dict[Any, Callable[[int, int], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.Min: min,
    tirx.Max: max,
    tirx.BitwiseAnd: operator.and_,
    tirx.BitwiseOr: operator.or_,
    tirx.BitwiseXor: operator.xor,
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
}
_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def value_of(expr: Any, values: Mapping[Any, int]) -> int | None:
    """The value of an expression under those of its variables and of elements (`element_of`);
    conditions are 0 or 1. None where it depends on anything else.

    Example: ``value_of(k // 3 & 1, {k: 4}) == 1``
    """
    if isinstance(expr, int):
        return int(expr)
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, ir.Var):
        return values.get(expr)
    if isinstance(expr, ir.TensorLoad):
        return values.get(element_of(expr.source, expr.indices, values))
    if isinstance(expr, tirx.Cast):
        return value_of(expr.value, values)
    if isinstance(expr, tirx.Not):
        known = value_of(expr.a, values)
        return None if known is None else int(not known)
    if isinstance(expr, tirx.And | tirx.Or):
        return _of_condition(expr, values)
    function = _OPERATORS.get(type(expr))
    if function is None:
        return None
    a, b = value_of(expr.a, values), value_of(expr.b, values)
    if a is None or b is None or (b == 0 and isinstance(expr, _DIVISIONS)):
        return None
    return int(function(a, b))


def element_of(buffer: Any, indices: Sequence[Any], values: Mapping[Any, int]) -> Any:
    """The key of `values` for an element of a buffer.

    Example: ``values[element_of(next_tile, [0], values)] = 3``
    """
    return (buffer, *(value_of(index, values) for index in indices))


def _of_condition(expr: Any, values: Mapping[Any, int]) -> int | None:
    """One side may decide alone."""
    deciding = 0 if isinstance(expr, tirx.And) else 1
    sides = [value_of(expr.a, values), value_of(expr.b, values)]
    if any(side is not None and bool(side) == bool(deciding) for side in sides):
        return deciding
    return None if None in sides else 1 - deciding
