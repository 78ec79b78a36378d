"""Arithmetic that names its instruction: approximations, roundings, pairs."""

from __future__ import annotations

from typing import Any

from tvm import ir

from tilelang.language.ops import intrinsic_call
from tilelang.language.scalars import as_dtype, as_expr, describe, is_number, is_scalar_expr

_MODES = ("rn", "rz", "ru", "rd")
_APPROXIMATED = ("float16", "bfloat16", "float32")
_ROUNDED = ("float32", "float64")
_PAIRS = ("float32x2", "float16x2", "bfloat16x2")


def _float(name: str, value: Any, wanted: tuple[str, ...]) -> ir.Expr:
    value = as_expr(value)
    if isinstance(value, float):
        value = as_dtype(value, "float32")
    found = value.ty.dtype if is_scalar_expr(value) else None
    if found not in wanted:
        raise TypeError(
            f"{name} found {describe(value)}"
            + (f" of dtype {found}" if found else "")
            + f", wanted a scalar of {', '.join(wanted)}; cast it with T.cast"
        )
    return value


def _approximation(name: str, function: str, x: Any) -> ir.Call:
    x = _float(f"T.{name}", x, _APPROXIMATED)
    return intrinsic_call(f"fast_{function}", x.ty.dtype, [x])


def __exp(x: Any) -> ir.Call:
    """Return e**x by the special function unit, exact to about 2 + 1.2 |x| units in the last place.

    ``T.__exp10``, ``T.__exp2``, ``T.__log``, ``T.__log2``, ``T.__log10``, ``T.__sin``, ``T.__cos``
    and ``T.__tan`` are like it (errors: CUDA C++ Programming Guide, "Intrinsic Functions"). The
    emulator gives the more exact values of ``T.exp`` and its like.

    Parameters
    ----------
    x
        A float16, bfloat16 or float32; the 16-bit types compute in float32 and round once.

    Raises
    ------
    TypeError
        If ``x`` is not one of these.

    Example
    -------
    ``p = T.__exp(score - row_max)``
    """
    return _approximation("__exp", "exp", x)


def __exp2(x: Any) -> ir.Call:
    """Return 2**x, approximately (PTX ISA, ex2.approx; see ``__exp``)."""
    return _approximation("__exp2", "exp2", x)


def __exp10(x: Any) -> ir.Call:
    """Return 10**x, approximately (see ``__exp``)."""
    return _approximation("__exp10", "exp10", x)


def __log(x: Any) -> ir.Call:
    """Return the natural logarithm, approximately (see ``__exp``)."""
    return _approximation("__log", "log", x)


def __log2(x: Any) -> ir.Call:
    """Return the logarithm to base 2, approximately (see ``__exp``)."""
    return _approximation("__log2", "log2", x)


def __log10(x: Any) -> ir.Call:
    """Return the logarithm to base 10, approximately (see ``__exp``)."""
    return _approximation("__log10", "log10", x)


def __sin(x: Any) -> ir.Call:
    """Return the sine, approximately: for |x| up to pi the error is below 2**-21.4 (see
    ``__exp``)."""
    return _approximation("__sin", "sin", x)


def __cos(x: Any) -> ir.Call:
    """Return the cosine, approximately: for |x| up to pi the error is below 2**-21.2 (see
    ``__exp``)."""
    return _approximation("__cos", "cos", x)


def __tan(x: Any) -> ir.Call:
    """Return the tangent, approximately: the quotient of ``__sin`` and ``__cos``, near whose zeros
    the relative error grows (see ``__exp``)."""
    return _approximation("__tan", "tan", x)


def fast_rcp(x: Any) -> ir.Call:
    """Return 1 / x, approximately: within one unit in the last place (PTX ISA, rcp.approx; see
    ``__exp``).

    Example
    -------
    ``scale = T.fast_rcp(row_sum)``
    """
    return _approximation("fast_rcp", "rcp", x)


def _rounded(name: str, function: str, mode: str, *operands: Any) -> ir.Call:
    if mode not in _MODES:
        raise ValueError(
            f"rounding_mode of T.{name} is {mode!r}, wanted one of {', '.join(_MODES)}"
        )
    typed = [as_expr(v) for v in operands]
    like = next((v.ty.dtype for v in typed if is_scalar_expr(v)), "float32")
    args = [as_dtype(v, like) if is_number(v) else v for v in typed]
    args = [_float(f"T.{name}", v, _ROUNDED) for v in args]
    if any(a.ty.dtype != like for a in args):
        raise TypeError(
            f"T.{name} found operands of {', '.join(a.ty.dtype for a in args)}, wanted one dtype; "
            "cast with T.cast"
        )
    return intrinsic_call(f"{function}_{mode}", like, args)


