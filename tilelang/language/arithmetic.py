"""Python's operators on scalars of the program.

Rewritten code calls ``binary`` and ``unary`` (see rewrite.py; comparisons.py has the comparisons),
so that what an operator means, and what is said about operands that do not have it, does not depend
on TVM's overloads. Where these mean something else than Python or torch:

* ``/`` is true division: integers are divided as float32;
* ``x ** n`` is ``T.pow(x, n)``;
* comparisons count, ``(a > b) + (c > d)`` is 0, 1 or 2 (int32); ``~(a > b)`` is ``not (a > b)``;
* float16 and bfloat16 meet in float32, since neither has the values of the other.

Operands of which none is the program's are Python's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.language import floats, math_ops
from tilelang.language.promotion import counted, is_float, kind_of, matched, with_dtype
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    describe,
    is_buffer,
    is_number,
    is_of_program,
    is_scalar_expr,
)
from tilelang.language.tracer import read_members

_BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Add": ("+", operator.add),
    "Sub": ("-", operator.sub),
    "Mult": ("*", operator.mul),
    "Div": ("/", operator.truediv),
    "FloorDiv": ("//", operator.floordiv),
    "Mod": ("%", operator.mod),
    "Pow": ("**", operator.pow),
    "LShift": ("<<", operator.lshift),
    "RShift": (">>", operator.rshift),
    "BitAnd": ("&", operator.and_),
    "BitOr": ("|", operator.or_),
    "BitXor": ("^", operator.xor),
    "MatMult": ("@", operator.matmul),
}
_OF_FLOATS = ("Add", "Sub", "Mult", "Div")
_UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "USub": ("-", operator.neg),
    "UAdd": ("+", operator.pos),
    "Invert": ("~", operator.invert),
}
_OF_BITS = ("BitAnd", "BitOr", "BitXor")
_SHIFTS = ("LShift", "RShift")
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""What Python asks the right operand for a comparison that the left one does not know."""
_MODULO = ("Add", "Sub", "Mult", "LShift")


def binary(name: str, left: Any, right: Any) -> Any:
    """Return ``left op right`` for the class ``name`` of operators in Python's ``ast``.

    Raises
    ------
    TypeError
        If an operand is not a scalar, or the operator is not one of its dtype.
    ValueError
        If it divides an integer by the constant zero, or a number does not fit the other operand's
        dtype.
    """
    symbol, function = _BINARY[name]
    if not (is_of_program(left) or is_of_program(right)):
        read_members(left, right)
        return function(left, right)
    if not (is_scalar(left) and is_scalar(right)):
        return of_python(symbol, function, left, right)
    left, right = as_operand(symbol, left), as_operand(symbol, right)
    if name == "Pow":
        return math_ops.pow(left, right)
    if name == "MatMult":
        raise TypeError(
            f"`@` found {describe(left)} and {describe(right)}, wanted tiles and T.gemm(A, B, C)"
        )
    if name in _OF_BITS or name in _SHIFTS:
        _check_bits(symbol, left, right)
    if name not in _OF_BITS or kind_of(left) != kind_of(right):
        left, right = counted(left, right)
    if name in _OF_BITS or name in _SHIFTS:
        left, right = _whole_bits(left, right), _whole_bits(right, left)
    left, right = matched(f"`{symbol}`", left, right)
    if name == "Div":
        if is_number(right) and right == 0:
            raise ValueError(
                f"`/` divides {describe(left)} by zero; wanted a divisor that is not zero"
            )
        if not (is_float(left) or is_float(right)):
            left, right = as_dtype(left, "float32"), as_dtype(right, "float32")
    if name in _SHIFTS:
        math_ops.check_shift(f"`{symbol}`", left, right)
    if name in _OF_FLOATS and floats.have_float(left, right):
        return floats.operation(name, left, right)
    constant = _of_constants(function, left, right) if name in _MODULO else None
    if constant is not None:
        return constant
    if name in ("FloorDiv", "Mod"):
        function = math_ops.floordiv if name == "FloorDiv" else math_ops.floormod
    return function(left, right)


