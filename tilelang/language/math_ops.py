"""Scalar functions that also compute on Python numbers, beside those that TVM provides."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, tirx

from tilelang.compat.keywords import also_called
from tilelang.language import floats
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.effects import has_effect
from tilelang.language.ops import intrinsic_call
from tilelang.language.promotion import counted, is_float, matched
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    as_int,
    describe,
    is_buffer,
    is_number,
    is_scalar_expr,
    largest,
    unwrap,
)
from tilelang.language.tracer import current_tracer


def _integer_op(
    name: str, python: Callable[[int, int], int], build: Callable[[Any, Any], Any], a: Any, b: Any
) -> Any:
    x, y = as_int(a), as_int(b)
    if y == 0:
        raise ValueError(
            f"T.{name} divides {describe(a)} by zero; wanted a divisor that is not zero"
        )
    if isinstance(a, int) and isinstance(b, int) and x is not None and y is not None:
        return python(x, y)
    for value in (a, b):
        if not (is_number(value) or is_scalar_expr(value)) or is_buffer(value) or is_float(value):
            raise TypeError(f"T.{name} found {describe(value)}, wanted an integer")
    return unwrap(build(*matched(f"T.{name}", *counted(as_expr(a), as_expr(b)))))


def check_shift(what: str, value: Any, distance: Any) -> None:
    """Refuse a constant distance of a shift that the dtype does not have.

    Raises
    ------
    ValueError
        In the name of the operator ``what``.
    """
    found = as_int(distance)
    bits = 64 if is_number(value) else data_type(value.ty).bits
    if found is not None and not 0 <= found < builtins.max(bits, 32):
        raise ValueError(f"{what} shifts {describe(value)} by {found} bits, wanted 0 to {bits - 1}")


def ceildiv(a: Any, b: Any) -> Any:
    """Return ``a / b`` rounded up, an int for ints.

    Of numbers that only the run knows it is ``(a + b - 1) // b`` in their type, which wraps for
    ``a`` within ``b`` of the type's end: ``T.ceildiv(n, 128)`` is negative, and a loop over it has
    no iteration, for an int32 ``n`` above 2**31 - 128. ``T.ceildiv(T.cast(n, "int64"), 128)`` is
    right there, too. A ``b`` that only the run knows has to be positive.

    Raises
    ------
    ValueError, TypeError
        If ``b`` is zero; if an operand is not an integer.

    Example
    -------
    ``T.ceildiv(1000, 128) == 8``
    """
    divisor = as_int(b)
    is_scalar = is_number(a) or (is_scalar_expr(a) and not is_buffer(a))
    if divisor is not None and divisor < 0 and is_scalar:
        a, _ = counted(as_expr(a), 0)
        if is_number(a) or a.ty.dtype.startswith("int"):
            a, b = -a, -divisor
    return _integer_op("ceildiv", lambda x, y: -(-x // y), tirx.ceildiv, a, b)


def floordiv(a: Any, b: Any) -> Any:
    """Return ``a // b``, rounded towards minus infinity, an int for ints.

    Of floats it is Python's, as ``torch.floor_divide``: ``x // 0.0`` is infinite or NaN. An integer
    divided by zero at run time is an error in the emulator and any number on a GPU.

    Raises
    ------
    ValueError, TypeError
        If ``b`` is the integer zero; if an operand is not a scalar.

    Example
    -------
    ``T.floordiv(i, 32)``
    """
    if _is_float(a) or _is_float(b):
        return _float_op("floordiv", lambda x, y: x // y, a, b)
    return _integer_op("floordiv", lambda x, y: x // y, tirx.floordiv, a, b)


def floormod(a: Any, b: Any) -> Any:
    """Return ``a % b`` with the sign of ``b``, an int for ints (errors as for ``floordiv``).

    Of floats it is Python's, as ``torch.remainder``: ``x % 0.0`` is NaN.

    Example
    -------
    ``T.floormod(i, 32)``
    """
    if _is_float(a) or _is_float(b):
        return _float_op("floormod", lambda x, y: x % y, a, b)
    return _integer_op("floormod", lambda x, y: x % y, tirx.floormod, a, b)


def _is_float(value: Any) -> bool:
    value = as_expr(value)
    return (is_number(value) or is_scalar_expr(value)) and is_float(value)


def _float_op(name: str, python: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if is_number(a) and is_number(b):
        if b == 0:
            raise ValueError(
                f"T.{name} divides {describe(a)} by zero; wanted a divisor that is not zero"
            )
        return python(a, b)
    a, b = same_type(f"T.{name}", a, b)
    # An integer beside a float takes the float's type, and of two floats the narrower one.
    of_floats = [as_expr(v) for v in (a, b) if not is_number(v) and _is_float(v)]
    dtype = floats.in_one_type(of_floats[0], of_floats[-1])[0].ty.dtype if of_floats else "float32"
    return intrinsic_call(name, dtype, [as_dtype(a, dtype), as_dtype(b, dtype)])


def same_type(what: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Give a Python number the type of the other operand, unless that would round it to an
    integer; ``what`` has the operands.

    Raises
    ------
    TypeError
        If one is not a scalar; if their dtypes have nothing in common.
    ValueError
        If a number does not fit the other operand's dtype.
    """
    a, b = as_expr(a), as_expr(b)
    for value in (a, b):
        if is_buffer(value) or not (is_number(value) or is_scalar_expr(value)):
            raise TypeError(
                f"{what} found {describe(value)}, wanted a number or a scalar expression"
            )
    if is_number(a) and not is_number(b):
        return _typed(a, b), b
    if is_number(b) and not is_number(a):
        return a, _typed(b, a)
    return matched(what, a, b)


