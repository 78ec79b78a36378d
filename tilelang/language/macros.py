"""``T.macro``, ``T.inline``, ``T.meta_class``: functions that become part of the traced function
that calls them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tvm import ir, tirx

from tilelang._signatures import bind
from tilelang.language.effects import has_effect
from tilelang.language.hooks import call_traced
from tilelang.language.scalars import as_expr, describe, is_scalar_expr
from tilelang.language.source import enclosing_names, resolve_annotation, traced_code
from tilelang.language.tracer import Reference, Tracer, current_tracer, innermost_tracer

_Class = TypeVar("_Class")


class Ref:
    """Annotation of a macro's parameter that stands for a place: assigning to it stores there.

    The argument is a ``T.alloc_var``, an element ``buf[i]``, whose index is evaluated once at the
    call, or a region ``buf[a:b]``.

    Raises
    ------
    ValueError
        At a call, if the argument is anything else.

    Example
    -------
    ``@T.macro`` above ``def increase(count: T.Ref): count += 1``; ``increase(hist[bin])``
    """


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
        kinds = {p.kind: name for name, p in self._signature.parameters.items()}
        self._rest = kinds.get(inspect.Parameter.VAR_POSITIONAL)
        self._others = kinds.get(inspect.Parameter.VAR_KEYWORD)
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

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the macro with its first argument bound, as a function in a class does."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        where = f"the macro {self._function.__qualname__}"
        tracer = current_tracer(where)
        arguments = bind(self._signature, where, args, kwargs)
        arguments.apply_defaults()
        with _expansion(tracer, self._function):
            for name, value in arguments.arguments.items():
                if name in self._references:
                    arguments.arguments[name] = self._reference(tracer, name, value)
                elif name == self._rest:
                    arguments.arguments[name] = tuple(_evaluated(tracer, name, v) for v in value)
                elif name == self._others:
                    arguments.arguments[name] = {
                        k: _evaluated(tracer, k, v) for k, v in value.items()
                    }
                else:
                    arguments.arguments[name] = _evaluated(tracer, name, value)
            return call_traced(tracer, self._function, arguments)

    def _reference(self, tracer: Tracer, name: str, value: Any) -> Reference:
        if isinstance(value, ir.TensorRegion):
            return Reference(tracer.evaluated(value))
        if not isinstance(value, ir.TensorLoad):
            raise ValueError(
                f"parameter {name} of the macro {self._function.__name__} is a T.Ref and found "
                f"{describe(value)}, wanted a T.alloc_var, an element buf[i] or a region"
            )
        indices = [_evaluated(tracer, f"{name}_index", i) for i in value.indices]
        return Reference(tirx.BufferLoad(value.source, indices))


def _evaluated(tracer: Tracer, name: str, value: Any) -> Any:
    """Bind an expression to a variable, so that the macro does not evaluate it at each use."""
    if isinstance(value, ir.TensorRegion):
        return tracer.evaluated(value)
    value = as_expr(value)
    if not is_scalar_expr(value) or isinstance(value, ir.Var | ir.Constant) or not tracer.kernels:
        return value
    if tracer.is_conditional and not has_effect(value):
        return value  # no statement may stand here, neither one that changes what it reads
    return tracer.let(value, name)


@contextlib.contextmanager
def _expansion(tracer: Tracer, function: types.FunctionType) -> Iterator[None]:
    """Trace the body of ``function`` here; what follows has the place of the call again.

    Raises
    ------
    RecursionError
        If macros are nested so deeply that Python would give up in the middle of one.
    """
    span = tracer.span
    # Python spends four to five of its own calls on each.
    most = sys.getrecursionlimit() // 6
    if tracer.macro_depth == most:
        raise RecursionError(
            f"found {most} calls of macros in each other, the last one of {function.__name__}; "
            "wanted a recursion that a Python value ends: a condition of the program is traced on "
            "both sides"
        )
    tracer.evaluate_pending()
    tracer.macro_depth += 1
    yield
    tracer.macro_depth -= 1
    tracer.at(span)


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
    RecursionError
        At a call, if it calls itself without end.
    NotImplementedError
        If it returns in a loop or a branch of the program.

    Example
    -------
    ``@T.macro`` above ``def relu(x): return T.max(x, 0)``
    """
    return Macro(function, enclosing_names(sys._getframe(1)))


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that is evaluated while the function that calls it is traced, without
    variables for its arguments.

    Unlike in a macro, a parameter is the argument's expression itself, evaluated wherever the
    function uses it. Its ``if`` and ``for`` over values of the program become the program's.
    Outside of a trace it is the plain function, so that one helper serves both.

    Raises
    ------
    NotImplementedError
        If it returns in a loop or a branch of the program.

    Example
    -------
    ``@T.inline`` above ``def clamp_index(i, n): return T.min(i, n - 1)``
    """
    traced_code(function)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = innermost_tracer()
        if tracer is None:
            return function(*args, **kwargs)
        arguments = bind(signature, function.__qualname__, args, kwargs)
        arguments.apply_defaults()
        with _expansion(tracer, function):  # type: ignore[arg-type]
            return call_traced(tracer, function, arguments)

    return call


_TRACED_METHODS = ("__init__", "__call__", "__getitem__", "__setitem__", "__enter__", "__exit__")


def meta_class(cls: type[_Class]) -> type[_Class]:
    """Make the methods and properties of a class macros; its objects live while a function is
    traced.

    Attributes hold Python values, buffers and expressions. Assigning a number or an expression to
    an attribute that is a ``T.alloc_var`` stores to it, as assigning to a name does. Special
    methods other than ``__init__``, ``__call__``, ``__getitem__``, ``__setitem__``, ``__enter__``
    and ``__exit__`` stay plain Python, as do class methods and inherited ones.

    Raises
    ------
    JITNoBuilderError
        If an object is made or a method is called outside of a traced function.
    NotImplementedError
        If a method contains a statement that has no meaning in a kernel.

    Example
    -------
    ``@T.meta_class`` above ``class Counter`` with the methods ``def __init__(self): self.n =
    T.alloc_var(T.int32, 0)`` and ``def step(self): self.n += 1``
    """
    local = enclosing_names(sys._getframe(1))
    for name, member in list(vars(cls).items()):
        if name.startswith("__") and name not in _TRACED_METHODS:
            continue
        traced: Any
        if isinstance(member, types.FunctionType):
            traced = Macro(member, local)
        elif isinstance(member, staticmethod):
            traced = staticmethod(Macro(member.__func__, local))
        elif isinstance(member, property):
            getter, setter, deleter = (
                f and Macro(f, local) for f in (member.fget, member.fset, member.fdel)
            )
            traced = property(getter, setter, deleter, member.__doc__)
        else:
            continue
        setattr(cls, name, traced)
    return cls
