"""Python's operators on scalars of the program.

Rewritten code calls ``binary``, ``unary`` and ``compare`` (see rewrite.py), so that what an
operator means, and what is said about operands that do not have it, does not depend on TVM's
overloads. Where these mean something else than Python or torch:

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
from tilelang.language.containers import asked, compare_members, negated
from tilelang.language.promotion import counted, is_float, kind_of, matched, with_dtype
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    describe,
    is_buffer,
    is_number,
    is_of_program,
    is_scalar_expr,
    unwrap,
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
_COMPARE: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}
_OF_BITS = ("BitAnd", "BitOr", "BitXor")
_SHIFTS = ("LShift", "RShift")
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
    if not (_is_scalar(left) and _is_scalar(right)):
        return _of_python(symbol, function, left, right)
    left, right = _operand(symbol, left), _operand(symbol, right)
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
    operand = _operand(symbol, operand)
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


def compare(name: str, left: Any, right: Any) -> Any:
    """Return ``left op right`` for a comparison of Python's.

    Raises
    ------
    TypeError
        If one operand is a scalar of the program and the other one is a buffer or a region, or has
        no order.
    ValueError
        If a number does not fit the other operand's dtype.
    """
    symbol, function = _COMPARE[name]
    if not (is_of_program(left) or is_of_program(right)):
        read_members(left, right)
        by_members = compare_members(name, left, right, compare)
        return _of_objects(name, left, right) if by_members is NotImplemented else by_members
    if not (_is_scalar(left) and _is_scalar(right)):
        if name in ("eq", "ne") and not (_is_scalar(left) or _is_scalar(right)):
            return function(left, right)  # whether two buffers are one
        if name in ("eq", "ne") and not (is_of_program(left) and is_of_program(right)):
            return _with_an_object(name, left, right)
        return _of_python(symbol, function, left, right)
    left, right = _operand(symbol, left), _operand(symbol, right)
    left, right = matched(f"`{symbol}`", left, right)
    if floats.have_float(left, right):
        left, right = floats.in_one_type(left, right)
    return function(left, right)


def _with_an_object(name: str, left: Any, right: Any) -> Any:
    """Compare something of the program with an object that is none of its numbers: None, a text."""
    other = right if is_of_program(left) else left
    if hasattr(other, "__array__") or (hasattr(other, "__float__") and not isinstance(other, type)):
        raise _no_scalar(_COMPARE[name][0], other)  # a number or numbers of another library
    own = getattr(type(other), f"__{name}__")
    by_default = name == "ne" and own is object.__ne__
    if by_default:
        own = type(other).__eq__
    found = unwrap(own(other, left if other is right else right))
    if found is NotImplemented:
        return name == "ne"
    return negated(found) if by_default else found


def _of_objects(name: str, left: Any, right: Any) -> Any:
    """Compare what is no scalar of the program, but may have some that its class compares."""
    if name == "ne" and type(left).__ne__ is type(right).__ne__ is object.__ne__:
        # Python asks for the truth of `==`, which a class may say by an expression.
        return negated(unwrap(asked(operator.eq, left, right)))
    return asked(_COMPARE[name][1], left, right)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) or is_number(value) or is_scalar_expr(value)


def _operand(symbol: str, value: Any) -> Any:
    """Return a scalar as a Python number or an expression."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_number(value) and not isinstance(value, int | float):
        raise TypeError(f"`{symbol}` found {describe(value)}, wanted an int, a float or a bool")
    value = as_expr(value)
    if not is_number(value) and (not is_scalar_expr(value) or value.ty.dtype == "handle"):
        raise _no_scalar(symbol, value)
    return value


def _no_scalar(symbol: str, value: Any) -> TypeError:
    is_tile = is_buffer(value) or isinstance(value, ir.TensorRegion)
    repair = "; index an element, in a T.Parallel loop for all of them" if is_tile else ""
    return TypeError(f"`{symbol}` found {describe(value)}, wanted a scalar{repair}")


def _of_python(symbol: str, function: Callable[..., Any], left: Any, right: Any) -> Any:
    """Return what an object of Python's makes of an operator whose other operand is the
    program's."""
    name = function.__name__.rstrip("_")
    result = NotImplemented
    for owner, other, method in ((left, right, f"__{name}__"), (right, left, f"__r{name}__")):
        if result is NotImplemented and not is_of_program(owner) and not is_number(owner):
            result = getattr(owner, method, lambda other: NotImplemented)(other)
    if result is NotImplemented:
        raise _no_scalar(symbol, right if _is_scalar(left) else left)
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


__all__ = ["binary", "compare", "unary"]