def _typed(number: Any, like: ir.Expr) -> Any:
    is_integer = like.ty.dtype.startswith(("int", "uint", "bool"))
    if is_integer and isinstance(number, float):
        return number
    return as_dtype(number, like.ty.dtype)


def max(a: Any, b: Any) -> Any:
    """Return the larger of two scalars; a Python number takes the type of the other one.

    Of a NaN and a number it returns the number, as max.f32 does (PTX ISA, max; torch returns NaN).
    ``T.if_then_else(T.isnan(x), x, T.max(x, 0))`` keeps the NaN of ``x``; reductions have
    ``nan_propagate`` for that.

    Raises
    ------
    TypeError
        If an operand is not a scalar.

    Example
    -------
    ``C[i, j] = T.max(C[i, j], 0)``
    """
    if is_number(a) and is_number(b):
        return builtins.max(a, b)
    a, b = same_type("T.max", a, b)
    if floats.have_float(a, b):
        return floats.operation("Max", a, b)
    return tirx.max(a, b)


def min(a: Any, b: Any) -> Any:
    """Return the smaller of two scalars; a Python number takes the type of the other one.

    Of a NaN and a number it returns the number, as ``max`` does.

    Raises
    ------
    TypeError
        If an operand is not a scalar.

    Example
    -------
    ``T.min(i, n - 1)``
    """
    if is_number(a) and is_number(b):
        return builtins.min(a, b)
    a, b = same_type("T.min", a, b)
    if floats.have_float(a, b):
        return floats.operation("Min", a, b)
    return tirx.min(a, b)


def if_then_else(condition: Any, true_value: Any, false_value: Any) -> Any:
    """Return one of two scalars; the other one is not loaded, so that it may be out of bounds.

    What does more than load is evaluated in any case, as Python evaluates arguments: an atomic
    operation, and a shuffle, for which all lanes have to come.

    Example
    -------
    ``T.if_then_else(i < n, A[i], 0)``
    """
    values = [
        current_tracer("T.if_then_else").evaluated(value) if has_effect(value) else value
        for value in (true_value, false_value)
    ]
    return choose(condition, *values)


def choose(condition: Any, true_value: Any, false_value: Any) -> Any:
    """Return one of two scalars; the other one is not evaluated."""
    condition = unwrap(condition)
    if is_number(condition):
        return true_value if condition else false_value
    values = same_type("T.if_then_else", true_value, false_value)
    return tirx.if_then_else(_condition("T.if_then_else", condition), *values)


def Select(condition: Any, true_value: Any, false_value: Any) -> Any:
    """Return one of two scalars, both of which are evaluated.

    Example
    -------
    ``T.Select(i < n, x, 0)``
    """
    condition = unwrap(condition)
    if is_number(condition):
        return true_value if condition else false_value
    true_value, false_value = same_type("T.Select", true_value, false_value)
    if not (is_number(true_value) and is_number(false_value)):
        # TVM brings the operands of an addition to one type, those of a selection not.
        kind = (true_value + false_value).ty.dtype
        true_value, false_value = as_dtype(true_value, kind), as_dtype(false_value, kind)
    if is_number(true_value):  # both are numbers
        kind = "float32" if isinstance(true_value + false_value, float) else "int32"
        true_value, false_value = as_dtype(true_value, kind), as_dtype(false_value, kind)
    return tirx.Select(_condition("T.Select", condition), true_value, false_value)


