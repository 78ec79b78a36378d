"""Python's own functions of numbers, ``abs(x)`` or ``math.exp(x)``, on scalars of the program.

Rewritten code asks ``in_program`` for what a call of a function means there: for one of Python's
functions that is the same function, except that it takes the program's scalars, too. A result
is that of the language's function of the name; where Python makes an int of a float (``round``,
``math.floor``), it stays a float, of the same value. Functions of numpy and torch on scalars of the
program are refused, with the language's name.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tvm import tirx

from tilelang.language import bits, elementwise, math_ops
from tilelang.language.arithmetic import binary
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    describe,
    is_buffer,
    is_of_program,
    is_scalar_expr,
    unwrap,
)
from tilelang.language.tracer import read_members


def _is_scalar(value: Any) -> bool:
    return is_scalar_expr(value) and not is_buffer(value)


def _scalar(name: str, value: Any) -> Any:
    """Return an argument as a number or an expression."""
    value = as_expr(value)
    if is_of_program(value) and not _is_scalar(value):
        raise TypeError(f"{name} found {describe(value)}, wanted a scalar; index an element")
    return value


def _is_float(value: Any) -> bool:
    return "float" in value.ty.dtype


def _floating(name: str, value: Any) -> Any:
    """Return an argument that Python makes a float of."""
    value = _scalar(name, value)
    if is_of_program(value) and not _is_float(value):
        return as_dtype(value, "float32")
    return value


def _of_floats(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: function(*(_floating(name, v) for v in values))


def _of_scalars(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: function(*(_scalar(name, v) for v in values))


def _rounding(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that leaves integers alone."""

    def rounded(value: Any) -> Any:
        value = _scalar(name, value)
        return function(value) if _is_float(value) else value

    return rounded


def _extremum(name: str, function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def extremum(*values: Any, **keywords: Any) -> Any:
        if keywords:
            raise TypeError(
                f"{name} of the program's scalars found {', '.join(keywords)}, wanted scalars only"
            )
        items = values if len(values) > 1 else list(values[0])
        return functools.reduce(function, [_scalar(name, v) for v in items])

    return extremum


def _sum(values: Iterable[Any], start: Any = 0) -> Any:
    return functools.reduce(lambda a, b: binary("Add", a, b), values, start)


def _connected(
    name: str, connect: Callable[[Any, Any], Any], neutral: bool
) -> Callable[[Iterable[Any]], Any]:
    """``all`` or ``any``."""

    def connected(values: Iterable[Any]) -> Any:
        result: Any = neutral
        for value in values:
            test = _truth(name, value)
            if not is_of_program(test):
                if bool(test) is not neutral:
                    return not neutral
            else:
                result = connect(result, test) if is_of_program(result) else test
        return result

    return connected


def _truth(name: str, value: Any) -> Any:
    value = unwrap(_scalar(name, value))
    if not is_of_program(value) or value.ty.dtype == "bool":
        return value
    return unwrap(value != tirx.const(0, value.ty.dtype))


def _int(value: Any) -> Any:
    value = _scalar("int", value)
    return as_dtype(value, "int32") if _is_float(value) or value.ty.dtype == "bool" else value


def _float(value: Any) -> Any:
    value = _scalar("float", value)
    return value if value.ty.dtype == "float64" else as_dtype(value, "float32")


def _len(value: Any) -> Any:
    if not is_buffer(value):
        raise TypeError(f"len found {describe(value)}, wanted a tensor or a tile: its first extent")
    return unwrap(value.shape[0])


def _round(value: Any, digits: Any = None) -> Any:
    if digits is not None:
        raise TypeError(
            f"round found {describe(value)} and {digits!r} digits, wanted no digits; "
            "T.round(x * 100) / 100 keeps two"
        )
    return _rounding("round", math_ops.round)(value)


def _pow(x: Any, n: Any, modulus: Any = None) -> Any:
    if modulus is not None:
        raise TypeError("pow found three arguments, wanted two; x ** n % m has the third")
    return binary("Pow", x, n)


def _divmod(x: Any, y: Any) -> tuple[Any, Any]:
    return binary("FloorDiv", x, y), binary("Mod", x, y)


def _log(x: Any, base: Any = None) -> Any:
    parts = [
        elementwise.log(_floating("math.log", v)) if is_of_program(v) else math.log(v)
        for v in (x, base)
        if v is not None
    ]
    return functools.reduce(lambda a, b: binary("Div", a, b), parts)


def _math_pow(x: Any, y: Any) -> Any:
    return math_ops.pow(_floating("math.pow", x), _floating("math.pow", y))


_FLOATS = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "log10",
    "log1p",
    "log2",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "isnan",
    "isinf",
    "isfinite",
    "atan2",
    "hypot",
    "copysign",
    "fmod",
    "nextafter",
]
_PROGRAM: dict[Any, Callable[..., Any]] = {
    builtins.abs: _of_scalars("abs", elementwise.abs),
    builtins.all: _connected("all", tirx.And, neutral=True),
    builtins.any: _connected("any", tirx.Or, neutral=False),
    builtins.bool: functools.partial(_truth, "bool"),
    builtins.divmod: _divmod,
    builtins.float: _float,
    builtins.int: _int,
    builtins.len: _len,
    builtins.max: _extremum("max", math_ops.max),
    builtins.min: _extremum("min", math_ops.min),
    builtins.pow: _pow,
    builtins.round: _round,
    builtins.sum: _sum,
    math.ceil: _rounding("math.ceil", elementwise.ceil),
    math.fabs: _of_floats("math.fabs", elementwise.abs),
    math.floor: _rounding("math.floor", elementwise.floor),
    math.ldexp: lambda x, n: elementwise.ldexp(_floating("math.ldexp", x), n),
    math.log: _log,
    math.pow: _math_pow,
    math.trunc: _rounding("math.trunc", elementwise.trunc),
    **{
        getattr(math, name): _of_floats(f"math.{name}", getattr(elementwise, name))
        for name in _FLOATS
        if hasattr(math, name)  # exp2 is from Python 3.11 on
    },
}
_BY_ID = {id(function): program for function, program in _PROGRAM.items()}
_OF_ITERABLES = {
    id(f) for f in (builtins.all, builtins.any, builtins.max, builtins.min, builtins.sum)
}
# What numpy and torch call the language's functions that have another name.
_NAMES = {
    "absolute": "abs",
    "clip": "clamp",
    "fabs": "abs",
    "maximum": "max",
    "minimum": "min",
    "mod": "floormod",
    "power": "pow",
    "relu": "max",
    "rint": "round",
    "where": "if_then_else",
}


