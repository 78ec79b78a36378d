"""Operations of floats in IR, and constants that are values of their types.

TVM takes constants of all types of floats for real numbers: it keeps 0.001 for a float16 of 0.001,
which is another number, adds and multiplies without rounding, and makes NaN of ``max(NaN, 1)``, x
of ``x - (-0)``, which is 0 for -0, and an error of ``0 / 0``. So constants are rounded where they
come from, and an operation is what its type makes of it, or stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.promotion import is_float
from tilelang.language.scalars import as_dtype, as_expr, is_number, largest

_NODES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": tirx.Add,
    "Sub": tirx.Sub,
    "Mult": tirx.Mul,
    "Div": tirx.Div,
    "Max": tirx.Max,
    "Min": tirx.Min,
}


def _least(x: float, y: float) -> float:
    """The number of a NaN and a number; -0 is less than 0 (PTX ISA, min)."""
    if math.isnan(x) or math.isnan(y):
        return y if math.isnan(x) else x
    return min((x, math.copysign(1.0, x)), (y, math.copysign(1.0, y)))[0]


_NEUTRAL = {"Sub": 0.0, "Mult": 1.0, "Div": 1.0}
# Rounded to double and then to a narrower type, these are rounded once: S. Figueroa, "When is
# double rounding innocuous?", 1995.
_COMPUTE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mult": np.multiply,
    "Div": np.divide,
    "Min": _least,
    "Max": lambda x, y: -_least(-x, -y),
}


def have_float(left: Any, right: Any) -> bool:
    """Whether one of two scalars is a float, and one of them the program's."""
    return (is_float(left) or is_float(right)) and not (is_number(left) and is_number(right))


def in_one_type(left: Any, right: Any) -> tuple[ir.Expr, ir.Expr]:
    """Return two scalars of which one is a float as expressions of the type that TVM combines them
    in, each rounded to its own type before."""
    # Variables, since TVM would compute constants.
    probes = [_probe(side, other) for side, other in ((left, right), (right, left))]
    dtype = data_type((probes[0] + probes[1]).ty)
    return _converted(left, dtype), _converted(right, dtype)


def _converted(value: Any, dtype: data_type) -> ir.Expr:
    """Return a value, in all lanes if it has one only."""
    if is_number(value) or data_type(as_expr(value).ty).lanes == dtype.lanes:
        return as_dtype(value, dtype)
    return tirx.Broadcast(as_dtype(value, dtype.with_lanes(1)), dtype.lanes)


def _probe(value: Any, other: Any) -> Any:
    if not is_number(value):
        return tirx.Var("", as_expr(value).ty)
    return 3 if isinstance(value, int) and is_float(other) else 0.5


def operation(name: str, left: Any, right: Any) -> ir.Expr:
    """Return ``left op right`` of two scalars of which one is a float, for the name of a class of
    operators in Python's ``ast``, or ``Max`` or ``Min``."""
    a, b = in_one_type(left, right)
    x, y = _constant(a), _constant(b)
    if name in _COMPUTE and x is not None and y is not None:
        with np.errstate(all="ignore"):
            result = float(_COMPUTE[name](np.float64(x), np.float64(y)))
        # What is larger becomes infinite, or in 8 bits does not.
        if not math.isfinite(result) or abs(result) <= largest(a.ty.dtype):
            return as_dtype(result, a.ty.dtype)
    if name == "Div" and y == 0:
        # The same, and TVM's printer refuses a quotient by zero.
        return tirx.Mul(a, as_dtype(math.copysign(math.inf, y), a.ty.dtype))
    if y is not None and y == _NEUTRAL.get(name) and math.copysign(1.0, y) > 0:
        return a
    return b if x == 1 and name == "Mult" else _NODES[name](a, b)


def negated(value: ir.Expr) -> ir.Expr:
    """Return ``-value`` of a float."""
    constant = _constant(value)
    return -value if constant is None else as_dtype(-constant, value.ty.dtype)


def _constant(value: ir.Expr) -> float | None:
    return float(value.value) if isinstance(value, tirx.FloatImm) else None