def _condition(what: str, condition: Any) -> ir.Expr:
    if is_buffer(condition) or not (is_number(condition) or is_scalar_expr(condition)):
        raise TypeError(
            f"the condition of {what} is {describe(condition)}, wanted a comparison or a number"
        )
    return as_dtype(condition, "bool")


_FLOATS = {
    "float32": "float",
    "float16": "half_t",
    "bfloat16": "bfloat16_t",
    "float8_e4m3": "fp8_e4_t",
    "float8_e4m3fn": "fp8_e4_t",
    "float8_e5m2": "fp8_e5_t",
}
_TO_INTEGER = {"rn": tirx.nearbyint, "rz": tirx.trunc, "ru": tirx.ceil, "rd": tirx.floor}


def cast(value: Any, dtype: Any, round: str = "", sat: bool = True, rbits: Any = None) -> ir.Expr:
    """Return the scalar ``value`` converted to a data type.

    Floats round to nearest even, and towards zero when they become integers, which saturate. NaN
    becomes 0, and the value with only the top bit set in an integer of 64 bits, or of 32 bits from
    float64 (PTX ISA, cvt). Integers wrap.

    Parameters
    ----------
    round
        ``rn`` (nearest even), ``rz`` (towards zero), ``ru`` (up) or ``rd`` (down), from floats to
        integers or floats. ``rs`` (stochastic), between floats: away from zero with the probability
        of the part that is cut off. Empty: as above.
    sat
        Saturate where the value is out of range, which integers and floats of 8 bits do, and
        stochastic rounding; other floats become infinite as their rounding says. So an infinity,
        and what is above 57344, becomes 57344 in float8_e5m2, though that type has infinities
        (PTX ISA, cvt.satfinite; torch makes infinities). NaN stays NaN in floats. False says that
        the value never is out of range.
    rbits
        Random bits of stochastic rounding, uint32, new ones for each value: rounding is away from
        zero if the part that is cut off, in units of 2**-32 of a step, and they add up to 2**32.

    Raises
    ------
    TypeError, ValueError
        If ``value`` is not a scalar; if there is no such type or rounding; if ``rbits`` is missing
        or given for another rounding than ``rs``; for a directed rounding to a float of another
        type than float32, float16, bfloat16, e4m3 and e5m2.

    Example
    -------
    ``T.cast(x * 127, T.int8, round="rn")``, ``T.cast(x, T.bfloat16, round="rs", rbits=r)``
    """
    target = data_type(dtype)
    if (round == "rs") != (rbits is not None):
        raise ValueError(
            f"T.cast found round={round!r} and rbits={rbits!r}; wanted both for stochastic "
            "rounding, round='rs' and random bits of uint32, or neither"
        )
    if not round:
        return as_dtype(value, target)
    if round not in (*_TO_INTEGER, "rs"):
        raise ValueError(
            f"round of T.cast is {round!r}, wanted one of {', '.join(_TO_INTEGER)}, rs or nothing"
        )
    value = as_expr(value)
    value = as_dtype(value, "float32") if isinstance(value, float) else value
    is_float = is_scalar_expr(value) and "float" in value.ty.dtype
    if is_float and round != "rs" and target.startswith(("int", "uint")):
        return as_dtype(_TO_INTEGER[round](value), target)
    if round == "rs" or (is_float and round != "rn"):
        return _cast_float(value, target, round, rbits)
    return as_dtype(value, target)


def _cast_float(value: Any, target: data_type, round: str, rbits: Any) -> ir.Expr:
    """Return a float rounded as asked for to another type of floats."""
    if not is_scalar_expr(value) or "float" not in value.ty.dtype or target not in _FLOATS:
        raise ValueError(
            f"T.cast found round={round!r} of {describe(value)} to {target}, wanted a float and "
            f"one of {', '.join(_FLOATS)}"
        )
    # Narrow floats have no arithmetic of their own to compare with.
    wide = value if value.ty.dtype == "float64" else as_dtype(value, "float32")
    if wide.ty.dtype == target:
        return wide
    random = [] if rbits is None else [as_dtype(rbits, "uint32")]
    return intrinsic_call(
        f"cast_{round}", str(target), [ir.StringImm(_FLOATS[target]), wide, *random]
    )


