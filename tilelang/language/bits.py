"""Functions of the bits of integers, and division as in C.

Each takes an element, another scalar expression or an int.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.math_ops import check_shift, same_type
from tilelang.language.promotion import counted
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    as_int,
    describe,
    is_buffer,
    is_number,
    is_scalar_expr,
)


def _checked(name: str, x: Any) -> Any:
    x = as_expr(x)
    if is_number(x):
        is_integer = isinstance(x, int)
    else:
        is_integer = is_scalar_expr(x) and not is_buffer(x) and "float" not in x.ty.dtype
    if not is_integer:
        raise TypeError(
            f"T.{name} found {describe(x)}, wanted an int or a scalar of an integer dtype; "
            "T.reinterpret(x, T.uint32) gives the bits of a float"
        )
    return x


def _unary(name: str, x: Any) -> Any:
    return getattr(tirx, name)(_checked(name, x))


def _in_a_word(x: Any) -> tuple[Any, int]:
    """Return the bits of an integer in a type of at least 32 of them, without copies of its sign,
    and how many zeros are above them."""
    if is_number(x) or data_type(x.ty).bits >= 32:
        return x, 0
    kind = data_type(x.ty)
    word = as_dtype(x, data_type("int32").with_lanes(kind.lanes))
    return word & (2**kind.bits - 1), 32 - kind.bits


def _binary(name: str, x: Any, y: Any) -> Any:
    x, y = _checked(name, x), _checked(name, y)
    if not name.startswith("bitwise"):
        x, y = counted(x, y)
    if name.startswith("shift"):
        check_shift(f"T.{name}", x, y)
    elif name.startswith("trunc") and as_int(y) == 0:
        raise ValueError(
            f"T.{name} divides {describe(x)} by zero; wanted a divisor that is not zero"
        )
    return getattr(tirx, name)(*same_type(f"T.{name}", x, y))


def bitwise_not(x: Any) -> Any:
    """Return ``x`` with every bit inverted.

    TypeError if ``x`` is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.bitwise_not(mask)``
    """
    return _unary("bitwise_not", x)


def popcount(x: Any) -> Any:
    """Return the number of bits of ``x`` that are set.

    TypeError if ``x`` is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.popcount(mask)``
    """
    return tirx.popcount(_in_a_word(_checked("popcount", x))[0])


def clz(x: Any) -> Any:
    """Return the number of zero bits above the highest bit of ``x`` that is set, as int32; for 0
    all bits of its dtype.

    TypeError if ``x`` is not a scalar of an integer dtype or an int.

    Example
    -------
    ``31 - T.clz(x)``
    """
    word, missing = _in_a_word(_checked("clz", x))
    return tirx.clz(word) - missing if missing else tirx.clz(word)


def bitwise_and(x: Any, y: Any) -> Any:
    """Return the bits that both ``x`` and ``y`` have.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.bitwise_and(word, 0xF)``
    """
    return _binary("bitwise_and", x, y)


def bitwise_or(x: Any, y: Any) -> Any:
    """Return the bits that ``x`` or ``y`` has.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.bitwise_or(low, high)``
    """
    return _binary("bitwise_or", x, y)


def bitwise_xor(x: Any, y: Any) -> Any:
    """Return the bits that only one of ``x`` and ``y`` has.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.bitwise_xor(row, column)``
    """
    return _binary("bitwise_xor", x, y)


def shift_left(x: Any, y: Any) -> Any:
    """Return ``x`` times 2 to the power of ``y``, bits that leave the type being lost.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.shift_left(1, bit)``
    """
    return _binary("shift_left", x, y)


def shift_right(x: Any, y: Any) -> Any:
    """Return ``x`` over 2 to the power of ``y``, rounded down.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.shift_right(word, 4 * i)``
    """
    return _binary("shift_right", x, y)


def truncdiv(x: Any, y: Any) -> Any:
    """Return ``x / y`` rounded towards zero, as C does.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.truncdiv(x, 2)``
    """
    return _binary("truncdiv", x, y)


def truncmod(x: Any, y: Any) -> Any:
    """Return the rest of ``x / y`` with the sign of ``x``, as in C.

    The dtype stays. TypeError if an operand is not a scalar of an integer dtype or an int.

    Example
    -------
    ``T.truncmod(x, 2)``
    """
    return _binary("truncmod", x, y)
