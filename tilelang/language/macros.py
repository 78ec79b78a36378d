"""``T.macro``: functions that are inlined where a traced function calls them."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir, tirx

from tilelang.language.hooks import call_traced
from tilelang.language.scalars import as_expr, describe, is_scalar_expr
from tilelang.language.source import resolve_annotation, traced_code
from tilelang.language.tracer import Reference, Tracer, current_tracer


class Ref:
    """Annotation of a macro's parameter that stands for a place: assigning to it stores there."""


class Macro:
    """A function that is traced anew at each call, into the program of its caller."""

    def __init__(self, function: Callable[..., Any], local: Mapping[str, Any] | None = None):
        traced_code(function)  # reports what it cannot trace where it is defined
        self._function: Any = function
        self._signature = inspect.signature(function)
        self._references = {
            name
            for name, annotation in getattr(function, "__annotations__", {}).items()
            if name != "return" and self._is_reference(annotation, local or {})
        }
        functools.update_wrapper(self, function)

    def _is_reference(self, annotation: Any, local: Mapping[str, Any]) -> bool:
        annotation = resolve_annotation(annotation, self._function, local)
        if annotation is ir.Var:
            warnings.warn(
                "T.Var as a macro's annotation is deprecated, use T.Ref",
                DeprecationWarning,
                stacklevel=4,
            )
        return annotation is Ref or annotation is ir.Var

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = current_tracer(f"the macro {self._function.__name__}")
        arguments = self._signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        for name, value in arguments.arguments.items():
            if name in self._references:
                arguments.arguments[name] = self._reference(tracer, name, value)
            else:
                arguments.arguments[name] = _evaluated(tracer, name, value)
        span = tracer.span
        result = call_traced(tracer, self._function, arguments)
        tracer.at(span)
        return result

    def _reference(self, tracer: Tracer, name: str, value: Any) -> Reference:
        if isinstance(value, ir.TensorRegion):
            return Reference(value)
        if not isinstance(value, ir.TensorLoad):
            raise ValueError(
                f"parameter {name} of the macro {self._function.__name__} is a T.Ref and found "
                f"{describe(value)}, wanted a T.alloc_var, an element buf[i] or a region"
            )
        indices = [_evaluated(tracer, f"{name}_index", i) for i in value.indices]
        return Reference(tirx.BufferLoad(value.source, indices))


def _evaluated(tracer: Tracer, name: str, value: Any) -> Any:
    """Bind an expression to a variable, so that the macro does not evaluate it at each use."""
    value = as_expr(value)
    if not is_scalar_expr(value) or isinstance(value, ir.Var | ir.Constant) or not tracer.kernels:
        return value
    return tracer.let(value, name)


def macro(function: Callable[..., Any]) -> Macro:
    """Make a function that is inlined into the traced functions that call it.

    It takes and returns any values, Python's and the program's. A scalar expression is evaluated
    once, at the call. A parameter annotated ``T.Ref`` is a place (a ``T.alloc_var``, an element or
    a region); assigning to it stores there.

    Raises
    ------
    JITNoBuilderError
        At a call outside of a traced function.
    ValueError
        At a call, if the argument for a ``T.Ref`` is not a place.
    NotImplementedError
        If it returns in a loop or a branch of the program.

    Example
    -------
    ``@T.macro`` above ``def relu(x): return T.max(x, 0)``
    """
    return Macro(function, sys._getframe(1).f_locals)
