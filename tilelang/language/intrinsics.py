"""Calls of functions that are not tile operators."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype
from tilelang.language.scalars import as_expr, describe, is_buffer
from tilelang.language.tracer import current_tracer


def evaluate(value: Any) -> None:
    """Add an expression to the program as a statement, for its effect.

    Raises
    ------
    TypeError
        If ``value`` is not an expression.

    Example
    -------
    ``T.evaluate(T.call_extern("void", "trace", x))``
    """
    current_tracer("T.evaluate")
    value = as_expr(value)
    if not isinstance(value, ir.Expr | int) or is_buffer(value):
        raise TypeError(f"T.evaluate found {describe(value)}, wanted a call or another expression")
    tir_builder.evaluate(value)


def call_extern(return_type: Any, name: str, *args: Any) -> ir.Call:
    """Return a call of a function of the target's language; ``return_type`` may be ``"void"`` or
    ``"handle"``.

    Example
    -------
    ``T.call_extern("float32", "__expf", x)``
    """
    return tirx.call_extern(_result(return_type), name, *args)


def call_intrin(return_type: Any, name: str, *args: Any) -> ir.Call:
    """Return a call of the operator ``name`` of TVM's registry.

    Example
    -------
    ``T.call_intrin("float32", "tirx.exp2", x)``
    """
    return tirx.call_intrin(_result(return_type), name, *args)


def _result(return_type: Any) -> Any:
    return return_type if return_type in ("void", "handle") else str(dtype(return_type))


def address_of(value: Any) -> ir.Call:
    """Return a pointer to an element, or to the first element of a buffer.

    Raises
    ------
    TypeError
        If ``value`` is neither.

    Example
    -------
    ``T.call_extern("void", "prefetch", T.address_of(A[i, 0]))``
    """
    if is_buffer(value):
        value = tirx.BufferLoad(value, [0] * len(value.shape))
    if not isinstance(value, ir.TensorLoad):
        raise TypeError(
            f"T.address_of found {describe(value)}, wanted a buffer or an element of one"
        )
    return tirx.address_of(value)
