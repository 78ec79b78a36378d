"""How two scalars get one dtype, and which have none in common."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from tvm import ir, tirx

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.scalars import as_dtype, as_expr, describe, is_number, largest


def kind_of(value: Any) -> str:
    """Return ``bool``, ``int``, ``uint`` or ``float`` for a number or an expression."""
    if is_number(value):
        kinds: dict[str, type] = {"bool": bool, "int": Integral}
        return next((kind for kind, of in kinds.items() if isinstance(value, of)), "float")
    name = str(as_expr(value).ty.dtype)
    return next(kind for kind in ("bool", "uint", "int", "float") if kind in name)


def is_float(value: Any) -> bool:
    """Whether a number or an expression is a float."""
    return kind_of(value) == "float"


def with_dtype(value: Any) -> str:
    """Return a few words on a scalar and its dtype for an error message."""
    value = as_expr(value)
    return describe(value) + ("" if is_number(value) else f" of dtype {value.ty.dtype}")


def counted(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two operands of arithmetic, where bools are 0 and 1 in the dtype of the other operand,
    int32 if that is no other one."""
    kinds = kind_of(left), kind_of(right)
    if kinds == ("bool", "bool"):
        return _as_integer(left, "int32"), _as_integer(right, "int32")
    if kinds[0] == "bool":
        return _as_integer(left, "int32" if is_number(right) else right.ty.dtype), right
    if kinds[1] == "bool":
        return left, _as_integer(right, "int32" if is_number(left) else left.ty.dtype)
    return left, right


def _as_integer(value: Any, dtype: str) -> Any:
    return int(value) if is_number(value) else as_dtype(value, dtype)


def matched(what: str, left: Any, right: Any) -> tuple[Any, Any]:
    """Return two scalars whose dtypes TVM brings together without a loss, operands of ``what``.

    Raises
    ------
    TypeError
        If their dtypes, or their numbers of lanes, have nothing in common.
    ValueError
        If a number does not fit the other one's dtype.
    """
    if is_number(left):
        return (left if is_number(right) else _number_beside(what, left, right)), right
    if is_number(right):
        return left, _number_beside(what, right, left)
    a, b = data_type(left.ty), data_type(right.ty)
    if a.lanes != b.lanes and 1 not in (a.lanes, b.lanes):
        raise TypeError(
            f"{what} found {with_dtype(left)} and {with_dtype(right)}, wanted vectors of as many "
            "lanes"
        )
    scalars = {str(a.with_lanes(1)), str(b.with_lanes(1))}
    if scalars == {"float16", "bfloat16"}:
        wide = data_type("float32")
        return as_dtype(left, wide.with_lanes(a.lanes)), as_dtype(right, wide.with_lanes(b.lanes))
    if len(scalars) == 2 and all(s.startswith(("float8_", "float6_", "float4_")) for s in scalars):
        raise TypeError(
            f"{what} found {with_dtype(left)} and {with_dtype(right)}, wanted one dtype; "
            "T.cast(x, T.float32) has the values of both"
        )
    return left, right


def _number_beside(what: str, number: Any, other: ir.Expr) -> Any:
    """Return a number as TVM combines it with ``other``; ValueError if it does not fit."""
    if not math.isfinite(number):
        return number
    name = str(data_type(other.ty).with_lanes(1))
    low, high = _range_beside(name, isinstance(number, int))
    if not low <= number <= high:
        high = 2**32 - 1 if name == "uint32" else high
        raise ValueError(
            f"{what} found {number} beside {with_dtype(other)}, wanted {_text(low)} to "
            f"{_text(high)}; cast the other operand to a dtype that has it"
        )
    if name == "float64":
        return tirx.const(float(number), "float64")
    if "float" in name or not isinstance(number, int):
        return number
    if -(2**31) <= number < 2**31:
        # TVM takes a number beside `&` for one of the other operand's type, also if it is none.
        return number if _holds(name, number) else tirx.const(number, "int32")
    # TVM would take the low 32 bits for an operand of `|`, and would widen uint32 to int64, so that
    # hashes such as `(x * 0x9E3779B1) >> 13` would not wrap.
    holds = name in ("int64", "uint64") or (name == "uint32" and 0 <= number < 2**32)
    return tirx.const(number, name if holds else "int64")


def _holds(dtype: str, number: int) -> bool:
    """Whether an integer type, or bool, has a number of int32 that may stand beside it."""
    if not dtype.startswith(("int", "uint")):
        return True
    digits = data_type(dtype).bits - dtype.startswith("int")
    return (0 if dtype.startswith("uint") else -(2**digits)) <= number < 2**digits


def _text(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


def _range_beside(name: str, is_whole: bool) -> tuple[Any, Any]:
    """Return the numbers that TVM takes beside a scalar of a type: an int becomes the other
    operand's float, or an integer of up to 64 bits, and a number with a fraction float32."""
    if "float" in name or not is_whole:
        high = largest(name if "float" in name and (is_whole or name == "float64") else "float32")
        return -high, high
    if name in ("uint32", "uint64"):
        return 0, 2 ** (64 if name == "uint64" else 63) - 1
    return -(2**63), 2**63 - 1


__all__ = ["counted", "is_float", "kind_of", "matched", "with_dtype"]
