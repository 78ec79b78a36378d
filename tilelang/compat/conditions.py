"""``T.And``, ``T.Or`` and ``T.Not``: TVM's names of Python's ``and``, ``or`` and ``not``."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def And(a: Any, b: Any) -> Any:
    """Return ``a and b`` of two scalars, a bool; both are evaluated.

    Raises
    ------
    TypeError
        If one is no scalar.

    Example
    -------
    ``if T.And(i < n, mask[i] != 0): ...``
    """
    conditions = _conditions("T.And", a, b)
    return all(conditions) if _known(conditions) else tirx.And(*conditions)


def Or(a: Any, b: Any) -> Any:
    """Return ``a or b`` of two scalars, a bool; both are evaluated.

    Raises
    ------
    TypeError
        If one is no scalar.

    Example
    -------
    ``if T.Or(i == 0, i == n - 1): ...``
    """
    conditions = _conditions("T.Or", a, b)
    return any(conditions) if _known(conditions) else tirx.Or(*conditions)


def Not(a: Any) -> Any:
    """Return ``not a`` of a scalar, a bool.

    Raises
    ------
    TypeError
        If it is no scalar.

    Example
    -------
    ``if T.Not(mask[i]): ...``
    """
    conditions = _conditions("T.Not", a)
    return not conditions[0] if _known(conditions) else tirx.Not(*conditions)


def _conditions(name: str, *values: Any) -> list[Any]:
    """Return whether each scalar is not zero: a Python bool or an expression."""
    from tilelang.language.scalars import unwrap  # whose package needs this module

    return [_condition(name, unwrap(value)) for value in values]


def _condition(name: str, value: Any) -> Any:
    from tilelang.language.scalars import describe, is_number, is_scalar_expr

    if is_number(value) and not isinstance(value, complex):
        return bool(value)
    if not is_scalar_expr(value) or value.ty.dtype == "handle":
        raise TypeError(f"{name} found {describe(value)}, wanted a scalar, such as buf[i] != 0")
    dtype = value.ty.dtype
    return value if dtype == "bool" else value != tirx.const(0, dtype)


def _known(conditions: list[Any]) -> bool:
    return all(isinstance(condition, bool) for condition in conditions)
