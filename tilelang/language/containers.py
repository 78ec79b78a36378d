"""Searches of traced code in Python's containers: ``in``, keys, and what a list's methods look for.

Python looks for objects, and for numbers among numbers. A number that is looked for among values of
the program, or such a value among numbers, is an error: only the run knows whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvm import ir

from tilelang.language.comparisons import has_scalar
from tilelang.language.scalars import as_expr, describe, is_scalar_expr, unwrap
from tilelang.language.tracer import read_members


def searched(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a list's method that looks for an object, or for a number among numbers."""
    return method(*arguments)


def _has(container: Any, value: Any) -> bool:
    return value in container


SEARCHED, CONTAINS = searched.__code__, _has.__code__
"""Whose questions are those of the program that is traced (plain_functions.py)."""


def contains(container: Any, value: Any) -> bool:
    """Return ``value in container``, unless Python would answer for a value that only the program
    knows. A buffer has no end for Python, which would ask for one element after the other.

    Raises
    ------
    TypeError
        If only the run knows whether it is there, or the container is a buffer.
    """
    if isinstance(unwrap(container), ir.Expr | ir.TensorRegion):
        raise TypeError(
            f"`in` looks through a container while tracing, and found "
            f"{describe(unwrap(container))}; wanted a Python sequence, set or dict"
        )
    read_members(container)
    if isinstance(container, dict | set | frozenset):
        value = key_of(container, value)
    found = _has(container, value)
    if not found and isinstance(unwrap(value), ir.Expr) and is_scalar_expr(value):
        raise TypeError(
            f"`in` compares while tracing, and found {describe(as_expr(value))}; write x == a or "
            "x == b"
        )
    return found


def key_of(container: Any, key: Any, is_new: bool = False) -> Any:
    """Return a key of a dict or a set as Python takes it: hashes know objects, and a scalar of the
    program has another one than the number that it will be.

    Raises
    ------
    TypeError
        If only the run knows whether the key is there, or, if it ``is_new``, becomes another one.
    """
    key = unwrap(key)
    if key in container:
        return key
    if has_scalar(key):
        unknown, others = key, [k for k in container if isinstance(k, bool | int | float | tuple)]
        is_name = isinstance(key, ir.Var)
        if is_new and is_name and not others:
            return key
    else:
        is_number = isinstance(key, bool | int | float | tuple)
        unknown = next((k for k in container if is_number and has_scalar(k)), None)
        if unknown is None:
            return key
    raise TypeError(
        f"a {type(container).__name__} is asked for a key while tracing, and found "
        f"{describe(unknown)}, whose value only the run knows; write x == a or x == b, or keep the "
        "values in a T.alloc_local array"
    )


def members_of_set(members: Iterable[Any]) -> set[Any]:
    """Return the set of members.

    Raises
    ------
    TypeError
        If only the run knows whether two of them are equal.
    """
    found: set[Any] = set()
    for member in members:
        found.add(key_of(found, member, is_new=True))
    return found


__all__ = ["CONTAINS", "SEARCHED", "contains", "key_of", "members_of_set", "searched"]
