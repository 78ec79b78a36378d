"""Comparisons of Python's containers that have scalars of the program among their members.

Python compares members one by one and asks whether each comparison is true. TVM answers for the
objects: ``[x] == [3]`` would be False whatever ``x`` is. So sequences and dataclasses are compared
here, to a condition of the program. What only Python's code can compare (a dict, a class with an
``__eq__`` that asks) goes through ``asked``: a question about a value of the program is an error
there (plain_functions.py). ``searched`` and ``contains`` look for objects; a number that is looked
for among values of the program is an error, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.language.scalars import describe, is_buffer, is_of_program, is_scalar_expr, unwrap

Compare = Callable[[str, Any, Any], Any]


def asked(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Compare by an operator of Python's, which asks whether members are equal."""
    return function(left, right)


def searched(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a list's method that looks for an object, or for a number among numbers."""
    return method(*arguments)


def contains(container: Any, value: Any) -> bool:
    """Return ``value in container``: whether the object is in it, or an equal number in numbers."""
    return value in container


ASKED, SEARCHED, CONTAINS = asked.__code__, searched.__code__, contains.__code__
"""Whose questions are those of the program that is traced."""


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
    if _is_of_program(key):
        unknown, others = key, [k for k in container if isinstance(k, bool | int | float | tuple)]
        is_name = isinstance(key, ir.Var)
        if is_new and is_name and not others:
            return key
    else:
        is_number = isinstance(key, bool | int | float | tuple)
        unknown = next((k for k in container if is_number and _is_of_program(k)), None)
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


def compare_members(name: str, left: Any, right: Any, compare: Compare) -> Any:
    """Return ``left op right`` by their members, with ``compare`` for each pair of these, or
    NotImplemented where Python knows how."""
    ours, theirs = _members(left), _members(right)
    if ours is None or theirs is None or not _are_alike(left, right):
        return NotImplemented
    is_shape = isinstance(left, tvm_ffi.Array) or isinstance(right, tvm_ffi.Array)
    if not is_shape and not any(map(_is_of_program, (*ours, *theirs))):
        return NotImplemented
    if name in ("eq", "ne"):
        equal = _equal(ours, theirs, compare)
        return equal if name == "eq" else negated(equal)
    if dataclasses.is_dataclass(left):
        return NotImplemented
    result: Any = compare(name, len(ours), len(theirs))
    strict = name[0] + "t"
    for a, b in reversed([*zip(ours, theirs, strict=False)]):
        tie = _all(_pair("eq", a, b, compare), result)
        result = _any(unwrap(_pair(strict, a, b, compare)), tie)
    return result


def _members(value: Any) -> Sequence[Any] | None:
    """Return what is compared of a value; None of one that Python compares otherwise."""
    kind = type(value)
    if isinstance(value, tvm_ffi.Array) or (
        isinstance(value, tuple | list) and kind.__eq__ in (tuple.__eq__, list.__eq__)
    ):
        return list(value)
    made = getattr(kind.__eq__, "__code__", None)
    if not dataclasses.is_dataclass(value) or made is None or made.co_filename != "<string>":
        return None  # the `==` is another one than a dataclass has by itself
    return [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]


def _are_alike(left: Any, right: Any) -> bool:
    """Whether Python compares members of two containers: a list never equals a tuple."""
    if dataclasses.is_dataclass(left) or dataclasses.is_dataclass(right):
        return type(left) is type(right)
    is_shape = isinstance(left, tvm_ffi.Array) or isinstance(right, tvm_ffi.Array)
    return is_shape or isinstance(left, tuple) == isinstance(right, tuple)


def _is_of_program(value: Any) -> bool:
    if is_of_program(value):
        return is_scalar_expr(unwrap(value))
    members = _members(value)
    return members is not None and any(map(_is_of_program, members))


def _equal(ours: Sequence[Any], theirs: Sequence[Any], compare: Compare) -> Any:
    if len(ours) != len(theirs):
        return False
    result: Any = True
    for a, b in zip(ours, theirs, strict=True):
        result = _all(result, _pair("eq", a, b, compare))
        if result is False:
            return False
    return result


def _pair(name: str, a: Any, b: Any, compare: Compare) -> Any:
    """Return a comparison of two members; one object equals itself, as among Python's members."""
    if name == "eq" and (a is b or (isinstance(a, ir.Expr) and a.same_as(b))):
        return True
    if name == "eq" and (is_buffer(a) or is_buffer(b)):
        return False
    return unwrap(compare(name, a, b))


def _all(a: Any, b: Any) -> Any:
    if isinstance(a, ir.Expr) and isinstance(b, ir.Expr):
        return tirx.And(a, b)
    if isinstance(a, ir.Expr):
        return a if b else False
    return b if a else False


def _any(a: Any, b: Any) -> Any:
    if isinstance(a, ir.Expr) and isinstance(b, ir.Expr):
        return tirx.Or(a, b)
    if isinstance(a, ir.Expr):
        return True if b else a
    return True if a else b


def negated(value: Any) -> Any:
    """Return the opposite of a condition, which Python knows or the run."""
    return tirx.Not(value) if isinstance(value, ir.Expr) else not value


__all__ = [
    "ASKED",
    "CONTAINS",
    "SEARCHED",
    "asked",
    "compare_members",
    "contains",
    "key_of",
    "members_of_set",
    "negated",
    "searched",
]
