"""``T.prim_func``: run a function once and take down the program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, overload

from tvm import tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype
from tilelang.language.hooks import call_traced
from tilelang.language.scalars import describe
from tilelang.language.source import enclosing_names, resolve_annotation, traced_code
from tilelang.language.tensors import Tensor
from tilelang.language.tracer import Tracer, add_location


@overload
def prim_func(func: Callable[..., Any]) -> tirx.PrimFunc: ...
@overload
def prim_func(func: None = None) -> Callable[[Callable[..., Any]], tirx.PrimFunc]: ...
def prim_func(func: Any = None) -> Any:
    """Trace a Python function into a program, a ``tirx.PrimFunc`` of the function's name.

    The function runs once. Each parameter is annotated with a tensor (``T.Tensor(shape, dtype)``)
    or a data type (``T.int32``, a scalar). Python values of enclosing scopes are constants of the
    program.

    Raises
    ------
    ValueError
        If a parameter has no annotation.
    TypeError
        If a parameter is positional-only, variadic, has a default, or its annotation is something
        else.
    NotImplementedError
        If it contains a statement that has no meaning in a kernel.
    OSError
        If its source cannot be read.

    Errors raised while it runs name the file, line and column of the kernel.

    Example
    -------
    ``@T.prim_func`` above ``def copy(A: T.Tensor((128,), T.float16), B: T.Tensor((128,),
    T.float16)): ...``
    """
    local = enclosing_names(sys._getframe(1))
    if func is None:
        return lambda function: _trace(function, local)
    return _trace(func, local)


def _trace(function: Any, local: Mapping[str, Any]) -> tirx.PrimFunc:
    code = traced_code(function)
    try:
        parameters = _parameters(function, local)
    except Exception as error:
        add_location(error, code.definition)
        raise
    with Tracer(code.definition) as tracer:
        with tir_builder.prim_func(s_tir=True):
            tir_builder.func_name(function.__name__)
            arguments = {
                name: tir_builder.arg(
                    name,
                    kind.as_buffer() if isinstance(kind, Tensor) else tirx.Var(name, str(kind)),
                )
                for name, kind in parameters.items()
            }
            bound = inspect.signature(function).bind(**arguments)
            call_traced(tracer, function, bound, result_allowed=False)
            tracer.finish()
            tracer.at(code.definition)
        return tracer.builder.get()


def _parameters(function: Any, local: Mapping[str, Any]) -> dict[str, Tensor | dtype]:
    parameters: dict[str, Tensor | dtype] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"parameter {name} of {function.__name__} is {parameter.kind.description}, "
                "wanted plain parameters only"
            )
        if parameter.annotation is parameter.empty:
            raise ValueError(
                f"parameter {name} of {function.__name__} has no annotation, wanted one such as "
                f"{name}: T.Tensor((M, N), T.float16) or {name}: T.int32"
            )
        if parameter.default is not parameter.empty:
            raise TypeError(
                f"parameter {name} of {function.__name__} has a default value, which a program "
                "cannot have; make it a variable of the enclosing scope"
            )
        parameters[name] = _kind(function, name, parameter.annotation, local)
    return parameters


def _kind(function: Any, name: str, annotation: Any, local: Mapping[str, Any]) -> Tensor | dtype:
    kind = resolve_annotation(annotation, function, local)
    if kind in (int, float, bool):
        kind = dtype(kind)
    if isinstance(kind, Tensor | dtype):
        return kind
    raise TypeError(
        f"parameter {name} of {function.__name__} is annotated with {describe(kind)}, "
        "wanted T.Tensor(shape, dtype) or a data type such as T.int32"
    )
