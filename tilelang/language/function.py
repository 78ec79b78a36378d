"""``T.prim_func``: run a function once and take down the program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, overload

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype
from tilelang.language.header import Header, Kind
from tilelang.language.hooks import Hooks, call_traced
from tilelang.language.pointers import ptr
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

    The function runs once. Each parameter is annotated with a tensor (``T.Tensor(shape, dtype)``),
    a data type (``T.int32``, a scalar) or ``T.ptr`` (an address). Python values of enclosing scopes
    are constants of the program. It may return tensors of ``T.empty``, which the call allocates.

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


def _refuse_call(program: tirx.PrimFunc, *arguments: Any) -> Any:
    """Say what a call of a program wants: TVM makes an expression of it, which no tensor is in."""
    name = program.attrs["global_symbol"] if "global_symbol" in (program.attrs or {}) else "it"
    raise TypeError(
        f"the program {name} was called with {len(arguments)} arguments, and is not compiled; "
        f"kernel = tilelang.compile({name}) makes a function of it, which takes tensors"
    )


# The class is TVM's; what its calls make, an ir.Call of the function, nothing here uses.
tirx.PrimFunc.__call__ = _refuse_call


def _refuse_iteration(value: ir.Expr) -> NoReturn:
    """Say what `list(A)` or `f(*A)` wants: Python would ask for A[0], A[1], .. without end."""
    raise TypeError(
        f"Python cannot iterate over {describe(value)}; wanted `for i in T.serial(n)` and an "
        "element of it each time"
    )


ir.Expr.__iter__ = _refuse_iteration


def _trace(function: Any, local: Mapping[str, Any]) -> tirx.PrimFunc:
    code = traced_code(function)
    try:
        parameters = _parameters(function, local)
    except Exception as error:
        add_location(error, code.definition)
        raise
    with Tracer(code.definition, Header(function.__name__, parameters)) as tracer:
        return trace_body(tracer, function, {n: _open(tracer, n, k) for n, k in parameters.items()})


def trace_body(
    tracer: Tracer,
    function: Any,
    values: Mapping[str, Any],
    hooks_of: Callable[..., Hooks] = Hooks,
) -> tirx.PrimFunc:
    """Run ``function`` in ``tracer`` with ``values`` for its parameters; return the program."""
    start = tracer.span
    with tir_builder.prim_func(s_tir=True):
        tir_builder.func_name(function.__name__)
        bound = inspect.signature(function).bind(**values)
        tracer.header.returns(call_traced(tracer, function, bound, hooks_of))
        tracer.finish()
        tracer.at(start)
    return tracer.header.complete(tracer.builder.get())


def _open(tracer: Tracer, name: str, kind: Kind) -> Any:
    """Declare a parameter; a size of the run that has no name gets one."""
    return tracer.header.add(name, kind.resolve(name, {}) if isinstance(kind, Tensor) else kind)


def _parameters(function: Any, local: Mapping[str, Any]) -> dict[str, Kind]:
    parameters: dict[str, Kind] = {}
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


def _kind(function: Any, name: str, annotation: Any, local: Mapping[str, Any]) -> Kind:
    found = resolve_annotation(annotation, function, local)
    kind = as_kind(dtype(found) if found in (int, float, bool) else found)
    if kind is not None:
        return kind
    raise TypeError(
        f"parameter {name} of {function.__name__} is annotated with {describe(found)}, "
        "wanted T.Tensor(shape, dtype) or a data type such as T.int32"
    )


def as_kind(annotation: Any) -> Kind | None:
    """Return what an annotation says of a parameter of the program; None if it says nothing."""
    if annotation is ptr:
        return ptr()
    return annotation if isinstance(annotation, Tensor | dtype | ptr) else None
