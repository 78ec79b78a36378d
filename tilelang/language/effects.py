"""What evaluating an expression does besides computing a value."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm_ffi import structural_walk

from tilelang.language.scalars import as_expr, is_scalar_expr

# TVM's kinds of effect: an annotation, a pure function; then one that reads what may change.
_PURE = (0, 1)
_READS = (*_PURE, 2)


def reads_memory(value: Any) -> bool:
    """Whether ``value`` is a scalar expression that may give two results if evaluated twice."""
    if not is_scalar_expr(value):
        return False
    value = as_expr(value)
    return _contains(value, ir.TensorLoad) or _calls_more_than(value, _PURE)


def has_effect(value: Any) -> bool:
    """Whether ``value`` is a scalar expression whose evaluation may change what another reads."""
    return is_scalar_expr(value) and _calls_more_than(as_expr(value), _READS)


def has_call(value: Any, call: ir.Call) -> bool:
    """Whether ``call`` is a part of ``value``."""
    calls: list[ir.Call] = []
    if is_scalar_expr(value):
        structural_walk(as_expr(value), [(ir.Call, calls.append)])
    return any(call.same_as(other) for other in calls)


def _contains(value: ir.Expr, kind: type) -> bool:
    found: list[Any] = []
    structural_walk(value, [(kind, found.append)])
    return bool(found)


def _calls_more_than(value: ir.Expr, kinds: tuple[int, ...]) -> bool:
    calls: list[ir.Call] = []
    structural_walk(value, [(ir.Call, calls.append)])
    return not all(
        isinstance(call.op, ir.Op) and call.op.get_attr("TCallEffectKind") in kinds
        for call in calls
    )
