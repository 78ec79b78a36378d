"""What a program declares beside its body: parameters and outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.pointers import Pointer, ptr
from tilelang.language.requirements import Comparison
from tilelang.language.scalars import describe
from tilelang.language.tensors import Tensor
from tilelang.language.tracer import current_tracer

Kind = Tensor | data_type | ptr
"""What a parameter is: a tensor, a scalar, a pointer."""


class Header:
    """The declarations of one trace.

    Parameters come in the order of the function's signature, outputs (``T.empty``) after them, then
    workspaces (``T.alloc_global``).
    """

    def __init__(self, name: str, order: Iterable[str]):
        self._name = name
        self._order = list(order)
        self._parameters: dict[str, ir.Var] = {}
        self._pointers: dict[str, Pointer] = {}
        self._outputs: list[ir.Var] = []
        self._returned: list[ir.Var] = []
        self._workspaces: list[ir.Var] = []
        self._requirements: list[list[Any]] = []

    def add(self, name: str, kind: Kind) -> Any:
        """Add the parameter ``name`` and return what stands for it in the body."""
        if isinstance(kind, ptr):
            self._pointers[name] = Pointer(name, kind)
            return self._pointers[name]
        if isinstance(kind, Tensor):
            self._parameters[name] = kind.as_buffer()
            IRBuilder.name(name, self._parameters[name])
        else:
            self._parameters[name] = tirx.Var(name, str(kind))
        return self._parameters[name]

    def add_output(self, kind: Tensor) -> ir.Var:
        """Add a tensor that the call allocates and the program returns."""
        self._outputs.append(kind.as_buffer())
        return self._outputs[-1]

    def add_workspace(self, kind: Tensor) -> ir.Var:
        """Add a tensor that the call allocates for its kernels alone."""
        self._workspaces.append(kind.as_buffer())
        return self._workspaces[-1]

    def require(self, comparison: Comparison, message: str, span: ir.Span) -> None:
        """Let each call check ``comparison`` before anything runs."""
        place = f"{span.source_name.name}:{span.line}"
        self._requirements.append([*comparison, message, place])

    def returns(self, value: Any) -> None:
        """Take down the result of the function.

        Raises
        ------
        RuntimeError
            If it is something else than tensors of ``T.empty``, or not all of them, each once.
        """
        values = (
            [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
        )
        for v in values:
            if not any(v is output for output in self._outputs):
                raise RuntimeError(
                    f"{self._name} returns {describe(v)}; a program returns tensors of T.empty "
                    "only: write to one, or end without a value"
                )
        if len({id(v) for v in values}) != len(values):
            raise RuntimeError(f"{self._name} returns a tensor twice; return each T.empty once")
        missing = [o for o in self._outputs if not any(o is v for v in values)]
        if missing:
            raise RuntimeError(
                f"{self._name} does not return {describe(missing[0])}, which it makes with "
                "T.empty; return it, or take a tensor as a parameter"
            )
        self._returned = values

    def complete(self, function: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return the traced ``function`` with these declarations."""
        for pointer in self._pointers.values():
            self._parameters[pointer.name] = pointer.as_parameter()
        parameters = [self._parameters[n] for n in self._order if n in self._parameters]
        outputs = [len(parameters) + self._outputs.index(v) for v in self._returned]
        parameters += [*self._outputs, *self._workspaces]
        _check_names(self._name, parameters)
        out = tirx.PrimFunc(
            parameters, function.body, function.ret_type, function.attrs, function.span
        )
        if outputs:
            out = out.with_attr("tilelang_out_idx", outputs)
        if self._workspaces:
            out = out.with_attr("tilelang_workspaces", len(self._workspaces))
        if self._requirements:
            out = out.with_attr("tilelang_requirements", self._requirements)
        if self._pointers:
            pointers = {p.name: p.dtype for p in self._pointers.values()}
            out = out.with_attr("tilelang_pointers", pointers)
        return out


def _check_names(name: str, parameters: list[ir.Var]) -> None:
    names = [p.name for p in parameters]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{name} has two parameters called {twice!r}, one of them made with T.empty or "
            "T.alloc_global; assign it to a name of its own"
        )


def empty(*shape: Any, dtype: Any = "float32") -> ir.Var:
    """Return a tensor in global memory that each call allocates, and that the function returns.

    Parameters
    ----------
    shape
        One dimension or several, or a sequence of them; a dtype may follow the sequence. They are
        what ``T.Tensor`` takes.
    dtype
        Data type of the elements.

    Raises
    ------
    RuntimeError
        If the function does not return it.
    ValueError
        In a kernel.

    Example
    -------
    ``C = T.empty((M, N), T.float16)``, and ``return C`` at the end
    """
    tracer = current_tracer("T.empty")
    if tracer.kernels:
        raise ValueError(
            "T.empty is in a kernel; outputs exist before it starts: put it before `with T.Kernel`"
        )
    if len(shape) == 2 and isinstance(shape[0], list | tuple | ir.Array):
        dims, dtype = shape
    else:
        dims = shape[0] if len(shape) == 1 else shape
    output = tracer.header.add_output(Tensor(dims, dtype))
    tracer.add_unnamed(output)
    return output
