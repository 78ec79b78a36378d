"""The state of one trace: TVM's IR builder, the open scopes, and the place in the user's source.

A *scope* is a stretch of the program that ends before the function does: the body of a loop, a
branch or a kernel. A variable belongs to the scope that binds it, which is how a use after the
scope's end is found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import _ffi_api as builder_api
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.script.builder import ir as tir_builder
from tvm.tirx.script.builder.frame import DeclBufferFrame

from tilelang._snippet import snippet
from tilelang.env import env
from tilelang.language.advice import told
from tilelang.language.effects import has_call, reads_memory
from tilelang.language.members import CONTAINERS, Members
from tilelang.language.scalars import as_expr, is_buffer, is_number, is_scalar_expr
from tilelang.language.state import has_contents

if TYPE_CHECKING:
    from tilelang.language.constants import Constants
    from tilelang.language.header import Header

_active = threading.local()


def current_tracer(what: str) -> Tracer:
    """Return the innermost trace of this thread.

    ``what`` names the construct that needs it, for the error.

    Raises
    ------
    JITNoBuilderError
        If no function is being traced.
    """
    tracer = innermost_tracer()
    if tracer is None:
        # Imported here because tilelang.jit builds on tilelang.language.
        from tilelang.jit.exceptions import JITNoBuilderError

        raise JITNoBuilderError(
            f"{what} is only defined while a function is being traced; "
            "move it into a function decorated with @T.prim_func or @T.macro"
        )
    return tracer


def innermost_tracer() -> Tracer | None:
    """Return the innermost trace of this thread, None outside of traces."""
    stack = getattr(_active, "stack", None)
    return stack[-1] if stack else None


def read_members(*values: Any) -> None:
    """Check a use of all members of those values that are containers."""
    for value in values:
        if isinstance(value, (*CONTAINERS, Iterator)) or has_contents(value):
            tracer = innermost_tracer()
            if tracer is not None:
                tracer.members.read_all(value, tracer.scopes)


class Frame:
    """A construct with a body: what ``with``, ``for`` or an assignment can enter.

    ``kind`` says which control flow it is: ``serial``, ``parallel``, ``kernel``, ``branch``,
    ``block``, ...
    """

    kind = "block"

    @property
    def description(self) -> str:
        """What the frame is, for an error message."""
        return f"{self.kind} loop" if self.kind in LOOP_KINDS else self.kind

    def open(self, tracer: Tracer) -> Any:
        """Enter the frame in its new scope, which owns the variables that it binds.

        Returns the value of ``as`` or of the loop's target.
        """
        raise NotImplementedError

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return TVM's frames that are open now, outermost first."""
        raise NotImplementedError

    def close(self) -> None:
        """Add to the innermost of TVM's frames what is known only at its end."""

    def __enter__(self) -> Any:
        return current_tracer(type(self).__name__).enter(self)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            current_tracer(type(self).__name__).leave(self)


class BuilderFrame(Frame):
    """One of TVM's own frames, such as an attribute or the branch of an ``if``."""

    def __init__(self, frame: IRBuilderFrame, kind: str = "block"):
        self.frame = frame
        self.kind = kind

    def open(self, tracer: Tracer) -> Any:
        """Enter TVM's frame; a variable that it makes lives as long as it does."""
        value = self.frame.__enter__()
        if isinstance(value, ir.Var):
            tracer.add_unnamed(value)
            tracer.own(value)
        return value

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return the one frame."""
        return [self.frame]


# Memory whose elements are numbers; others are places of barriers and descriptors.
_WITH_VALUES = frozenset(("global", "shared", "shared.dyn", "local", "local.fragment"))
LOOP_KINDS = frozenset(
    {"serial", "while", "persistent", "parallel", "pipelined", "unrolled", "vectorized"}
)


class Scope:
    """An entered frame (None for the function itself)."""

    __slots__ = ("depth", "frame", "is_open", "kind", "parent", "rest", "span")

    def __init__(self, frame: Frame | None, parent: Scope | None, span: ir.Span, rest: bool):
        self.frame = frame
        self.kind = frame.kind if frame is not None else "function"
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.span = span
        self.is_open = True
        # Entered by a statement instead of a `with`: it ends together with the scope around it.
        self.rest = rest

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop of the program."""
        return self.kind in LOOP_KINDS

    @property
    def description(self) -> str:
        """What the scope is and where, for an error message."""
        what = self.kind if self.frame is None else self.frame.description
        return f"{what} at line {self.span.line}"

    def open_ancestor(self) -> Scope:
        """Return the innermost scope around this one, or itself, that is still open."""
        return self if self.is_open or self.parent is None else self.parent.open_ancestor()