class PythonFunction:
    """A function of Python's that takes the program's scalars, too."""

    __slots__ = ("function", "program")

    def __init__(self, function: Callable[..., Any], program: Callable[..., Any]):
        self.function = function
        self.program = program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program's function if an argument is of the program, else Python's."""
        values: Any = args
        is_one = len(args) == 1 or (args and self.function is builtins.sum)
        if id(self.function) in _OF_ITERABLES and is_one and isinstance(args[0], Iterable):
            read_members(args[0])
            args = (list(args[0]), *args[1:])
            values = [*args[0], *args[1:]]
        chosen = self.program if any(map(is_of_program, values)) else self.function
        return chosen(*args, **kwargs)


def in_program(function: Any) -> Any:
    """Return what a call of ``function`` calls in a kernel."""
    program = _BY_ID.get(id(function))
    if program is not None:
        return PythonFunction(function, program)
    if isinstance(function, np.ufunc) or _module(function).startswith("torch"):
        return functools.partial(_checked, function)
    return function


def _module(function: Any) -> str:
    module = getattr(function, "__module__", None)
    owner = type(getattr(function, "__self__", None)).__module__
    return module if isinstance(module, str) else owner


def _checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of numpy or torch, which takes no scalars of the program."""
    found = next((v for v in args if is_of_program(v)), None)
    if found is None:
        return function(*args, **kwargs)
    name = function.__name__
    meant = _NAMES.get(name, name)
    known = any(hasattr(module, meant) for module in (elementwise, math_ops, bits))
    repair = f"use T.{meant}" if known else "compute with the functions of T"
    library = "numpy" if isinstance(function, np.ufunc) else "torch"
    raise TypeError(
        f"{library}.{name} found {describe(found)}, which has no value while tracing; {repair}"
    )


__all__ = ["PythonFunction", "in_program"]
