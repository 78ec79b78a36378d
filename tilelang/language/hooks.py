"""What rewritten code calls (see rewrite.py): decides between Python's meaning and the program's.

The hooks of names are in bindings.py, of conditions in conditions.py, of loops and branches in
control_flow.py.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import math
import operator
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from tvm import ir
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.bindings import store_region
from tilelang.language.containers import key_of, members_of_set, searched
from tilelang.language.control_flow import ControlFlowHooks
from tilelang.language.dtypes import dtype_of
from tilelang.language.effects import has_effect
from tilelang.language.members import is_followed
from tilelang.language.order import OfOperands, is_of_numbers
from tilelang.language.python_functions import in_program
from tilelang.language.ranks import peer
from tilelang.language.regions import store, subscript
from tilelang.language.requirements import comparisons
from tilelang.language.scalars import describe, is_buffer, is_scalar_expr, unwrap
from tilelang.language.source import traced_code
from tilelang.language.state import has_contents, is_of_arrays, is_of_user, variables_around
from tilelang.language.tracer import (
    BuilderFrame,
    Frame,
    Reference,
    Tracer,
    is_storable,
    read_members,
)

# Functions of Python's that read the members of a container, besides those of numbers
# (python_functions.py).
_READERS = {
    id(f)
    for f in (
        *(dict, enumerate, filter, iter, len, list, map, next, reversed, sorted),
        *(tuple, zip, functools.reduce, math.prod, copy.copy, copy.deepcopy),
        *(f for f in vars(itertools).values() if isinstance(f, type)),
    )
}
# Those of which the members are hashed.
_OF_SETS = (set, frozenset, Counter)
# Methods of Python's containers.
_OF_KEYS = ("get", "pop", "setdefault", "add", "remove", "discard")
_SEARCH = ("count", "index", "remove")
_ADD_MEMBERS = ("append", "appendleft", "insert", "setdefault", "update")


def is_record(kind: type) -> bool:
    """Whether a class is a named tuple, or a dataclass whose fields alone are set."""
    is_plain = dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__")
    return is_plain or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


class Hooks(ControlFlowHooks):
    """The hooks of one call of a traced function."""

    slice = builtins.slice

    def __init__(self, tracer: Tracer, spans: Sequence[ir.Span]):
        super().__init__(tracer)
        self.spans = spans
        self.result: ir.Span | None = None
        """The place of the ``return`` that ended the function."""

    def at(self, place: int) -> None:
        """Set the place in the source of what follows."""
        self.tracer.at(self.spans[place])

    # -- places -----------------------------------------------------------------------------------

    def item(self, owner: Any, index: Any) -> Any:
        """Return ``owner[index]``; a mutable scalar stays its buffer."""
        if is_buffer(owner):
            self.tracer.check_alive(owner)
            return subscript(owner, index)
        if isinstance(owner, Reference):
            owner = owner.load()
        if isinstance(owner, ir.TensorRegion | ir.TensorLoad):
            raise TypeError(f"{describe(owner)} cannot be indexed again; index its buffer once")
        if isinstance(owner, list | tuple):
            index = _position(owner, index)
        elif isinstance(owner, dict):
            index = key_of(owner, index)
        self.tracer.members.read(owner, index, self.tracer.scopes)
        return unwrap(owner[index])

    def store(self, value: Any, owner: Any, index: Any) -> None:
        """Run ``owner[index] = value``."""
        if isinstance(owner, list):
            index = _position(owner, index)
        elif isinstance(owner, dict):
            index = key_of(owner, index, is_new=True)
        if is_buffer(owner):
            self.tracer.check_alive(owner)
            indices = index if isinstance(index, list | tuple) else (index,)
            if not any(isinstance(i, slice) for i in indices):
                store(owner, index, value)
            else:
                store_region(subscript(owner, index), value)
        elif isinstance(owner, ir.Expr | Reference):
            what = owner.load() if isinstance(owner, Reference) else owner
            raise TypeError(
                f"{describe(what)} cannot be assigned to by index; index its buffer once"
            )
        elif not (
            isinstance(owner, list | dict)
            and is_storable(value)
            and (isinstance(owner, list) or index in owner)
            and self.store_through(owner[index], value)
        ):
            self.tracer.members.set(owner, index, self.tracer.scopes)
            owner[index] = self.element(value)

    def attribute(self, owner: Any, name: str) -> Any:
        """Return ``owner.name``; a mutable scalar stays its buffer."""
        if name == "dtype" and isinstance(owner, ir.Expr):
            return dtype_of(owner)
        if name == "peer" and is_buffer(owner):
            return lambda rank: peer(owner, rank)
        if isinstance(owner, list | dict | set | deque):
            return self._method(owner, name)
        if name == "astype" or isinstance(owner, Reference):
            owner = self.tracer.read(owner)
        self.tracer.members.read(owner, name, self.tracer.scopes)
        return getattr(owner, name)

    def _method(self, owner: Any, name: str) -> Any:
        """Return a method of a container."""
        found = getattr(owner, name)
        method = self._with_members(found) if name in _ADD_MEMBERS else found
        if not callable(found):
            return found
        members, scopes = self.tracer.members, self.tracer.scopes

        def checked(*arguments: Any, **named: Any) -> Any:
            if name in _OF_KEYS and isinstance(owner, dict | set) and arguments:
                is_new = name in ("add", "setdefault")
                arguments = (key_of(owner, arguments[0], is_new), *arguments[1:])
            members.method(owner, name, arguments, scopes)
            if name in ("get", "setdefault"):
                members.read(owner, arguments[0], scopes)
            if name in ("extend", "extendleft"):
                arguments = ([self.element(member) for member in arguments[0]],)
            return searched(method, *arguments) if name in _SEARCH else method(*arguments, **named)

        return checked

    def _with_members(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of members of a container."""
        return lambda *members, **named: method(
            *map(self.element, members), **{k: self.element(v) for k, v in named.items()}
        )

    def function(self, function: Any) -> Any:
        """Return what a call calls: the members of a record are those of a container."""
        owner = getattr(function, "__self__", None)
        if has_contents(owner):
            self.tracer.members.read(owner, None, self.tracer.scopes)
        if isinstance(function, type):
            if function in _OF_SETS:
                return partial(self._of_set, function)
            if (
                is_record(function)
                or is_followed(function)
                or function in (dict, functools.partial)
            ):
                return self._with_members(function)
        elif is_of_user(function):
            return partial(self._plain, function)
        if function is builtins.getattr:
            return self._getattr
        if function is builtins.setattr:
            return lambda owner, name, value: self.set_attribute(value, owner, name)
        if id(function) in _READERS or is_of_arrays(function):
            return partial(self._reading, function)
        return in_program(function)

    def function_of_calls(self, function: Any) -> Any:
        """Return what a call calls that has other calls as arguments."""
        called = self.function(function)
        return OfOperands(called, self.operand) if is_of_numbers(called) else called

    def _getattr(self, owner: Any, name: str, *default: Any) -> Any:
        if default and not hasattr(owner, name):
            self.tracer.members.read(owner, name, self.tracer.scopes)
            return default[0]
        return self.value(self.attribute(owner, name))

    def _reading(self, function: Any, *args: Any, **kw: Any) -> Any:
        """Call a function of Python's that reads the members of its arguments."""
        read_members(*args, *kw.values())
        return in_program(function)(*args, **kw)

    def _of_set(self, function: Any, *members: Any, **kw: Any) -> Any:
        """Call a function that keeps one of several equal members."""
        if members and not isinstance(members[0], Mapping):
            read_members(*members)
            members = ([*members[0]], *members[1:])
            members_of_set(members[0])
        return self._with_members(function)(*members, **kw)

    members_of_set = staticmethod(members_of_set)

    def _plain(self, function: Any, *args: Any, **kw: Any) -> Any:
        """Call a function of the user's that is not traced, which may read what it is given and add
        to it."""
        args = tuple(map(self.operand, args))
        kw = {name: self.operand(value) for name, value in kw.items()}
        owner = getattr(function, "__self__", None)
        if owner is not None and is_followed(owner):
            # What an object keeps is a value of now.
            args = tuple(map(self.element, args))
            kw = {name: self.element(value) for name, value in kw.items()}
        given = [v for v in (*args, *kw.values()) if is_followed(v)]
        for value in given:
            self.tracer.members.check(value, self.tracer.scopes)
        behind = self.tracer.members.call(function, [*args, *kw.values()], self.tracer.scopes)
        result = function(*args, **kw)
        behind()
        for value in given if owner is None else (owner, *given):
            self.settled(value, is_new=False)
        return result

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        """Run ``owner.name = value``."""
        if isinstance(owner, ir.Expr | ir.Type | Reference):
            raise NotImplementedError(
                f"attribute {name} of {describe(owner)} cannot be assigned; assign to elements, "
                "buf[i] = x"
            )
        if not (is_storable(value) and self.store_through(getattr(owner, name, None), value)):
            value = self.element(value)
            self.tracer.name(name, value)
            self.tracer.members.set(owner, name, self.tracer.scopes)
            setattr(owner, name, value)

    # -- statements -------------------------------------------------------------------------------

    def emit(self, value: Any) -> None:
        """Run an expression statement: a call in IR becomes a statement."""
        if isinstance(value, Frame):
            raise TypeError(
                f"a {value.description} does nothing as a statement; write `for ... in ...:` or "
                "`with ...:`"
            )
        if isinstance(value, ir.Call):
            tir_builder.evaluate(value)

    def returned(self, value: Any) -> Any:
        """Check a ``return`` and return its value."""
        control = self.tracer.runtime_scope(self.base)
        if control is not None:
            raise NotImplementedError(
                f"`return` in the {control.description} is not supported; "
                "return at the end, and put the rest under the opposite condition"
            )
        self.result = self.tracer.span
        if self.tracer.is_conditional and is_scalar_expr(value) and not has_effect(value):
            return value  # a variable in front of a `while` would have one value for all iterations
        return self.evaluated(value)

    def declared(self, name: str, annotation: Callable[[], Any], value: Any) -> Any:
        """Return the parameter ``name`` after ``name: annotation``, which means something in a
        function in eager style only (see eager.py)."""
        return value

    def outer(self, name: str, value: Callable[[], Any]) -> Any:
        """Return what ``name``, which is no variable of the function, stands for in a
        declaration."""
        return value()

    def declarations_end(self) -> None:
        """Note that every parameter has been declared."""

    def assertion(self, condition: Any, message: Callable[[], Any]) -> None:
        """Run ``assert condition, message()`` on Python values; on sizes and scalars of the call it
        becomes a check of the call."""
        condition = self.condition(condition)
        if isinstance(condition, ir.Expr):
            wanted = None
            if self.tracer.runtime_scope(self.base) is None:
                wanted = comparisons(condition, self.tracer.is_owned)
            if wanted is None:
                raise NotImplementedError(
                    f"`assert {condition}` depends on values of the kernel's run, wanted "
                    "comparisons of sizes; T.device_assert(condition) checks those, or guard with "
                    "`if`"
                )
            for comparison in wanted:
                self.tracer.header.require(comparison, str(message() or ""), self.tracer.span)
            return
        if not condition:
            raise AssertionError(message() or "assertion failed while tracing")

    def ignored(self) -> None:
        """Warn about a statement after ``break`` or ``continue``."""
        self.tracer.warn("this statement and what follows it is never reached and is ignored")

    def context(self, manager: Any, names: Any) -> Any:
        """Return the context manager of ``with manager as names``."""
        if isinstance(manager, ir.Expr | Reference):
            raise TypeError(
                f"{describe(manager)} cannot be used in `with`; wanted T.Kernel or the like"
            )
        return _Context(self, manager, names)

    def nested(self, function: Any) -> Any:
        """Return a function that is defined in a traced function as what it is there: a macro."""
        from tilelang.language.macros import Macro

        return Macro(function)


