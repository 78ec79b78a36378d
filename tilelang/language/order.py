"""Hooks of the order of evaluation, which is Python's: operands from left to right.

An operand that reads memory is an expression until a statement uses it. A macro that is called
for an operand further right emits statements, so what stands to its left is bound to variables
first (`Tracer.evaluate_pending`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, tirx

from tilelang.language.arithmetic import binary, unary
from tilelang.language.comparisons import compare, identity
from tilelang.language.dtypes import dtype
from tilelang.language.effects import has_effect, reads_memory
from tilelang.language.python_functions import PythonFunction
from tilelang.language.scalars import is_number, is_scalar_expr
from tilelang.language.tracer import Tracer

# The functions of these modules take numbers, so that an element of a buffer is its value; to
# others, such as T.copy, it may be the place where a tile starts.
_SCALAR_MODULES = frozenset(
    f"tilelang.language.{name}" for name in ("bits", "elementwise", "math_ops", "precise_math")
)

_NO_NUMBER = ("void", "handle")


def _reads_nothing(value: Any) -> bool:
    """Whether a side of an operator is a number whenever it is evaluated."""
    return (is_number(value) or is_scalar_expr(value)) and not reads_memory(value)


def is_of_numbers(function: Any) -> bool:
    """Whether a function takes numbers, and no places of buffers."""
    return (
        isinstance(function, dtype | PythonFunction | OfOperands)
        or getattr(function, "__module__", None) in _SCALAR_MODULES
    )


class OfOperands:
    """A function of scalars, on operands that are evaluated if they do something."""

    def __init__(self, function: Callable[..., Any], operand: Callable[[Any], Any]):
        self._function = function
        self._operand = operand

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the operands and call the function."""
        return self._function(
            *map(self._operand, args), **{k: self._operand(v) for k, v in kwargs.items()}
        )


class OrderHooks:
    """Hooks of what has several operands, of which one may emit statements."""

    def __init__(self, tracer: Tracer):
        self.tracer = tracer

    def in_order(self, *operands: Callable[[], Any]) -> list[Any]:
        """Return the values that the operands have when Python evaluates them."""
        return self._in_order(operands, lambda value: False)

    def pair(self, left: Callable[[], Any], right: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the same of the sides of an operator. What the left one does stays an expression
        if the right one neither reads nor does anything: a ``while`` evaluates its condition in
        each iteration, and a statement in front of the loop would run once."""
        with self.tracer.pending() as values:
            values[0] = left()
            if has_effect(values[0]):
                self._evaluate_others(values)
            value = right()
            if has_effect(value):
                self.tracer.evaluate_pending()
            elif has_effect(values[0]) and not _reads_nothing(value):
                values[0] = self.tracer.evaluated(values[0])
        return values[0], value

    def _evaluate_others(self, values: dict[int, Any]) -> None:
        """Evaluate what stands to the left of an operator whose left side is in ``values``."""
        side = values.pop(0)
        self.tracer.evaluate_pending()
        values[0] = side

    def _in_order(
        self, operands: Sequence[Callable[[], Any]], is_place: Callable[[Any], bool]
    ) -> list[Any]:
        places: dict[int, Any] = {}
        with self.tracer.pending() as values:
            for i, operand in enumerate(operands):
                value = operand()
                if has_effect(value):
                    self.tracer.evaluate_pending()
                    if i + 1 < len(operands):
                        value = self._now(value, is_place(value))
                (places if is_place(value) else values)[i] = value
        return [places.get(i, values.get(i)) for i in range(len(operands))]

    def _now(self, value: Any, is_place: bool) -> Any:
        """Return an operand that has been evaluated; of a place, such as ``A[T.shfl_xor(i, 1)]``,
        the indices are."""
        if not is_place:
            return self.tracer.evaluated(value)
        return tirx.BufferLoad(value.source, [self.tracer.evaluated(i) for i in value.indices])

    def members(self, stars: Sequence[bool], *operands: Callable[[], Any]) -> list[Any]:
        """Return the same of operands of which those with a star are sequences of several."""
        values = zip(stars, self.in_order(*operands), strict=True)
        return [member for star, value in values for member in (value if star else (value,))]

    def operand(self, value: Any) -> Any:
        """Return what an operator or a function of scalars computes with. A call that does
        something is evaluated now: ``atomic * 0`` and a branch without statements would lose it.
        Where the program decides whether, or how often, it is evaluated, it stays where it is."""
        is_number = (
            type(value) is ir.Call and getattr(value.ty, "dtype", "handle") not in _NO_NUMBER
        )
        if not is_number or not has_effect(value):
            return value
        if self.tracer.is_conditional:
            self.tracer.held.append(value)
            return value
        self.tracer.evaluate_pending()
        return self.tracer.evaluated(value)

    def operate(self, name: str, left: Callable[[], Any], right: Callable[[], Any]) -> Any:
        """Return ``left op right``."""
        return binary(name, *self.pair(left, right))

    binary = staticmethod(binary)
    unary = staticmethod(unary)
    compare = staticmethod(compare)
    identity = staticmethod(identity)

    def call(
        self, function: Any, names: Sequence[str | None], *arguments: Callable[[], Any]
    ) -> Any:
        """Return ``function(*arguments)``; ``names`` has the name of each keyword, None for other
        arguments, ``*`` and ``**`` for a sequence and a mapping of several."""
        of_numbers = is_of_numbers(function)
        values = self._in_order(
            arguments, lambda value: isinstance(value, ir.TensorLoad) and not of_numbers
        )
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            if name is None:
                positional.append(value)
            elif name == "*":
                positional += value
            else:
                keywords.update(value if name == "**" else {name: value})
        return function(*positional, **keywords)

    def conditional(self, operand: Callable[[], Any], what: str) -> Any:
        """Return an operand that the program may have to skip, so that it must not emit statements
        that do something.

        Raises
        ------
        NotImplementedError
            If it does.
        """
        before = self.tracer.statements()
        with self.tracer.conditional(what) as check:
            value = operand()
            check(value)
        for statement in self.tracer.statements()[len(before) :]:
            if not isinstance(statement, tirx.Bind) or has_effect(statement.value):
                raise NotImplementedError(
                    f"{what} decides whether this operand is evaluated, and it has statements of "
                    "its own (a macro's); call it in a statement before, or under `if`"
                )
        return value
