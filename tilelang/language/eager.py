"""Functions in eager style: the body is the kernel, and the arguments of a call say what is
constant in it.

A parameter is an argument of the *run* if its annotation, in the signature or in a statement
``A: T.Tensor[[M, K], dtype]``, is a tensor, a data type or ``T.ptr``; every other one is constant
at compile time. Such a function is traced twice: up to the last declaration, with variables for
its constants, which tells where a call finds their values; then, with the values, as a whole.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._signatures import place_of
from tilelang.language.constants import Constants
from tilelang.language.dtypes import dtype
from tilelang.language.function import as_kind, trace_body
from tilelang.language.header import Header, Kind
from tilelang.language.hooks import Hooks, call_traced
from tilelang.language.scalars import describe
from tilelang.language.source import resolve_annotation, traced_code
from tilelang.language.tensors import Tensor
from tilelang.language.tracer import Frame, Tracer

Place = tuple[str, str, int]
"""Where a constant is found: a parameter, ``shape``, ``stride`` or ``dtype``, and a dimension."""


class Declarations:
    """What a call's arguments of the run are, for one set of compile-time arguments.

    Attributes
    ----------
    kinds
        Each argument of the run, in the order of the signature.
    places
        Where each constant is found, by its name; no place for one that only a keyword gives.
    spans
        Where each ``T.const`` is declared.
    """

    def __init__(self, kinds: Mapping[str, Kind], constants: Constants):
        self.kinds = kinds
        self.spans = constants.spans
        self.places: dict[str, list[Place]] = {name: [] for name in constants.variables}
        for parameter, kind in kinds.items():
            if not isinstance(kind, Tensor):
                continue
            for name, place in kind.open_places(parameter).items():
                self.places[name] = [(parameter, *place)]
            for variable, place in kind.variable_places():
                for name, constant in constants.variables.items():
                    if variable is constant:
                        self.places[name].append((parameter, *place))


class Undeclared:
    """What stands for an argument of the run before the body declares it."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return f"the parameter {self._name}, which is not declared"

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise TypeError(
            f"{self._name}.{attribute} is used before {self._name} is declared; put "
            f"{self._name}: T.Tensor[shape, dtype] before"
        )


