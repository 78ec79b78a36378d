"""Where the symbols of a launch plan get their values from: the sizes and scalars of a call.

A symbol that is a dimension, a stride or a scalar by itself has the value of the first such place.
One that only stands in expressions (``n * 2``, ``m // 4``) is *solved* for: in an expression of
which everything else is known, and which is affine in it. What a quotient leaves open is taken for
a multiple of the divisor. All places are compared with their expressions afterwards, so that an
extent of 5 for ``n * 2`` is found there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Expr = int | tuple[Any, ...]
"""An int, ``("var", name)`` or ``(operator, a, b)``."""

OPERATORS = ("+", "-", "*", "//", "%", "min", "max", "ceildiv")


def variables(expr: Expr) -> Iterator[str]:
    """Names of the variables in `expr`, with repetitions."""
    if isinstance(expr, int):
        return
    if expr[0] == "var":
        yield expr[1]
    else:
        yield from variables(expr[1])
        yield from variables(expr[2])


def evaluate(
    expr: Expr,
    values: Mapping[str, Any],
    smaller: Callable[[Any, Any], Any] = min,
    larger: Callable[[Any, Any], Any] = max,
) -> Any:
    """The value of `expr`; `smaller` and `larger` compare values that are no ints, such as torch's
    symbolic ones. Raises `ZeroDivisionError` for a division by zero.

    Example: ``evaluate(("//", ("var", "n"), 2), {"n": 5}) == 2``
    """
    if isinstance(expr, int):
        return expr
    if expr[0] == "var":
        return values[expr[1]]
    a, b = (evaluate(side, values, smaller, larger) for side in expr[1:])
    if expr[0] in ("//", "%", "ceildiv"):
        quotient = -(-a // b) if expr[0] == "ceildiv" else a // b
        return a % b if expr[0] == "%" else quotient
    if expr[0] in ("min", "max"):
        return smaller(a, b) if expr[0] == "min" else larger(a, b)
    return {"+": a + b, "-": a - b, "*": a * b}[expr[0]]


def solved(expr: Expr, unknown: str, value: Expr) -> Expr | None:
    """What `unknown` is if `expr` is `value`, None where `expr` does not tell.

    Example: ``solved(("*", ("var", "n"), 2), "n", 6) == ("//", 6, 2)``
    """
    if isinstance(expr, int):
        return None
    if expr[0] == "var":
        return value if expr[1] == unknown else None
    operator, a, b = expr
    sides = [unknown in variables(side) for side in (a, b)]
    if all(sides):
        factor, rest = _affine(expr, unknown) or (0, 0)
        if factor == 0:
            return None
        left: Expr = ("-", value, rest) if factor > 0 else ("-", rest, value)
        return ("//", left, abs(factor))
    inner, other = (a, b) if sides[0] else (b, a)
    if operator == "+":
        return solved(inner, unknown, ("-", value, other))
    if operator == "-":
        return solved(inner, unknown, ("+", value, b) if sides[0] else ("-", a, value))
    if operator == "*":
        return solved(inner, unknown, ("//", value, other))
    if operator in ("//", "ceildiv") and sides[0]:
        return solved(inner, unknown, ("*", value, other))
    return None


def _affine(expr: Expr, unknown: str) -> tuple[int, Expr] | None:
    """`expr` as a constant times `unknown` and what is added to it."""
    if isinstance(expr, int) or unknown not in variables(expr):
        return 0, expr
    if expr[0] == "var":
        return 1, 0
    operator, a, b = expr
    left, right = _affine(a, unknown), _affine(b, unknown)
    if left is None or right is None or operator not in ("+", "-", "*"):
        return None
    if operator == "*":
        if isinstance(a, int):
            return a * right[0], ("*", a, right[1])
        return (left[0] * b, ("*", left[1], b)) if isinstance(b, int) else None
    sign = 1 if operator == "+" else -1
    return left[0] + sign * right[0], (operator, left[1], right[1])


@dataclass(frozen=True)
class Definition:
    """Where a variable gets its value: a dimension, a stride, the value, or the offset from the
    multiple of 16 bytes in front of its address, of input `param`."""

    param: int
    kind: Literal["shape", "stride", "scalar", "offset"]
    dim: int = 0


@dataclass(frozen=True)
class Sources:
    """The places that define variables, and what is computed from these, in this order. A place
    that only serves to compute others defines one that is called ``A.shape[0]``."""

    definitions: dict[str, Definition]
    solutions: dict[str, Expr]

    @property
    def known(self) -> set[str]:
        """Names of all variables that have a value."""
        return {*self.definitions, *self.solutions}


Place = tuple[Definition, Expr, str]
"""A place, what it is in symbols, and its name."""


def find_sources(scalars: Mapping[str, Definition], places: list[Place]) -> Sources:
    """The sources of all variables that scalars of a call and `places`, in this order, determine.

    Example: of ``n * 2`` alone the definition is of ``A.shape[0]``, and ``n`` is a solution.
    """
    definitions = dict(scalars)
    for place, expr, _ in places:
        if isinstance(expr, tuple) and expr[0] == "var":
            definitions.setdefault(expr[1], place)
    solutions: dict[str, Expr] = {}
    again = True
    while again:
        again = False
        for place, expr, name in places:
            unknown = {*variables(expr)} - {*definitions, *solutions}
            if len(unknown) != 1:
                continue
            (variable,) = unknown
            found = solved(expr, variable, ("var", name))
            if found is not None:
                definitions[name], solutions[variable] = place, found
                again = True
    return Sources(definitions, solutions)