def reinterpret(value: Any, dtype: Any) -> ir.Expr:
    """Return the bits of a scalar or vector as another type of as many bits.

    The operands may come in either order.

    Raises
    ------
    ValueError
        If the types differ in size; if there is no such type.
    TypeError
        If ``value`` is not a scalar expression.

    Example
    -------
    ``T.reinterpret(x, T.uint32)``
    """
    if isinstance(value, str | data_type) or not (is_number(value) or is_scalar_expr(value)):
        value, dtype = dtype, value
    value, target = as_expr(value), data_type(dtype)
    if is_number(value):
        value = as_dtype(value, "float32" if isinstance(value, float) else "int32")
    if not is_scalar_expr(value):
        raise TypeError(f"T.reinterpret found {describe(value)}, wanted a scalar expression")
    source = data_type(value.ty)
    if source.bits * source.lanes != target.bits * target.lanes:
        raise ValueError(
            f"T.reinterpret found {describe(value)} of {source.bits * source.lanes} bits, wanted "
            f"as many as {target} has, {target.bits * target.lanes}; T.cast converts the value"
        )
    return tirx.reinterpret(str(target), value)


def Cast(dtype: Any, value: Any) -> ir.Expr:
    """Return ``cast(value, dtype)``.

    Example
    -------
    ``T.Cast(T.float16, x)``
    """
    return cast(value, dtype)


@also_called(lo="min_val", hi="max_val")
def clamp(x: Any, min_val: Any, max_val: Any) -> Any:
    """Return ``min(max(x, min_val), max_val)``; ``lo`` and ``hi`` are other names of the bounds.

    A NaN becomes ``min_val``, since ``max`` returns the number of a NaN and a number (torch keeps
    the NaN): ``T.if_then_else(T.isnan(x), x, T.clamp(x, a, b))`` keeps it.

    Raises
    ------
    TypeError
        If an operand is not a scalar.

    Example
    -------
    ``T.clamp(x, -1.0, 1.0)``
    """
    return min(max(x, min_val), max_val)


def align_up(x: Any, multiple: Any) -> Any:
    """Return the smallest multiple of ``multiple`` that is not less than ``x``, an int for ints
    (errors as for ``ceildiv``).

    Example
    -------
    ``T.align_up(100, 32) == 128``
    """
    return ceildiv(x, multiple) * multiple


def pow(x: Any, n: Any) -> Any:
    """Return ``x`` to the power ``n``.

    A constant integer ``n`` >= 1 multiplies, for integers and floats alike, 0 gives 1; any other
    ``n`` takes the power function of floats.

    Raises
    ------
    TypeError
        If an operand is not a scalar; if ``n`` is not such a constant and ``x`` not a float.

    Example
    -------
    ``T.pow(x, 3)`` is ``x * x * x``
    """
    exponent = as_int(n)
    if is_number(x) and is_number(n):
        return x**n
    x, n = same_type("T.pow", x, n) if exponent is None else (as_expr(x), n)
    if not is_scalar_expr(x) or is_buffer(x):
        raise TypeError(f"T.pow found {describe(x)}, wanted a scalar expression")
    if exponent is not None and 0 <= exponent < 2**31:
        if exponent <= 1:
            return x if exponent else as_dtype(1, x.ty.dtype)
        return intrinsic_call("power", x.ty.dtype, [x, tirx.const(exponent, "int32")])
    if "float" not in x.ty.dtype:
        raise TypeError(
            f"T.pow found {describe(x)} of dtype {x.ty.dtype} to the power {n}, wanted a float, or "
            "a constant integer power >= 0; cast it with T.cast"
        )
    kind = x.ty.dtype
    if _is_whole(n):
        n = as_dtype(n, "float32")
    if kind not in _WITH_POWER:  # TVM has none of narrower floats
        return as_dtype(tirx.pow(as_dtype(x, "float32"), as_dtype(n, "float32")), kind)
    return tirx.pow(*same_type("T.pow", x, n))


_WITH_POWER = ("float16", "float32", "float64")


def _is_whole(value: Any) -> bool:
    return is_scalar_expr(value) and "float" not in value.ty.dtype


_ROUND = {"ties-to-even": tirx.nearbyint, "ties-away-from-zero": None}


