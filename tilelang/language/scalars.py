"""What a scalar is, in Python and in IR, and how one becomes the other."""

from __future__ import annotations

import math
import re
from numbers import Number
from typing import Any

from tvm import DataType, ir, tirx
from tvm.runtime import ObjectConvertible


def is_number(value: Any) -> bool:
    """Whether ``value`` is a Python (or numpy) number."""
    return isinstance(value, Number)


def is_buffer(value: Any) -> bool:
    """Whether ``value`` is a buffer variable."""
    return isinstance(value, ir.Var) and isinstance(value.ty, tirx.BufferType)


def is_scalar_expr(value: Any) -> bool:
    """Whether ``value`` is an IR expression of a primitive type."""
    if isinstance(value, ObjectConvertible):  # a comparison that TVM has not made up its mind about
        return True
    return isinstance(value, ir.Expr) and ir.is_prim_expr(value)


def is_of_program(value: Any) -> bool:
    """Whether ``value`` is something of the program: a scalar, a buffer or a region."""
    return isinstance(value, ir.Expr | ObjectConvertible)


def as_expr(value: Any) -> Any:
    """Return deferred comparisons as expressions and other values as they are."""
    return value.asobject() if isinstance(value, ObjectConvertible) else value


def as_int(value: Any) -> int | None:
    """Return the value of a Python or IR integer constant, None for other values."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    index = getattr(value, "__index__", None)
    return index() if index is not None and is_number(value) else None


def unwrap(value: Any) -> Any:
    """Return int32 and bool constants as Python values, deferred comparisons as expressions."""
    value = as_expr(value)
    if isinstance(value, tirx.IntImm):
        if value.ty.dtype == "int32":
            return int(value.value)
        if value.ty.dtype == "bool":
            return bool(int(value.value))
    return value


def as_dtype(value: Any, dtype: str) -> ir.Expr:
    """Return the scalar ``value`` as an expression of type ``dtype``.

    Raises
    ------
    TypeError
        If ``value`` is not a scalar.
    ValueError
        If it is a number outside of the range of an integer type.
    """
    value = as_expr(value)
    if isinstance(value, complex):
        raise TypeError(f"found {describe(value)} where a scalar of type {dtype} was wanted")
    if is_number(value):
        return tirx.const(_discrete(value, dtype), dtype)
    if not is_scalar_expr(value):
        is_tile = is_buffer(value) or isinstance(value, ir.TensorRegion)
        repair = "; index an element, or copy the tile with T.copy" if is_tile else ""
        raise TypeError(
            f"found {describe(value)} where a scalar of type {dtype} was wanted{repair}"
        )
    if value.ty.dtype == dtype:
        return value
    lanes = DataType(dtype).lanes
    if value.ty.dtype.lanes != lanes:
        raise TypeError(
            f"found a vector, {describe(value)}, where {dtype} was wanted; take a lane of it by "
            "T.extract_lane, or write the access in a T.vectorized loop"
        )
    return tirx.Cast(dtype, value)


def in_signed(value: Any) -> Any:
    """Return an int, or a scalar of integers as int32 or int64: a type that has the differences of
    such values, whichever is larger (of uint64, those of less than 2**63)."""
    if isinstance(value, int) or value.ty.dtype in ("int32", "int64"):
        return value
    return as_dtype(value, "int64" if value.ty.dtype in ("uint32", "uint64") else "int32")


def _discrete(value: Any, dtype: str) -> Any:
    """Return a number as a value of ``dtype``."""
    if re.fullmatch(r"bool(x\d+)?", dtype):
        return bool(value)
    kind = re.fullmatch(r"(u?)int(\d+)(x\d+)?", dtype)
    if kind is None:
        _check_float(value, dtype)
        return _rounded(value, dtype)
    bits = int(kind[2])
    low, high = (0, 2**bits - 1) if kind[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if not low <= value <= high:
        raise ValueError(
            f"found {value} for a value of type {dtype}, wanted {low} to {high}; use a wider type"
        )
    return int(value)


def _check_float(value: Any, dtype: str) -> None:
    """Refuse a finite number whose nearest value in a type of floats is none of the finite ones."""
    scalar = re.sub(r"x\d+$", "", dtype)
    high = largest(scalar) if "float" in scalar else math.inf
    low = 0.0 if scalar.endswith(("uz", "nu")) else -high  # TVM has no sign in constants of these
    bits, _ = _FORMATS.get(scalar, (0, 0))
    # 3.4028235e38 is how the largest float32 is often written.
    beyond = math.ldexp(1.0, math.frexp(high)[1] - bits - 1) if bits else 0.0
    fits = low <= value <= high or 0.0 < abs(value) - high < beyond
    if math.isfinite(value) and not fits:
        raise ValueError(
            f"found {value} for a value of type {dtype}, wanted {low:g} to {high:g}; use a wider "
            "type"
        )


# Bits of the mantissa with the first one, and the exponent of the least normal number. float64 is
# Python's; what TVM has no sign of, or no zero, is left to the conversions of the device.
_FORMATS = {
    "float32": (24, -126),
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float8_e4m3": (4, -6),
    "float8_e4m3fn": (4, -6),
    "float8_e5m2": (3, -14),
}


def _rounded(value: Any, dtype: str) -> float:
    """Return a number of at most the largest of a type of floats as a value of that type: the
    nearest, halves to even. TVM keeps what constants are made of."""
    value = float(value)
    scalar = re.sub(r"x\d+$", "", dtype)
    if scalar not in _FORMATS or not math.isfinite(value):
        return value
    digits, lowest = _FORMATS[scalar]
    exponent = max(math.frexp(value)[1] - 1, lowest) - digits + 1
    return math.copysign(math.ldexp(round(math.ldexp(value, -exponent)), exponent), value)


# 8 bits of mantissa at the largest exponent; TVM takes that of float32, which rounds to infinity.
_LARGEST_BFLOAT16 = (2 - 2**-7) * 2.0**127


def largest(dtype: str) -> float:
    """Return the largest finite value of a scalar type of floats."""
    if dtype == "bfloat16":
        return _LARGEST_BFLOAT16
    return float(tirx.max_value(dtype).value)


# Characters of a value in an error message.
_LONGEST = 120


def describe(value: Any) -> str:
    """Return a few words on ``value`` for an error message."""
    if is_buffer(value):
        shape = ", ".join(str(s) for s in value.shape)
        return f"the buffer {value.name or '(unnamed)'} of shape ({shape})"
    if isinstance(value, ir.TensorRegion):
        return f"the region {value}"
    if isinstance(value, ir.Expr):
        return f"the expression {value}"
    is_class = isinstance(value, type)
    if hasattr(value, "shape") and hasattr(value, "dtype") and not is_class:  # too many elements
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    text = repr(value)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}.."
    return f"{text} of type {type(value).__name__}"