class _Context:
    """A ``with`` whose variables are bound by the hooks."""

    def __init__(self, hooks: Hooks, manager: Any, names: Any):
        self.hooks = hooks
        self.manager = BuilderFrame(manager) if isinstance(manager, IRBuilderFrame) else manager
        self.names = names

    def __enter__(self) -> Any:
        return self.hooks.bind_targets(self.names, self.manager.__enter__())

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self.manager.__exit__(exc_type, exc, traceback)


def _position(owner: list[Any] | tuple[Any, ...], index: Any) -> Any:
    """Return an index of a Python sequence as Python takes it.

    Raises
    ------
    TypeError
        If only the run knows it.
    """
    index = unwrap(index)
    if isinstance(index, int | slice):
        return index
    if is_scalar_expr(index):
        raise TypeError(
            f"index {describe(index)} of a {type(owner).__name__} has no value while "
            "tracing; wanted a number: loop in Python (`for k in [0, 1]:`), or keep the members in "
            "a T.alloc_local array"
        )
    return operator.index(index)


def _names_around(function: Any) -> Iterator[Any]:
    """Yield what a function uses of the functions around it and of its module."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        # One that is empty is of a name that is bound later.
        with contextlib.suppress(ValueError):
            yield cell.cell_contents
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]


def call_traced(
    tracer: Tracer,
    function: Any,
    arguments: inspect.BoundArguments,
    hooks_of: Callable[[Tracer, Sequence[ir.Span]], Hooks] = Hooks,
) -> Any:
    """Run ``function`` in its rewritten form as part of the trace ``tracer`` and return its
    result.

    What the caller says about the result is said of the ``return``, if there is one.
    """
    code = traced_code(function)
    hooks = hooks_of(tracer, code.spans)
    for value in _names_around(function):
        tracer.members.bind(value, tracer.scopes[:1])
    for variable in variables_around(function):
        tracer.members.load(variable)
    for name, value in arguments.arguments.items():
        hooks.parameter(name, value)
    result = code.bind(function, hooks)(*arguments.args, **arguments.kwargs)
    if hooks.result is not None:
        # The scopes that it left have set the place to theirs.
        tracer.at(hooks.result)
    return result