class Tracer:
    """One trace. Use as a context manager around the execution of the rewritten function."""

    def __init__(self, span: ir.Span, header: Header, constants: Constants | None = None):
        self.header = header
        self.constants = constants
        self.builder = IRBuilder()
        self.records_spans = env.TILELANG_ENABLE_IR_SPAN
        self.span = span
        self.scopes = [Scope(None, None, span, rest=False)]
        self.kernels: list[Frame] = []
        self.macro_depth = 0
        """How many macros are being expanded in each other."""
        self.members = Members()
        self._owner: dict[ir.Var, Scope] = {}
        self._scalars: dict[ir.Var, ir.TensorLoad] = {}
        self.memory: dict[ir.Var, ir.Var] = {}
        """For each view the buffer whose memory it is."""
        self._unnamed: set[ir.Var] = set()
        self._reductions: dict[ir.Var, str] = {}
        self.tensor_floats: set[ir.Var] = set()
        """Buffers of float32 that matrix products may round to tf32."""
        self._kept: dict[int, tuple[ir.TensorLoad, ir.Var]] = {}
        """The variables that have the values of members of containers."""
        self.held: list[Any] = []
        """The calls that do something, in operands of operators there."""
        self.is_conditional = False
        """Whether the program decides if, or how often, it evaluates what is traced."""
        self._pending: list[dict[int, Any]] = []
        """The operands that have been evaluated, by the operations that wait for others."""
        self.function_attrs: dict[str, Any] = {}
        """Attributes that the program gets at its end."""

    def __enter__(self) -> Tracer:
        if not hasattr(_active, "stack"):
            _active.stack = []
        _active.stack.append(self)
        self.builder.__enter__()
        if self.records_spans:
            builder_api.IRBuilderPushSourceSpan(self.builder, self.span)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.builder.__exit__(exc_type, exc, traceback)
        _active.stack.pop()
        if isinstance(exc, Exception):
            error = told(exc, traceback)
            if self.records_spans:
                add_location(error, _innermost_span(traceback, self.span))
            if error is not exc:
                raise error from exc

    # -- place in the source ----------------------------------------------------------------------

    def at(self, span: ir.Span) -> None:
        """Give ``span`` to the statements that follow."""
        # Replaced instead of nested: nested spans would become one SequentialSpan of all enclosing
        # statements.
        if self.records_spans:
            builder_api.IRBuilderPopSourceSpan(self.builder)
            builder_api.IRBuilderPushSourceSpan(self.builder, span)
        self.span = span

    def warn(self, message: str) -> None:
        """Warn about the statement that is being traced."""
        warnings.warn_explicit(message, UserWarning, self.span.source_name.name, self.span.line)

    # -- scopes -----------------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """The innermost scope."""
        return self.scopes[-1]

    def enter(self, frame: Frame, rest: bool = False) -> Any:
        """Open ``frame``; ``rest`` for one that lasts until the scope around it ends."""
        self.scopes.append(Scope(frame, self.scope, self.span, rest))
        self.members.open(self.scopes)
        return frame.open(self)

    def leave(self, frame: Frame) -> None:
        """Close ``frame`` and what was entered for the rest of its scope."""
        while self.scope.rest:
            self._close()
        if self.scope.frame is not frame:
            raise RuntimeError(
                f"{type(frame).__name__} ends while {type(self.scope.frame).__name__} is open in "
                "it; close what was entered last first"
            )
        self._close()

    def finish(self) -> None:
        """Close what was entered for the rest of the function."""
        while self.scope.rest:
            self._close()
        if self.function_attrs:
            tir_builder.func_attr(self.function_attrs)

    def _close(self) -> None:
        scope = self.scopes.pop()
        scope.is_open = False
        self.members.close(scope)
        assert scope.frame is not None
        scope.frame.close()
        # A node of a loop or a branch is made when its frame exits: it gets the span of its first
        # line.
        self.at(scope.span)
        for frame in reversed(scope.frame.builder_frames()):
            frame.__exit__(None, None, None)
        if self.kernels and self.kernels[-1] is scope.frame:
            self.kernels.pop()

    def kernel_scope(self, what: str) -> Scope:
        """Return the scope of the enclosing ``T.Kernel``."""
        if not self.kernels:
            raise ValueError(f"{what} is outside of a kernel; move it under `with T.Kernel(...)`")
        return next(s for s in self.scopes if s.frame is self.kernels[-1])

    def runtime_scope(self, base: Scope) -> Scope | None:
        """Return the innermost loop or branch inside ``base``, None if control flow there is
        Python's."""
        inner = self.scopes[base.depth + 1 :]
        return next(
            (s for s in reversed(inner) if s.kind in LOOP_KINDS or s.kind == "branch"), None
        )

    # -- variables --------------------------------------------------------------------------------

    def own(self, var: ir.Var, scope: Scope | None = None) -> None:
        """Let ``var`` live as long as ``scope`` (the innermost one by default)."""
        self._owner[var] = scope or self.scope

    def is_owned(self, var: ir.Var) -> bool:
        """Whether ``var`` belongs to a scope, as loop variables and bound values do."""
        return var in self._owner

    def add_unnamed(self, var: ir.Var) -> None:
        """Name ``var`` after the first Python variable that it is assigned to."""
        self._unnamed.add(var)

    def add_scalar(self, buffer: ir.Var) -> None:
        """Read and write ``buffer``, of one element, as a mutable scalar."""
        self._scalars[buffer] = tirx.BufferLoad(buffer, [0])

    def add_reducer(self, buffer: ir.Var, reduction: str) -> None:
        """Note that the threads accumulate ``buffer`` with ``reduction``."""
        self._reductions[buffer] = reduction

    def reduction_of(self, buffer: ir.Var) -> str | None:
        """Return what the threads accumulate ``buffer`` with, None if it is no reducer."""
        return self._reductions.get(buffer)

    def is_scalar_buffer(self, value: Any) -> bool:
        """Whether ``value`` is the buffer of a mutable scalar."""
        return isinstance(value, ir.Var) and value in self._scalars

    def is_tile(self, value: Any) -> bool:
        """Whether ``value`` is a buffer that is no mutable scalar."""
        return is_buffer(value) and not self.is_scalar_buffer(value)

    def name(self, name: str, value: Any) -> None:
        """Name variables that have no name yet."""
        if isinstance(value, ir.Var):
            if value in self._unnamed:
                self._unnamed.discard(value)
                IRBuilder.name(name, value)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                self.name(f"{name}_{i}", item)
        elif isinstance(value, SimpleNamespace) or dataclasses.is_dataclass(value):
            for attribute, item in getattr(value, "__dict__", {}).items():
                self.name(f"{name}_{attribute}", item)

    def check_alive(self, value: Any, name: str | None = None) -> None:
        """Refuse a variable whose scope has ended."""
        if isinstance(value, ir.Var):
            scope = self._owner.get(value)
            if scope is not None and not scope.is_open:
                raise ended_scope_error(name or value.name, scope, self.is_tile(value))

    def read(self, value: Any, name: str | None = None) -> Any:
        """Return what ``value`` stands for in an expression."""
        if isinstance(value, Reference):
            return value.load()
        if isinstance(value, ir.Var):
            self.check_alive(value, name)
            return self._scalars.get(value, value)
        if isinstance(value, ir.Expr) and is_scalar_expr(value):
            for var in undefined_vars(value):
                self.check_alive(var)
        return value

    def let(self, value: ir.Expr, name: str) -> ir.Var:
        """Bind the scalar expression ``value`` to a new immutable variable; of a member of a
        container, return its own."""
        if id(value) in self._kept:
            kept = self._kept[id(value)][1]
            if self._owner[kept].is_open:
                return kept
        var = tir_builder.Bind(value)
        IRBuilder.name(name, var)
        self.own(var)
        return var

    # -- order of evaluation ----------------------------------------------------------------------

    @contextlib.contextmanager
    def conditional(self, what: str) -> Iterator[Callable[[Any], None]]:
        """Trace what the program may evaluate not at all, or more than once, for `what`; yield what
        checks that the result still has all calls that do something."""
        around = self.is_conditional, self.held
        self.is_conditional, self.held = True, []

        def check(value: Any) -> None:
            if not all(has_call(value, call) for call in self.held):
                raise NotImplementedError(
                    f"{what} decides whether this operand is evaluated, and an operator on a "
                    "constant loses what a call in it does; call it in a statement before, or "
                    "under `if`"
                )

        try:
            yield check
        finally:
            self.is_conditional, self.held = around

    @contextlib.contextmanager
    def pending(self) -> Iterator[dict[int, Any]]:
        """Collect the operands of an operation while later ones are evaluated."""
        values: dict[int, Any] = {}
        self._pending.append(values)
        try:
            yield values
        finally:
            self._pending.pop()

    def evaluate_pending(self) -> None:
        """Evaluate the operands that stand to the left of what comes now."""
        for values in self._pending:
            for i, value in values.items():
                values[i] = self.evaluated(value)

    def evaluated(self, value: Any) -> Any:
        """Return a scalar as it is now: bound to a variable if the program may change it later; of
        a region, the scalars that say where it is."""
        if isinstance(value, ir.TensorRegion):
            return self._fixed(value)
        if not reads_memory(value):
            return value
        var = self.let(as_expr(value), "value")
        self.add_unnamed(var)
        return var

    def _fixed(self, region: ir.TensorRegion) -> ir.TensorRegion:
        """Return a region that stays where it is."""
        if not self.kernels or not any(
            reads_memory(bound) for r in region.region for bound in (r.min, r.extent)
        ):
            return region
        ranges = [
            ir.Range.from_min_extent(self.evaluated(r.min), self.evaluated(r.extent))
            for r in region.region
        ]
        return tirx.BufferRegion(region.source, ranges)

    def keep(self, place: ir.TensorLoad) -> ir.TensorLoad:
        """Return an element that becomes a member of a container: a place, where a tile may start,
        whose value is that of now. `EvaluateOnce` gives it to what computes with the element."""
        is_kept = id(place) in self._kept
        if is_kept or not self.kernels or place.source.scope() not in _WITH_VALUES:
            return place
        if any(isinstance(index, tirx.Ramp) for index in place.indices):
            return place
        place = tirx.BufferLoad(place.source, [self.evaluated(i) for i in place.indices])
        var = self.let(tirx.call_intrin(place.ty.dtype, "tl.element", place), "value")
        self.add_unnamed(var)
        self._kept[id(place)] = (place, var)
        return place

    def statements(self) -> list[Any]:
        """Return the statements of the innermost scope so far."""
        # What follows a declaration, as of a view, is in a frame of its own.
        frames = list(self.builder.frames)
        first = len(frames) - 1
        while isinstance(frames[first], DeclBufferFrame):
            first -= 1
        return [statement for frame in frames[first:] for statement in frame.stmts]