def _of_constants(function: Callable[[Any, Any], Any], left: Any, right: Any) -> tirx.IntImm | None:
    """Return an operation of two integer constants of one type as C computes it, modulo 2^n: TVM
    refuses 0 - 7 of unsigned integers. None for other operands."""
    types = {side.ty.dtype for side in (left, right) if isinstance(side, tirx.IntImm)}
    numbers = [getattr(side, "value", side) for side in (left, right)]
    if len(types) != 1 or not all(isinstance(n, int) for n in numbers) or types == {"bool"}:
        return None
    dtype = types.pop()
    low, high = (int(limit(dtype).value) for limit in (tirx.min_value, tirx.max_value))
    return tirx.IntImm(dtype, (function(*map(int, numbers)) - low) % (high - low + 1) + low)


def unary(name: str, operand: Any) -> Any:
    """Return ``op operand`` for the class ``name`` of operators in Python's ``ast``.

    Raises
    ------
    TypeError
        If the operand is not a scalar, or the operator is not one of its dtype.
    """
    symbol, function = _UNARY[name]
    if not is_of_program(operand):
        return function(operand)
    operand = as_operand(symbol, operand)
    if name == "Invert":
        _check_bits(symbol, operand)
        return tirx.Not(operand) if kind_of(operand) == "bool" else function(operand)
    operand, _ = counted(operand, 0)
    if name == "UAdd":
        return operand
    if is_float(operand):
        return floats.negated(operand)
    # TVM multiplies by -1, which an unsigned type does not have.
    return binary("Sub", 0, operand) if kind_of(operand) == "uint" else function(operand)


def is_scalar(value: Any) -> bool:
    """Whether ``value`` is an operand of Python's operators: a number, numpy's too, or an
    expression."""
    return isinstance(value, np.generic) or is_number(value) or is_scalar_expr(value)


def as_operand(symbol: str, value: Any) -> Any:
    """Return a scalar as a Python number or an expression."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_number(value) and not isinstance(value, int | float):
        raise TypeError(f"`{symbol}` found {describe(value)}, wanted an int, a float or a bool")
    value = as_expr(value)
    if not is_number(value) and (not is_scalar_expr(value) or value.ty.dtype == "handle"):
        raise no_scalar(symbol, value)
    return value


def no_scalar(symbol: str, value: Any) -> TypeError:
    """Return the error for an operand that is no scalar."""
    is_tile = is_buffer(value) or isinstance(value, ir.TensorRegion)
    repair = "; index an element, in a T.Parallel loop for all of them" if is_tile else ""
    return TypeError(f"`{symbol}` found {describe(value)}, wanted a scalar{repair}")


def of_python(symbol: str, function: Callable[..., Any], left: Any, right: Any) -> Any:
    """Return what an object of Python's makes of an operator whose other operand is the
    program's."""
    name = function.__name__.rstrip("_")
    swapped = _SWAPPED.get(name, f"r{name}")
    result = NotImplemented
    for owner, other, method in ((left, right, name), (right, left, swapped)):
        if result is NotImplemented and not is_of_program(owner) and not is_number(owner):
            result = getattr(owner, f"__{method}__", lambda other: NotImplemented)(other)
    if result is NotImplemented:
        raise no_scalar(symbol, right if is_scalar(left) else left)
    return result


def _whole_bits(value: Any, other: Any) -> Any:
    """Return an operand of bits; a negative number has none in an unsigned type."""
    if is_number(value) and value < 0 and kind_of(other) == "uint":
        return as_dtype(value, other.ty.dtype)
    return value


def _check_bits(symbol: str, *operands: Any) -> None:
    for value in operands:
        if is_float(value):
            raise TypeError(
                f"`{symbol}` found {with_dtype(value)}, wanted integers; T.reinterpret(x, "
                "T.uint32) gives the bits of a float"
            )


__all__ = ["as_operand", "binary", "is_scalar", "no_scalar", "of_python", "unary"]
