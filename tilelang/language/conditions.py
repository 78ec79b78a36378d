"""Hooks of conditions: decided by Python where they can be, expressions where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tvm import ir, tirx

from tilelang.language.comparisons import compare, identity, negated
from tilelang.language.containers import contains
from tilelang.language.effects import has_effect
from tilelang.language.math_ops import choose
from tilelang.language.order import OrderHooks
from tilelang.language.scalars import describe, is_buffer, is_scalar_expr, unwrap
from tilelang.language.tracer import Scope, Tracer, read_members

_CONSTANT_CONDITIONS = (bool, int, float, str, type(None))
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: partial(compare, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: partial(identity, name) for name in ("is_", "is_not")},
    "in_": lambda a, b: contains(b, a),
    "not_in": lambda a, b: not contains(b, a),
}


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (is_scalar_expr(value) and value.ty.dtype == "bool")


def _counted(known: bool, other: Any, value: Any) -> Any:
    """Return a value beside ``other``; of a bool that is known to be ``known``, the number."""
    if not _is_bool(value):
        return value
    is_large = isinstance(other, int) and not -(2**31) <= other < 2**31
    return tirx.const(int(known), "int64" if is_large else "int32")


class ConditionHooks(OrderHooks):
    """Hooks of ``and``, ``or``, ``not``, comparisons and the conditional expression."""

    def __init__(self, tracer: Tracer):
        super().__init__(tracer)
        # The scope that the function's body is in.
        self.base: Scope = tracer.scope

    def condition(self, value: Any) -> Any:
        """Return a condition as a Python bool or as an IR expression of type bool."""
        value = unwrap(value)
        if is_buffer(value) or isinstance(value, ir.TensorRegion):
            raise TypeError(
                f"the condition is {describe(value)}; wanted one element, such as buf[i] != 0"
            )
        if is_scalar_expr(value):
            if value.ty.dtype == "bool":
                return value
            return unwrap(value != tirx.const(0, value.ty.dtype))
        if isinstance(value, ir.Expr):
            raise TypeError(f"the condition is {describe(value)}; wanted a number")
        if not isinstance(value, _CONSTANT_CONDITIONS):
            read_members(value)
            self.tracer.warn(f"the condition is {describe(value)}, which is decided while tracing")
        return bool(value)

    def python_bool(self, value: Any) -> bool:
        """Return the condition of a comprehension, which Python decides."""
        condition = self.condition(value)
        if isinstance(condition, ir.Expr):
            raise TypeError(
                f"the condition of a comprehension is {describe(condition)}; "
                "wanted a Python value, or a loop with `if`"
            )
        return bool(condition)

    def negation(self, value: Any) -> Any:
        """Return ``not value``."""
        condition = self.condition(value)
        return negated(condition)

    def all_of(self, first: Any, *others: Callable[[], Any]) -> Any:
        """Return the truth of ``first and others[0]() and ...``."""
        return self._connect(first, others, self._both_true, neutral=True)

    def any_of(self, first: Any, *others: Callable[[], Any]) -> Any:
        """Return the truth of ``first or others[0]() or ...``."""
        return self._connect(first, others, self._either_true, neutral=False)

    def first_false(self, first: Any, *others: Callable[[], Any]) -> Any:
        """Return ``first and others[0]() and ...``: an operand, as in Python."""
        return self._connect(first, others, self._second_if_true, neutral=True)

    def first_true(self, first: Any, *others: Callable[[], Any]) -> Any:
        """Return ``first or others[0]() or ...``: an operand, as in Python."""
        return self._connect(first, others, self._second_if_false, neutral=False)

    def _both_true(self, value: Any, other: Callable[[], Any]) -> Any:
        left, right = self.condition(value), self.condition(self.conditional(other, "`and`"))
        if isinstance(right, ir.Expr):
            return tirx.And(left, right)
        return left if right else False

    def _either_true(self, value: Any, other: Callable[[], Any]) -> Any:
        left, right = self.condition(value), self.condition(self.conditional(other, "`or`"))
        if isinstance(right, ir.Expr):
            return tirx.Or(left, right)
        return True if right else left

    def _second_if_true(self, value: Any, other: Callable[[], Any]) -> Any:
        value, other = self._operands(value, other, "`and`")
        if _is_bool(value) and _is_bool(other):
            return self._both_true(value, lambda: other)
        return choose(self.condition(value), other, _counted(False, other, value))

    def _second_if_false(self, value: Any, other: Callable[[], Any]) -> Any:
        value, other = self._operands(value, other, "`or`")
        if _is_bool(value) and _is_bool(other):
            return self._either_true(value, lambda: other)
        return choose(self.condition(value), _counted(True, other, value), other)

    def _operands(self, value: Any, other: Callable[[], Any], name: str) -> tuple[Any, Any]:
        """Return both operands; the first one stands in the result twice."""
        self.condition(value)  # wanted a scalar
        if has_effect(value):
            value = self.tracer.evaluated(value)
        return value, unwrap(self.conditional(other, name))

    def _connect(
        self,
        value: Any,
        others: Sequence[Callable[[], Any]],
        connect: Callable[[Any, Callable[[], Any]], Any],
        neutral: bool,
    ) -> Any:
        for other in others:
            value = unwrap(value)
            if isinstance(value, ir.Expr):
                value = connect(value, other)
            elif bool(value) is neutral:
                value = other()
            else:
                return value
        return value

    def chain(self, left: Any, names: Sequence[str], *others: Callable[[], Any]) -> Any:
        """Return ``left op others[0]() op ...``, each operand evaluated once."""
        result: Any = True
        for i, (name, other) in enumerate(zip(names, others, strict=True)):
            if isinstance(unwrap(result), ir.Expr):
                other = partial(self.conditional, other, "the comparison before")
            left, right = self.pair(partial(unwrap, left), other)
            if i + 1 < len(names) and has_effect(right):
                right = self.tracer.evaluated(right)
            test = partial(_COMPARISONS[name], left, right)
            result = self.all_of(result, test)
            if result is False:
                return False
            left = right
        return result

    def ternary(self, test: Any, body: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        """Return ``body() if test else orelse()``."""
        condition = self.condition(test)
        if isinstance(condition, ir.Expr):
            sides = (self.conditional(side, "`if`") for side in (body, orelse))
            return choose(condition, *sides)
        return body() if condition else orelse()
