"""What an ``assert`` asks of the sizes of a call: comparisons that the call checks before it runs
anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars

from tilelang.language.effects import reads_memory


class Comparison(NamedTuple):
    """``left name right``, two integers and an operator of the launch plan."""

    left: Any
    name: str
    right: Any


_NAMES: dict[type, tuple[str, str]] = {
    tirx.EQ: ("==", "!="),
    tirx.NE: ("!=", "=="),
    tirx.LT: ("<", ">="),
    tirx.LE: ("<=", ">"),
    tirx.GT: (">", "<="),
    tirx.GE: (">=", "<"),
}
"""The operator of a node, and of its negation."""


def comparisons(condition: ir.Expr, is_of_kernel: Callable[[Any], bool]) -> list[Comparison] | None:
    """Return the comparisons that are all of ``condition``, None where it is no conjunction of
    comparisons of integers that the call knows."""
    if reads_memory(condition) or any(is_of_kernel(v) for v in undefined_vars(condition)):
        return None
    return _parts(condition, negated=False)


def _parts(condition: ir.Expr, negated: bool) -> list[Comparison] | None:
    if isinstance(condition, tirx.Not):
        return _parts(condition.a, not negated)
    if isinstance(condition, tirx.Or if negated else tirx.And):
        left, right = _parts(condition.a, negated), _parts(condition.b, negated)
        return None if left is None or right is None else [*left, *right]
    names = _NAMES.get(type(condition))
    if names is None or not str(condition.a.ty.dtype).startswith(("int", "uint")):
        return None
    name, a, b = names[negated], condition.a, condition.b
    return [
        Comparison(b, {">": "<", ">=": "<="}[name], a) if ">" in name else Comparison(a, name, b)
    ]
