"""Comparisons of traced code: ``compare`` is what rewritten code calls for ``==`` and its like.

Who decides, by what stands on the two sides:

* two scalars: the run, by an expression, or Python where both are its own numbers;
* two buffers or regions: whether they are one object;
* something of the program and another object (None, a text): the object's class;
* sequences and dataclasses with scalars of the program among their members: the run, member by
  member. Python would ask whether each comparison is true, and TVM answers for the objects:
  ``[x] == [3]`` would be False whatever ``x`` is;
* other objects: Python, through ``asked``. A class or a dict that asks there for the truth of a
  comparison which only the run knows is an error.

Code that is not traced has TVM's comparisons, of which plain_functions.py decides the truth.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.language import floats
from tilelang.language.arithmetic import as_operand, is_scalar, no_scalar, of_python
from tilelang.language.promotion import matched
from tilelang.language.scalars import describe, is_buffer, is_of_program, is_scalar_expr, unwrap
from tilelang.language.tracer import read_members

_COMPARE: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}


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
    of_program = is_of_program(left), is_of_program(right)
    if not any(of_program):
        read_members(left, right)
        by_members = _by_members(name, left, right)
        return _by_python(name, left, right) if by_members is NotImplemented else by_members
    if is_scalar(left) and is_scalar(right):
        left, right = matched(f"`{symbol}`", as_operand(symbol, left), as_operand(symbol, right))
        if floats.have_float(left, right):
            left, right = floats.in_one_type(left, right)
        return function(left, right)
    if name in ("eq", "ne") and not (is_scalar(left) or is_scalar(right)):
        return function(left, right)  # whether two buffers are one
    if name in ("eq", "ne") and not all(of_program):
        return _by_class(name, left, right)
    return of_python(symbol, function, left, right)


def identity(name: str, left: Any, right: Any) -> bool:
    """Return ``left is right``, or, by the name ``is_not``, ``left is not right``.

    Raises
    ------
    TypeError
        If one is a scalar of the program and the other one a number: ``(x > 0) is True`` would be
        False whatever ``x`` is.
    """
    for value, other in ((unwrap(left), right), (unwrap(right), left)):
        if isinstance(other, bool | int | float) and is_scalar_expr(value):
            raise TypeError(
                f"`is` asks which object it is while tracing, and found {describe(value)} "
                f"beside {other!r}; write == or !="
            )
    return (left is right) is (name == "is_")


def negated(value: Any) -> Any:
    """Return the opposite of a condition, which Python knows or the run."""
    return tirx.Not(value) if isinstance(value, ir.Expr) else not value


def asked(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Compare by an operator of Python's, which asks whether members are equal."""
    return function(left, right)


ASKED = asked.__code__
"""Whose questions are those of the program that is traced (plain_functions.py)."""


def _by_class(name: str, left: Any, right: Any) -> Any:
    """Compare something of the program with an object that is none of its numbers: None, a text."""
    other = right if is_of_program(left) else left
    if hasattr(other, "__array__") or (hasattr(other, "__float__") and not isinstance(other, type)):
        raise no_scalar(_COMPARE[name][0], other)  # a number or numbers of another library
    own = getattr(type(other), f"__{name}__")
    by_default = name == "ne" and own is object.__ne__
    if by_default:
        own = type(other).__eq__
    found = unwrap(own(other, left if other is right else right))
    if found is NotImplemented:
        return name == "ne"
    return negated(found) if by_default else found


def _by_python(name: str, left: Any, right: Any) -> Any:
    """Compare what is no scalar of the program, but may have some that its class compares."""
    if name == "ne" and type(left).__ne__ is type(right).__ne__ is object.__ne__:
        # Python asks for the truth of `==`, which a class may say by an expression.
        return negated(unwrap(asked(operator.eq, left, right)))
    return asked(_COMPARE[name][1], left, right)


def _by_members(name: str, left: Any, right: Any) -> Any:
    """Return ``left op right`` by their members, or NotImplemented where Python knows how."""
    ours, theirs = _members(left), _members(right)
    if ours is None or theirs is None or not _are_alike(left, right):
        return NotImplemented
    is_shape = isinstance(left, tvm_ffi.Array) or isinstance(right, tvm_ffi.Array)
    if not is_shape and not any(map(has_scalar, (*ours, *theirs))):
        return NotImplemented
    if name in ("eq", "ne"):
        equal = _equal(ours, theirs)
        return equal if name == "eq" else negated(equal)
    if dataclasses.is_dataclass(left):
        return NotImplemented
    result: Any = compare(name, len(ours), len(theirs))
    strict = name[0] + "t"
    for a, b in reversed([*zip(ours, theirs, strict=False)]):
        tie = _all(_pair("eq", a, b), result)
        result = _any(unwrap(_pair(strict, a, b)), tie)
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


def has_scalar(value: Any) -> bool:
    """Whether a value is a scalar that only the run knows, or has one among its members."""
    if is_of_program(value):
        return is_scalar_expr(unwrap(value))
    members = _members(value)
    return members is not None and any(map(has_scalar, members))


def _equal(ours: Sequence[Any], theirs: Sequence[Any]) -> Any:
    if len(ours) != len(theirs):
        return False
    result: Any = True
    for a, b in zip(ours, theirs, strict=True):
        result = _all(result, _pair("eq", a, b))
        if result is False:
            return False
    return result


def _pair(name: str, a: Any, b: Any) -> Any:
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


__all__ = ["ASKED", "asked", "compare", "has_scalar", "identity", "negated"]