def ieee_add(x: Any, y: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return x + y, rounded as asked for and never fused with a multiplication.

    ``T.ieee_sub``, ``T.ieee_mul``, ``T.ieee_fdiv``, ``T.ieee_fmaf``, ``T.ieee_frcp``,
    ``T.ieee_fsqrt`` and ``T.ieee_frsqrt`` are like it (CUDA C++ Programming Guide, "Intrinsic
    Functions").

    Parameters
    ----------
    x, y
        Scalars of float32 or float64, both of one; a Python number takes the type of the other.
    rounding_mode
        ``rn`` to nearest even, ``rz`` towards zero, ``ru`` up, ``rd`` down.

    Raises
    ------
    ValueError, TypeError
        If there is no such rounding; for operands of other or of two types.

    Example
    -------
    ``upper = T.ieee_add(a, b, "ru")``
    """
    return _rounded("ieee_add", "add", rounding_mode, x, y)


def ieee_sub(x: Any, y: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return x - y, rounded as asked for (see ``ieee_add``).

    Example
    -------
    ``low = T.ieee_sub(a, b, "rd")``
    """
    return _rounded("ieee_sub", "sub", rounding_mode, x, y)


def ieee_mul(x: Any, y: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return x * y, rounded as asked for and never fused with an addition (see ``ieee_add``).

    Example
    -------
    ``product = T.ieee_mul(a, b, "rz")``
    """
    return _rounded("ieee_mul", "mul", rounding_mode, x, y)


def ieee_fdiv(x: Any, y: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return x / y, rounded as asked for (see ``ieee_add``).

    Example
    -------
    ``quotient = T.ieee_fdiv(a, b, "rz")``
    """
    return _rounded("ieee_fdiv", "div", rounding_mode, x, y)


def ieee_fmaf(x: Any, y: Any, z: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return x * y + z, rounded once and as asked for (see ``ieee_add``).

    Example
    -------
    ``error = T.ieee_fmaf(a, b, -product)``
    """
    return _rounded("ieee_fmaf", "fma", rounding_mode, x, y, z)


def ieee_frcp(x: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return 1 / x, rounded as asked for (see ``ieee_add``).

    Example
    -------
    ``inverse = T.ieee_frcp(x)``
    """
    return _rounded("ieee_frcp", "rcp", rounding_mode, x)


def ieee_fsqrt(x: Any, rounding_mode: str = "rn") -> ir.Call:
    """Return the square root, rounded as asked for (see ``ieee_add``).

    Example
    -------
    ``norm = T.ieee_fsqrt(total, "ru")``
    """
    return _rounded("ieee_fsqrt", "sqrt", rounding_mode, x)


def ieee_frsqrt(x: Any) -> ir.Call:
    """Return 1 / sqrt(x) of a float32, rounded to nearest even (see ``ieee_add``).

    Example
    -------
    ``scale = T.ieee_frsqrt(variance + 1e-5)``
    """
    x = _float("T.ieee_frsqrt", x, ("float32",))
    return intrinsic_call("rsqrt_rn", "float32", [x])


def fmul(x: Any, y: Any) -> ir.Call:
    """Return ``ieee_mul(x, y)``: a product that the compiler does not fuse with an addition.

    Example
    -------
    ``total = T.fmul(a, b) + c``
    """
    return _rounded("fmul", "mul", "rn", x, y)


def fma(x: Any, y: Any, z: Any) -> ir.Call:
    """Return ``ieee_fmaf(x, y, z)``: x * y + z, rounded once.

    Example
    -------
    ``total = T.fma(a, b, total)``
    """
    return _rounded("fma", "fma", "rn", x, y, z)


def _paired(name: str, *operands: Any) -> ir.Call:
    args = [_float(f"T.{name}", v, _PAIRS) for v in operands]
    if any(a.ty.dtype != args[0].ty.dtype for a in args):
        raise TypeError(
            f"T.{name} found operands of {', '.join(a.ty.dtype for a in args)}, wanted one dtype; "
            "cast with T.cast"
        )
    return intrinsic_call(name, args[0].ty.dtype, args)


def add2(x: Any, y: Any) -> ir.Call:
    """Return the sums of two pairs, one instruction where the chip has it.

    ``T.sub2``, ``T.mul2``, ``T.fma2``, ``T.max2``, ``T.min2`` and ``T.abs2`` are like it. float16
    pairs are packed on every chip, bfloat16 from sm_90, float32 from sm_100 on (PTX ISA, add.f16x2
    and its like); elsewhere the elements are computed one by one, with the same result.

    Parameters
    ----------
    x, y
        float16x2, bfloat16x2 or float32x2, both the same.

    Raises
    ------
    TypeError
        For other operands.

    Example
    -------
    ``T.add2(T.float16x2(a, b), T.float16x2(c, d))``
    """
    return _paired("add2", x, y)


def sub2(x: Any, y: Any) -> ir.Call:
    """Return the differences of two pairs (see ``add2``).

    Example
    -------
    ``T.sub2(T.float16x2(a, b), T.float16x2(c, d))``
    """
    return _paired("sub2", x, y)


def mul2(x: Any, y: Any) -> ir.Call:
    """Return the products of two pairs (see ``add2``).

    Example
    -------
    ``T.mul2(T.float16x2(a, b), T.float16x2(c, d))``
    """
    return _paired("mul2", x, y)


def fma2(x: Any, y: Any, z: Any) -> ir.Call:
    """Return x * y + z of pairs, each element rounded once (see ``add2``).

    Example
    -------
    ``total = T.fma2(x, y, total)``
    """
    return _paired("fma2", x, y, z)


def max2(x: Any, y: Any) -> ir.Call:
    """Return the larger elements of two pairs; NaN loses (see ``add2``).

    Example
    -------
    ``T.max2(pair, T.float16x2(0, 0))``
    """
    return _paired("max2", x, y)


def min2(x: Any, y: Any) -> ir.Call:
    """Return the smaller elements of two pairs; NaN loses (see ``add2``).

    Example
    -------
    ``T.min2(pair, T.float16x2(6, 6))``
    """
    return _paired("min2", x, y)


def abs2(x: Any) -> ir.Call:
    """Return the absolute values of a pair (see ``add2``).

    Example
    -------
    ``largest = T.max2(largest, T.abs2(pair))``
    """
    return _paired("abs2", x)
