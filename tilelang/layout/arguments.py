"""Checks of what layouts are made of: the function that took a wrong argument names it.

Each takes `what`, the words for the argument in a message. A value of a wrong type is a
`TypeError`, a wrong value of the right type a `ValueError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Set
from operator import index
from typing import Any, SupportsIndex

import tvm
from tvm import ir, tirx
from tvm.ir import Expr


def found(value: Any) -> str:
    """Return a few words on a value."""
    if isinstance(value, Expr):
        return str(value)
    if hasattr(value, "shape") and hasattr(value, "dtype"):  # an array, whose elements are too many
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    if inspect.isfunction(value):
        return f"the function {value.__name__}"
    return f"{value!r} of type {type(value).__name__}"


def as_buffer(value: Any, maker: str) -> ir.Var:
    """Return the buffer that `maker` makes a layout of: a tile, or what `T.Tensor` gives."""
    if not isinstance(value, ir.Var) and hasattr(value, "as_buffer"):
        value = value.as_buffer()
    if isinstance(value, ir.Var) and isinstance(value.ty, tirx.BufferType):
        return value
    raise TypeError(
        f"{maker} found {found(value)}, wanted a buffer, whose shape and dtype the layout is for; "
        "pass the tile, such as A_shared, or T.Tensor(shape, dtype) where there is none"
    )


def as_int(value: Any, what: str) -> int:
    """Return an int, also of a constant of the program or of numpy's."""
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{what} is {found(value)}, wanted an int; take a constant")
    return index(value)


def positive(value: Any, what: str) -> int:
    """Return a positive int."""
    number = as_int(value, what)
    if number < 1:
        raise ValueError(f"{what} is {number}, wanted a positive int")
    return number


def sequence(values: Any, what: str) -> list[Any]:
    """Return the elements of a sequence, which a string is not."""
    if isinstance(values, str | Set | Mapping) or not isinstance(values, Collection):
        raise TypeError(
            f"{what} is {found(values)}, wanted a sequence with one element for each dimension, "
            "such as (8, 64)"
        )
    return list(values)


def positives(values: Any, what: str, count: int) -> list[int]:
    """Return `count` positive ints."""
    numbers = [positive(v, f"element {i} of {what}") for i, v in enumerate(sequence(values, what))]
    if len(numbers) != count:
        raise ValueError(f"{what} found {len(numbers)} numbers, wanted {count}; give one for each")
    return numbers


def bits_of(dtype: Any, what: str) -> int:
    """Return the bits of an element type."""
    try:
        return int(tvm.DataType(str(dtype)).bits)
    except ValueError:
        raise ValueError(
            f"{what} is {found(dtype)}, wanted the name of an element type, such as 'float16'"
        ) from None


def of_class(value: Any, kind: type, what: str, repair: str) -> Any:
    """Return a value of class `kind`; `repair` is what to do where it is of another one."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} is {found(value)}, wanted a {kind.__name__}; {repair}")
    return value