class EagerFunction:
    """A Python function in eager style.

    Raises what `tilelang.language.source.traced_code` does.

    Attributes
    ----------
    annotations
        The arguments of the run that the signature declares.
    declared
        Those that the body declares, each with whether it does on every path.
    dtypes
        Compile-time arguments annotated with ``T.dtype``: their values are to be data types.
    """

    def __init__(self, function: Any, local: Mapping[str, Any]):
        self.function = function
        self.signature = inspect.signature(function)
        self.local = local
        self._code = traced_code(function)
        self.declared = self._code.declared
        self.annotations: dict[str, Kind] = {}
        self.dtypes: list[str] = []
        for name, parameter in self.signature.parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(
                    f"parameter {name} of {function.__name__} is {parameter.kind.description}, "
                    "wanted plain parameters only; where another decorator made the function, put "
                    "@tilelang.jit under the other decorator"
                )
            if name in self.declared or parameter.annotation is parameter.empty:
                continue
            annotation = resolve_annotation(parameter.annotation, function, local)
            kind = as_kind(annotation)
            if kind is not None:
                self.annotations[name] = kind
            elif annotation is dtype:
                self.dtypes.append(name)

    def where(self) -> str:
        """Return which function it is, for an error message."""
        return place_of(self.function)

    def declarations(self, values: Mapping[str, Any]) -> Declarations:
        """Find the arguments of the run and the constants, given the compile-time arguments.

        Raises
        ------
        EagerJITBuildError
            If the way to the declarations depends on a constant's value.
        """
        constants = Constants()
        kinds = dict(self.annotations)
        if self.declared:
            tracer = _DeclarationTracer(self._code.definition, self._header(), constants)
            with tracer:
                try:
                    with tir_builder.prim_func(s_tir=True):
                        bound = self.signature.bind(**self._values(tracer, values))
                        hooks_of = functools.partial(_FirstHooks, local=self.local)
                        call_traced(tracer, self.function, bound, hooks_of)
                except _DeclarationsEnd:
                    pass
            kinds |= tracer.kinds
        return Declarations(
            {name: kinds[name] for name in self.signature.parameters if name in kinds}, constants
        )

    def trace(self, values: Mapping[str, Any], constants: Mapping[str, Any]) -> tirx.PrimFunc:
        """Return the program for compile-time arguments ``values`` and the values of constants.

        Raises
        ------
        RuntimeError
            If a ``T.const`` has no value; as `Header.returns`.
        TypeError
            If there is no constant of a name in ``constants``.
        """
        header, table = self._header(), Constants(constants)
        with Tracer(self._code.definition, header, table) as tracer:
            hooks_of = functools.partial(_EagerHooks, local=self.local)
            program = trace_body(tracer, self.function, self._values(tracer, values), hooks_of)
        if (unknown := table.unknown()) is not None:
            raise TypeError(
                f"{self.where()}: got an unexpected keyword argument {unknown!r}: it is no "
                "parameter and no T.const, wanted one of these; leave it out"
            )
        return program

    def _header(self) -> Header:
        return Header(self.function.__name__, self.signature.parameters)

    def _values(self, tracer: Tracer, values: Mapping[str, Any]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in self.signature.parameters:
            if name in self.annotations:
                out[name] = _argument(tracer, name, self.annotations[name])
            elif name in self.declared:
                out[name] = values.get(name) if name in values else Undeclared(name)
            else:
                out[name] = values[name]
        return out


def _argument(tracer: Tracer, name: str, kind: Kind) -> Any:
    """Add an argument of the run to the program and return what stands for it in the body."""
    assert tracer.constants is not None
    if isinstance(kind, Tensor):
        tracer.constants.places |= set(kind.open_places(name))
        values = tracer.constants.values
        if values is None:
            # The first trace needs something in the places that are left to the call.
            values = {
                n: dtype("float32") if what == "dtype" else tirx.Var(n, "int32")
                for n, (what, _) in kind.open_places(name).items()
            }
        kind = kind.resolve(name, values)
    return tracer.header.add(name, kind)


class _EagerHooks(Hooks):
    """The hooks of the function itself; macros that it calls have the plain ones."""

    def __init__(self, tracer: Tracer, spans: Sequence[ir.Span], local: Mapping[str, Any]):
        super().__init__(tracer, spans)
        self._local = local

    def outer(self, name: str, value: Callable[[], Any]) -> Any:
        """Look ``name`` up where the function is defined, else in the globals."""
        return self._local[name] if name in self._local else value()

    def declared(self, name: str, annotation: Callable[[], Any], value: Any) -> Any:
        """Declare the argument ``name`` of the run."""
        found = annotation()
        kind = as_kind(found)
        if kind is None:
            raise TypeError(
                f"parameter {name} is declared as {describe(found)}, wanted T.Tensor[shape, "
                "dtype], T.ptr or a data type such as T.int32"
            )
        value = self._declare(name, kind)
        self.bindings.pop(name, None)
        self.parameter(name, value)
        return value

    def _declare(self, name: str, kind: Kind) -> Any:
        return _argument(self.tracer, name, kind)


class _DeclarationsEnd(BaseException):
    """Every parameter has been declared."""


class _FirstHooks(_EagerHooks):
    def _declare(self, name: str, kind: Kind) -> Any:
        assert isinstance(self.tracer, _DeclarationTracer)
        self.tracer.kinds[name] = kind
        return super()._declare(name, kind)

    def declarations_end(self) -> None:
        raise _DeclarationsEnd


class _DeclarationTracer(Tracer):
    """The first trace, which ends with the declarations."""

    def __init__(self, span: ir.Span, header: Header, constants: Constants):
        super().__init__(span, header, constants)
        self.kinds: dict[str, Kind] = {}

    def enter(self, frame: Frame, rest: bool = False) -> Any:
        """Refuse control flow of the program: what is declared may depend on it."""
        if frame.kind == "kernel":
            raise _DeclarationsEnd
        # Imported here because tilelang.jit builds on tilelang.language.
        from tilelang.jit.exceptions import EagerJITBuildError

        raise EagerJITBuildError(
            f"a {frame.description} comes before the last declaration of a parameter and depends "
            "on a T.const, which has no value yet; put the declarations of all parameters first"
        )
