"""Functions of floating-point scalars.

Each takes an element, another scalar expression or a number, which becomes a float32 constant, or
of the other operand's dtype. Precision is that of the function of that name in CUDA's mathematical
library (CUDA C++ Programming Guide, "Mathematical Functions").
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.math_ops import same_type
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    as_int,
    describe,
    is_buffer,
    is_number,
    is_scalar_expr,
)


def _checked(name: str, x: Any, whole: bool = False) -> Any:
    """Return the operand of ``T.<name>``; ``whole`` for a function that integers have too."""
    x = as_expr(x)
    if is_number(x):
        return x if whole else float(x)
    if not is_scalar_expr(x) or is_buffer(x):
        raise TypeError(
            f"T.{name} found {describe(x)}, wanted a number or a scalar expression; index it"
        )
    if not whole and "float" not in x.ty.dtype:
        raise TypeError(
            f"T.{name} found {describe(x)} of dtype {x.ty.dtype}, wanted a floating-point dtype; "
            "T.cast(x, T.float32) makes one"
        )
    return x


# What TVM has for these types only; narrower floats are float32 for it, which has their values.
_OF_TVM = ("float16", "float32", "float64")
# Integers whose numbers int32 has.
_EXPONENTS = ("int8", "int16", "int32", "uint8", "uint16", "bool")
# With the underscore: float64 begins with float6.
_NARROW = ("float8_", "float6_", "float4_")


def _unary(name: str, x: Any) -> Any:
    x = _checked(name, x)
    if name.startswith("is") and not is_number(x) and x.ty.dtype not in _OF_TVM:
        x = as_dtype(x, data_type("float32").with_lanes(data_type(x.ty).lanes))
    return getattr(tirx, name)(x)


def _rounding(name: str, x: Any) -> Any:
    x = _checked(name, x, whole=True)
    if is_number(x):
        return getattr(tirx, name)(x)
    kind = x.ty.dtype
    if kind == "bool":
        return as_dtype(x, "int32")
    if kind.startswith(_NARROW):
        wide = data_type("float32").with_lanes(data_type(x.ty).lanes)
        return as_dtype(getattr(tirx, name)(as_dtype(x, wide)), kind)
    return getattr(tirx, name)(x)


def _binary(name: str, x: Any, y: Any) -> Any:
    return getattr(tirx, name)(*same_type(f"T.{name}", _checked(name, x), _checked(name, y)))


def exp(x: Any) -> Any:
    """Return e to the power of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.exp(scores[i, j] - row_max[i])``
    """
    return _unary("exp", x)


def exp2(x: Any) -> Any:
    """Return 2 to the power of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.exp2(x * 1.442695)``
    """
    return _unary("exp2", x)


def exp10(x: Any) -> Any:
    """Return 10 to the power of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.exp10(x)``
    """
    return _unary("exp10", x)


def log(x: Any) -> Any:
    """Return the natural logarithm of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.log(row_sum[i])``
    """
    return _unary("log", x)


def log2(x: Any) -> Any:
    """Return the logarithm of ``x`` to base 2.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.log2(row_sum[i])``
    """
    return _unary("log2", x)


def log10(x: Any) -> Any:
    """Return the logarithm of ``x`` to base 10.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.log10(x)``
    """
    return _unary("log10", x)


def log1p(x: Any) -> Any:
    """Return the natural logarithm of ``1 + x``, exact for small ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.log1p(T.exp(x))``
    """
    return _unary("log1p", x)


def sqrt(x: Any) -> Any:
    """Return the square root of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.sqrt(variance + 1e-5)``
    """
    return _unary("sqrt", x)


def rsqrt(x: Any) -> Any:
    """Return one over the square root of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``x * T.rsqrt(mean_square + 1e-5)``
    """
    return _unary("rsqrt", x)


def sigmoid(x: Any) -> Any:
    """Return ``1 / (1 + exp(-x))``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``x * T.sigmoid(x)``
    """
    return _unary("sigmoid", x)


def erf(x: Any) -> Any:
    """Return the error function of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``0.5 * x * (1 + T.erf(x * 0.70710678))``
    """
    return _unary("erf", x)


def sin(x: Any) -> Any:
    """Return the sine of ``x`` in radians.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.sin(position * frequency)``
    """
    return _unary("sin", x)


def cos(x: Any) -> Any:
    """Return the cosine of ``x`` in radians.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.cos(position * frequency)``
    """
    return _unary("cos", x)


def tan(x: Any) -> Any:
    """Return the tangent of ``x`` in radians.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.tan(x)``
    """
    return _unary("tan", x)


def asin(x: Any) -> Any:
    """Return the angle in radians whose sine is ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.asin(x)``
    """
    return _unary("asin", x)


def acos(x: Any) -> Any:
    """Return the angle in radians whose cosine is ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.acos(x)``
    """
    return _unary("acos", x)


def atan(x: Any) -> Any:
    """Return the angle in radians whose tangent is ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.atan(x)``
    """
    return _unary("atan", x)


def sinh(x: Any) -> Any:
    """Return the hyperbolic sine of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.sinh(x)``
    """
    return _unary("sinh", x)


def cosh(x: Any) -> Any:
    """Return the hyperbolic cosine of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.cosh(x)``
    """
    return _unary("cosh", x)


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent of ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``cap * T.tanh(score / cap)``
    """
    return _unary("tanh", x)


