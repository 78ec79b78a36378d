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
from tilelang.language.tensors import SymmetricTensor, Tensor
from tilelang.language.tracer import current_tracer


class Team:
    """The ranks that run a program, in a trace: parameters that nobody passes by hand."""

    def __init__(self) -> None:
        self.rank = tirx.Var("tl_rank", "int32")
        self.ranks = tirx.Var("tl_num_ranks", "int32")
        self.addresses: dict[str, ir.Var] = {}
        """For each symmetric tensor that a kernel has peers of, the table of its addresses."""

    def parameters(self) -> list[ir.Var]:
        """The parameters that a call gets beside the caller's."""
        return [self.rank, self.ranks, *self.addresses.values()]


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
        self._symmetric: list[ir.Var] = []
        self._peers: list[ir.Var] = []
        self._team: Team | None = None

    def add(self, name: str, kind: Kind) -> Any:
        """Add the parameter ``name`` and return what stands for it in the body."""
        if isinstance(kind, ptr):
            self._pointers[name] = Pointer(name, kind)
            return self._pointers[name]
        if isinstance(kind, Tensor):
            self._parameters[name] = kind.as_buffer()
            IRBuilder.name(name, self._parameters[name])
            if isinstance(kind, SymmetricTensor):
                self._symmetric.append(self._parameters[name])
        else:
            self._parameters[name] = tirx.Var(name, str(kind))
        return self._parameters[name]

    @property
    def symmetric(self) -> tuple[ir.Var, ...]:
        """The parameters of which each rank has one."""
        return tuple(self._symmetric)

    @property
    def team(self) -> Team:
        """The ranks that run the program."""
        if self._team is None:
            self._team = Team()
        return self._team

    def addresses(self, tensor: ir.Var) -> ir.Var | None:
        """Return the table of the addresses of a symmetric parameter; None for another tensor."""
        if not any(tensor.same_as(known) for known in self._symmetric):
            return None
        tables = self.team.addresses
        if tensor.name not in tables:
            tables[tensor.name] = Tensor((self.team.ranks,), "int64").as_buffer()
            IRBuilder.name(f"{tensor.name}_peers", tables[tensor.name])
        return tables[tensor.name]

    def add_peer(self, tensor: ir.Var) -> None:
        """Take down a tensor in the memory of some rank."""
        self._peers.append(tensor)

    def is_symmetric(self, tensor: ir.Var) -> bool:
        """Whether ``tensor`` is a symmetric parameter, or that of another rank."""
        return any(tensor.same_as(known) for known in (*self._symmetric, *self._peers))

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
        team = [] if self._team is None else self._team.parameters()
        parameters += [*self._outputs, *team, *self._workspaces]
        _check_names(self._name, parameters)
        out = tirx.PrimFunc(
            parameters, function.body, function.ret_type, function.attrs, function.span
        )
        if outputs:
            out = out.with_attr("tilelang_out_idx", outputs)
        if self._workspaces:
            out = out.with_attr("tilelang_workspaces", len(self._workspaces))
        if self._team is not None or self._symmetric:
            out = out.with_attr("tilelang_symmetric", [t.name for t in self._symmetric])
            out = out.with_attr("tilelang_team", len(team))
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