class Reference:
    """A place that a macro's parameter stands for: a buffer's element or a region."""

    def __init__(self, target: ir.TensorLoad | ir.TensorRegion):
        self.target = target

    def load(self) -> ir.Expr:
        """Return the value of the place."""
        return self.target


def ended_scope_error(name: str, scope: Scope, is_tile: bool = False) -> RuntimeError:
    """Return the error for a use of ``name`` after the scope that it was bound in."""
    found = f"{name} is used after the {scope.description}, in which it was bound, has ended; "
    if scope.kind == "kernel":
        repair = "move what uses it into that kernel"
    elif is_tile:
        repair = "allocate it, or declare the view, in front of that"
    else:
        repair = f"declare it before as a mutable variable, {name} = T.alloc_var(dtype, init)"
    return RuntimeError(found + repair)


def is_storable(value: Any) -> bool:
    """Whether assigning ``value`` to a mutable scalar stores it (other values rebind the name)."""
    return is_number(value) or is_scalar_expr(value)


def _innermost_span(traceback: TracebackType | None, statement: ir.Span) -> ir.Span:
    """Return the place of the expression in ``statement`` that raised, as far as Python knows it
    (from 3.11)."""
    span = statement
    if sys.version_info >= (3, 11):
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if code.co_filename == statement.source_name.name:
                places = itertools.islice(code.co_positions(), traceback.tb_lasti // 2, None)
                line, _, column, _ = next(places)
                if (
                    line is not None
                    and column is not None
                    and statement.line <= line <= statement.end_line
                ):
                    span = ir.Span(statement.source_name, line, line, column + 1, column + 1)
            traceback = traceback.tb_next
    return span


class _Verbatim(str):
    """Text that ``repr`` leaves as it is, since that is what KeyError shows."""

    __repr__ = str.__str__


def add_location(error: Exception, span: ir.Span) -> None:
    """Append the place to the message of ``error``, once (see tilelang/_snippet.py)."""
    if getattr(error, "tilelang_location", None) is not None:
        return
    text = snippet(span.source_name.name, span.line, span.column)
    if error.args and isinstance(error.args[0], str):
        message = repr(error.args[0]) if isinstance(error, KeyError) else error.args[0]
        error.args = (_Verbatim(message + text), *error.args[1:])
    else:
        error.args = (*error.args, _Verbatim(text))
    error.tilelang_location = f"{span.source_name.name}:{span.line}"  # type: ignore[attr-defined]
