"""``T.const``: sizes that are constant at compile time and come from the call's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.tensors import identifiers
from tilelang.language.tracer import Tracer, current_tracer


class Constants:
    """The values of a trace's constants by name; None while a first trace finds out what they
    are."""

    def __init__(self, values: Mapping[str, Any] | None = None):
        self.values = values
        self.variables: dict[str, ir.Var] = {}
        """What stands for the constants in the first trace."""
        self.spans: dict[str, ir.Span] = {}
        """Where each ``T.const`` is declared."""
        self.places: set[str] = set()
        """Names of the places that annotations leave to the call."""

    def unknown(self) -> str | None:
        """Return the name of a value that the trace has not asked for."""
        names = self.values or {}
        return next((n for n in names if n not in self.spans and n not in self.places), None)

    def get(self, tracer: Tracer, name: str, dtype: str) -> Any:
        """Return the constant: a Python int if ``dtype`` is int32."""
        self.spans.setdefault(name, tracer.span)
        if self.values is None:
            return self.variables.setdefault(name, tirx.Var(name, dtype))
        if name not in self.values:
            raise missing_constant(name)
        value = self.values[name]
        return value if dtype == "int32" else tirx.const(value, dtype)


def missing_constant(name: str) -> RuntimeError:
    """Return the error for a constant whose value nothing gives."""
    return RuntimeError(
        f"nothing gives T.const {name!r} a value: it is no dimension and no stride, by itself, of "
        "a tensor that was passed. Declare a tensor with it before the kernel, such as "
        f"A: T.Tensor[[{name}], T.float32], or pass {name}=..."
    )


def const(names: str, dtype: Any = "int32") -> Any:
    """Declare compile-time constants of a function in eager style; the call's tensors give them
    their values.

    Each is, by itself, a dimension or a stride of a tensor that the function takes, or a keyword
    argument of the call. A kernel is compiled for each set of values.

    Parameters
    ----------
    names
        One name or several: ``"N"``, ``"M, N"``, ``"M N"``.
    dtype
        Integer data type; int32 gives Python ints.

    Returns
    -------
    One constant, or a tuple of them.

    Raises
    ------
    JITNoBuilderError
        Outside of a function in eager style.
    RuntimeError
        If nothing gives a constant its value.
    ValueError
        If a name is not an identifier.

    Example
    -------
    ``M, N = T.const("M, N")``, then ``A: T.Tensor[[M, N], T.float16]``
    """
    tracer = current_tracer("T.const")
    if tracer.constants is None:
        # Imported here because tilelang.jit builds on tilelang.language.
        from tilelang.jit.exceptions import JITNoBuilderError

        raise JITNoBuilderError(
            "T.const is only defined in a function under @tilelang.jit whose body is the kernel; "
            "in a @T.prim_func, sizes are variables of the enclosing function or T.dynamic"
        )
    found = tuple(
        tracer.constants.get(tracer, name, str(data_type(dtype)))
        for name in identifiers("T.const", names)
    )
    return found[0] if len(found) == 1 else found