def asinh(x: Any) -> Any:
    """Return the number whose hyperbolic sine is ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.asinh(x)``
    """
    return _unary("asinh", x)


def acosh(x: Any) -> Any:
    """Return the number whose hyperbolic cosine is ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.acosh(x)``
    """
    return _unary("acosh", x)


def atanh(x: Any) -> Any:
    """Return the number whose hyperbolic tangent is ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.atanh(x)``
    """
    return _unary("atanh", x)


def floor(x: Any) -> Any:
    """Return the largest whole number that is not above ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar or a number.

    Example
    -------
    ``T.floor(x / scale)``
    """
    return _rounding("floor", x)


def ceil(x: Any) -> Any:
    """Return the smallest whole number that is not below ``x``.

    The dtype stays. TypeError if ``x`` is not a scalar or a number.

    Example
    -------
    ``T.ceil(x / scale)``
    """
    return _rounding("ceil", x)


def trunc(x: Any) -> Any:
    """Return ``x`` without its fraction.

    The dtype stays. TypeError if ``x`` is not a scalar or a number.

    Example
    -------
    ``T.trunc(x)``
    """
    return _rounding("trunc", x)


def nearbyint(x: Any) -> Any:
    """Return the whole number nearest to ``x``, the even one of two.

    The dtype stays. TypeError if ``x`` is not a scalar or a number.

    Example
    -------
    ``T.nearbyint(x / scale)``
    """
    return _rounding("nearbyint", x)


def abs(x: Any) -> Any:
    """Return ``x`` without its sign.

    The dtype stays. TypeError if ``x`` is not a scalar or a number.

    Example
    -------
    ``T.max(amax, T.abs(x))``
    """
    return _rounding("abs", x)


def isnan(x: Any) -> Any:
    """Return whether ``x`` is not a number, as bool.

    TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.if_then_else(T.isnan(x), 0, x)``
    """
    return _unary("isnan", x)


def isinf(x: Any) -> Any:
    """Return whether ``x`` is an infinity, as bool.

    TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.isinf(x)``
    """
    return _unary("isinf", x)


def isfinite(x: Any) -> Any:
    """Return whether ``x`` is neither an infinity nor not a number, as bool.

    TypeError if ``x`` is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.isfinite(x)``
    """
    return _unary("isfinite", x)


def fmod(x: Any, y: Any) -> Any:
    """Return the rest of ``x / y`` with the sign of ``x``.

    The dtype stays. TypeError if an operand is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.fmod(x, 360.0)``
    """
    return _binary("fmod", x, y)


def atan2(x: Any, y: Any) -> Any:
    """Return the angle in radians of the point ``(y, x)``.

    The dtype stays. TypeError if an operand is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.atan2(x, y)``
    """
    return _binary("atan2", x, y)


def hypot(x: Any, y: Any) -> Any:
    """Return ``sqrt(x * x + y * y)`` without overflow in between.

    The dtype stays. TypeError if an operand is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.hypot(x, y)``
    """
    return _binary("hypot", x, y)


def copysign(x: Any, y: Any) -> Any:
    """Return ``x`` with the sign of ``y``.

    The dtype stays. TypeError if an operand is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.copysign(1.0, x)``
    """
    return _binary("copysign", x, y)


def nextafter(x: Any, y: Any) -> Any:
    """Return the number next to ``x`` in the direction of ``y``.

    The dtype stays. TypeError if an operand is not a scalar of a floating-point dtype or a number.

    Example
    -------
    ``T.nextafter(x, 0.0)``
    """
    return _binary("nextafter", x, y)


def ldexp(x: Any, exponent: Any) -> Any:
    """Return ``x`` times 2 to the power of the integer ``exponent``.

    The dtype stays. TypeError if ``x`` is not a scalar of a floating-point dtype or a number, or if
    ``exponent`` is not an integer that fits int32.

    Example
    -------
    ``T.ldexp(mantissa, -7)``
    """
    x, exponent = _checked("ldexp", x), as_expr(exponent)
    known = as_int(exponent)
    if known is not None and -(2**31) <= known < 2**31:
        return tirx.ldexp(x, tirx.IntImm("int32", known))
    if not is_scalar_expr(exponent) or exponent.ty.dtype not in _EXPONENTS:
        raise TypeError(f"exponent of T.ldexp is {describe(exponent)}, wanted an int32")
    return tirx.ldexp(x, exponent.astype("int32"))


def likely(condition: Any) -> Any:
    """Return ``condition``, a bool, which the program takes to be true most of the time.

    TypeError if ``condition`` is not a scalar or a number.

    Example
    -------
    ``if T.likely(i < n): B[i] = A[i]``
    """
    return tirx.likely(as_dtype(_checked("likely", condition, whole=True), "bool"))