def round(x: Any, rounding_mode: str = "ties-to-even") -> Any:
    """Return ``x`` rounded to the nearest integer, as the same type.

    Parameters
    ----------
    rounding_mode
        Where halves go: ``ties-to-even``, as in Python, or ``ties-away-from-zero``.

    Raises
    ------
    ValueError, TypeError
        If there is no such mode; if ``x`` is not a scalar.

    Example
    -------
    ``T.round(x, "ties-away-from-zero")`` makes 3 of 2.5
    """
    if rounding_mode not in _ROUND:
        raise ValueError(
            f"rounding_mode of T.round is {rounding_mode!r}, wanted one of {', '.join(_ROUND)}"
        )
    x = as_expr(x)
    x = as_dtype(x, "float32") if isinstance(x, float) else x
    if not is_scalar_expr(x):
        raise TypeError(f"T.round found {describe(x)}, wanted a scalar expression")
    if "float" not in x.ty.dtype:
        return x
    nearest = _ROUND[rounding_mode]
    return intrinsic_call("round_away", x.ty.dtype, [x]) if nearest is None else nearest(x)


def index_to_coordinates(index: Any, shape: Sequence[Any]) -> list[Any]:
    """Return the coordinates of the ``index``-th element of a row-major array.

    Example
    -------
    ``T.index_to_coordinates(7, (2, 5)) == [1, 2]``
    """
    coordinates: list[Any] = []
    for extent in reversed(list(shape)[1:]):
        coordinates.append(floormod(index, extent))
        index = floordiv(index, extent)
    return [index, *reversed(coordinates)]


def linear_index(*values: Any) -> Any:
    """Return the place in a row-major array: n coordinates, then all extents but the first.

    Raises
    ------
    TypeError
        If the number of values is even.

    Example
    -------
    ``T.linear_index(i, j, columns)`` is ``i * columns + j``
    """
    if len(values) % 2 == 0:
        raise TypeError(
            f"T.linear_index found {len(values)} values, wanted n coordinates and the n - 1 "
            "extents of all dimensions but the first"
        )
    count = len(values) // 2 + 1
    place = values[0]
    for coordinate, extent in zip(values[1:count], values[count:], strict=True):
        place = place * extent + coordinate
    return place


def extract_lane(vector: Any, lane: int) -> ir.Expr:
    """Return element ``lane`` of a vector.

    Raises
    ------
    TypeError
        If ``vector`` is not a vector.
    IndexError
        If it has no such lane.

    Example
    -------
    ``T.extract_lane(T.float16x2(a, b), 1)``
    """
    lanes = data_type(vector.ty).lanes if is_scalar_expr(vector) else 1
    if lanes == 1:
        raise TypeError(f"T.extract_lane found {describe(vector)}, wanted a vector")
    if as_int(lane) is None or not 0 <= lane < lanes:
        raise IndexError(f"lane of T.extract_lane is {lane}, wanted 0 to {lanes - 1}")
    return tirx.Shuffle([vector], [lane])


_WITH_INFINITY = ("float16", "bfloat16", "float32", "float64")


def infinity(dtype: Any) -> ir.Expr:
    """Return the infinity of a floating-point type; ``-T.infinity(...)`` is the smallest value.

    Raises
    ------
    ValueError
        If the type has no infinity, as integers and float8_e4m3fn.

    Example
    -------
    ``T.fill(row_max, -T.infinity(T.float32))``
    """
    target = data_type(dtype)
    if target not in _WITH_INFINITY:
        raise ValueError(
            f"T.infinity found {target}, which has none, wanted one of "
            f"{', '.join(_WITH_INFINITY)}; T.max_value is the largest value of any type"
        )
    return tirx.const(math.inf, str(target))


def max_value(dtype: Any) -> ir.Expr:
    """Return the largest finite value of a data type.

    Example
    -------
    ``T.max_value(T.int8)`` is 127
    """
    target = data_type(dtype)
    if target == "bool":
        return tirx.const(True, "bool")
    if target == "bfloat16":
        return tirx.const(largest(target), "bfloat16")
    return tirx.max_value(target)


def min_value(dtype: Any) -> ir.Expr:
    """Return the smallest finite value of a data type.

    Example
    -------
    ``T.min_value(T.int8)`` is -128
    """
    target = data_type(dtype)
    if target == "bool":
        return tirx.const(False, "bool")
    if target == "bfloat16":
        return tirx.const(-largest(target), "bfloat16")
    return tirx.min_value(target)
