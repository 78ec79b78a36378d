"""Hooks of names: what an assignment binds, and which uses of it the program could not follow.

A name of the traced function has one of three referents: an immutable variable of the program, a
mutable scalar or reference (assigning stores), or any Python value. Python runs the body of a loop
of the program once, so a binding made in it must be neither used after the loop nor carried into
the next iteration: read there before it is bound again. In front of a ``break`` there is none.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, tirx

from tilelang.language.arithmetic import binary
from tilelang.language.conditions import ConditionHooks
from tilelang.language.copies import copy
from tilelang.language.dtypes import dtype
from tilelang.language.effects import reads_memory
from tilelang.language.fills import fill
from tilelang.language.members import LITERALS, is_followed
from tilelang.language.regions import store, store_element
from tilelang.language.scalars import (
    describe,
    is_buffer,
    is_of_program,
    is_scalar_expr,
    unwrap,
)
from tilelang.language.tracer import (
    LOOP_KINDS,
    Frame,
    Reference,
    Scope,
    Tracer,
    ended_scope_error,
    is_storable,
    read_members,
)

_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd,
    "Sub": operator.isub,
    "Mult": operator.imul,
    "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod,
    "Pow": operator.ipow,
    "LShift": operator.ilshift,
    "RShift": operator.irshift,
    "BitAnd": operator.iand,
    "BitOr": operator.ior,
    "BitXor": operator.ixor,
    "MatMult": operator.imatmul,
}


class _Binding:
    """What a name of the traced function refers to, and where that was decided."""

    __slots__ = ("conditional", "is_let", "loop", "scope", "span", "value")

    def __init__(self, value: Any, scope: Scope, span: ir.Span, is_let: bool, conditional: bool):
        self.value = value
        self.scope = scope
        self.span = span
        self.is_let = is_let
        # Bound in a loop or branch that need not run: the value must not be used after it.
        self.conditional = conditional
        # The outermost loop inside `scope` in which the value was read last.
        self.loop: Scope | None = None


class BindingHooks(ConditionHooks):
    """Hooks of reading and assigning names."""

    def __init__(self, tracer: Tracer):
        super().__init__(tracer)
        self.bindings: dict[str, _Binding] = {}
        self.decided = 0
        """How many branches that Python decided are around the statement."""
        self.left: Scope | None = None
        """The loop of the program that ends with the statements here, by a ``break``."""

    def parameter(self, name: str, value: Any) -> None:
        """Bind a parameter of the function, or a variable of a loop."""
        scope = self.tracer.scope
        conditional = scope is not self.base and is_scalar_expr(value)
        self.bindings[name] = _Binding(value, scope, self.tracer.span, False, conditional)
        self.tracer.members.bind(value, self.tracer.scopes)

    def name(self, name: str, value: Any) -> Any:
        """Check a use of a local variable and return what it refers to."""
        binding = self.bindings.get(name)
        if binding is not None and binding.value is value:
            if not binding.scope.is_open and binding.conditional:
                raise ended_scope_error(name, binding.scope, self.tracer.is_tile(value))
            inner = self.tracer.scopes[binding.scope.open_ancestor().depth + 1 :]
            binding.loop = next((s for s in inner if s.kind in LOOP_KINDS), binding.loop)
        self.tracer.check_alive(value, name)
        return value

    def read(self, name: str, value: Any) -> Any:
        """Return the value of a local variable in an expression."""
        return self.tracer.read(self.name(name, value), name)

    def value(self, value: Any) -> Any:
        """Return the value of another variable (of an enclosing function, a comprehension) in an
        expression."""
        return self.tracer.read(value)

    def element(self, value: Any) -> Any:
        """Return a member of a container: an expression that the program may change later is
        evaluated now; an element may also stand for a tile that starts there."""
        is_place = isinstance(value, ir.TensorLoad) and not self.tracer.is_scalar_buffer(
            value.source
        )
        if is_place:
            return self.tracer.keep(value)
        return self.settled(value if type(value) is tuple else self.evaluated(value))

    def settled(self, value: Any, is_new: bool = True) -> Any:
        """Return a container or an object that code which is not traced has put together: its
        members have the values of now. Those that were settled before have, unless `is_new` is
        False."""
        kind = type(value)
        if kind in LITERALS:
            return value
        if issubclass(kind, tuple):
            members = [self.element(v) for v in value]
            if all(map(operator.is_, members, value)):
                return value
            return kind._make(members) if hasattr(kind, "_make") else tuple(members)
        if isinstance(value, type) or not is_followed(value):
            return value
        if self.tracer.members.is_settled(value, self.tracer.scopes) and is_new:
            return value
        if isinstance(value, list | deque):
            for i, member in enumerate(value):
                value[i] = self.element(member)
        elif not isinstance(value, set):
            named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
            for name, member in list(named.items()):
                settled = self.element(member)
                if settled is not member:
                    named[name] = settled
        return value

    def place(self, index: Any) -> Any:
        """Return an index as it is now."""
        if type(index) is slice:
            bounds = (index.start, index.stop, index.step)
            return slice(*map(self.tracer.evaluated, bounds))
        if type(index) is tuple:
            return tuple(map(self.place, index))
        return self.tracer.evaluated(index)

    def evaluated(self, value: Any) -> Any:
        """Return a value as it is now: bound to a variable if the program may change it later."""
        if type(value) is tuple:
            return tuple(self.evaluated(v) for v in value)
        return self.tracer.evaluated(value)

    def bind(self, name: str, value: Any) -> Any:
        """Assign to a local variable: store to a mutable scalar, else bind; return its new
        referent."""
        tracer = self.tracer
        old = self.bindings.get(name)
        if old is not None:
            stores = is_storable(value) or (
                isinstance(old.value, Reference) and isinstance(value, ir.TensorRegion)
            )
            if stores and self.store_through(old.value, value):
                return old.value
        value = self._entered(value)
        value = unwrap(value)
        new = self._let(name, value)
        if old is not None:
            self._check_rebinding(name, old, new)
        control = tracer.runtime_scope(self.base)
        conditional = control is not None and (
            control.kind == "branch"
            or is_scalar_expr(new)
            or (old is not None and (old.conditional or old.scope.depth < control.depth))
        )
        scope = control if conditional and control is not None else tracer.scope
        self.bindings[name] = _Binding(new, scope, tracer.span, new is not value, conditional)
        tracer.name(name, new)
        tracer.members.bind(new, tracer.scopes)
        return new

    def bind_now(self, name: str, value: Any) -> Any:
        """Run ``name := value`` and return the new referent of the name."""
        old = self.bindings.get(name)
        if old is not None and self._is_place(old.value):
            raise NotImplementedError(
                f"`:=` is not supported in a kernel for {name}, a mutable variable, which operands "
                "on the left may read; assign in a statement before"
            )
        return self.bind(name, value)

    def store_through(self, place: Any, value: Any) -> bool:
        """Store to ``place`` if it is a mutable scalar or a reference; False if it is not."""
        if isinstance(place, Reference):
            target = place.target
            if isinstance(target, ir.TensorRegion):
                store_region(target, value)
            else:
                store_element(target, value)
            return True
        if self.tracer.is_scalar_buffer(place):
            self.tracer.check_alive(place)
            store(place, 0, value)
            return True
        return False

    def _let(self, name: str, value: Any) -> Any:
        """Bind a scalar expression that is not a variable or a constant to an immutable
        variable, and those of where a region is."""
        if isinstance(value, ir.TensorRegion):
            return self.tracer.evaluated(value)
        value = self.settled(value)
        if not is_scalar_expr(value) or isinstance(value, ir.Var | ir.Constant | tirx.FloatImm):
            return value
        # Shapes and grids are made of host expressions, which no variable of the kernel can be
        # part of.
        if not self.tracer.kernels and not reads_memory(value):
            return value
        return self.tracer.let(value, name)

    def _check_rebinding(self, name: str, old: _Binding, new: Any) -> None:
        if not old.scope.is_open or old.value is new:
            return
        inner = next((s for s in reversed(self.tracer.scopes) if s.kind in LOOP_KINDS), None)
        is_last = self.left is not None and old.loop is self.left is inner
        if old.loop is not None and old.loop.is_open and not is_last:
            raise RuntimeError(
                f"{name} is read in the {old.loop.description} and given a new value in it, which "
                f"the next iteration would not see; make it mutable: {name} = T.alloc_var(dtype, "
                "init)"
            )
        # The same statement again is one that Python's own loop repeats; under a condition that
        # Python knows, there is no other way to have one name for both cases.
        is_repeated = old.span.same_as(self.tracer.span)
        if old.is_let and is_scalar_expr(new) and not is_repeated and not self.decided:
            self.tracer.warn(
                f"{name} is immutable and is bound a second time, to a new variable; "
                f"for a value that changes use {name} = T.alloc_var(dtype, init)"
            )

    def unpack(self, value: Any, names: Sequence[str | None], star: int | None) -> Sequence[Any]:
        """Return the values of a tuple assignment to ``names`` (None for a place that is not a
        name)."""
        value = self._entered(value)
        read_members(value)
        if isinstance(value, ir.Var) and not is_buffer(value) and len(names) == 1:
            value = [value]
        if isinstance(value, ir.Expr):
            raise TypeError(
                f"cannot unpack {describe(value)} into {len(names)} names, wanted a Python tuple "
                "or list of as many; index its elements instead"
            )
        values = list(value)
        if star is not None and len(values) >= len(names) - 1:
            end = len(values) - (len(names) - 1 - star)
            values[star:end] = [values[star:end]]
        if len(values) != len(names):
            raise ValueError(f"found {len(values)} values to unpack, wanted {len(names)}")
        return self._evaluated(values, names)

    def shared(self, value: Any, names: Sequence[str | None]) -> Any:
        """Return the value of a chained assignment."""
        return self._evaluated([self._entered(value)], names)[0]

    def _entered(self, value: Any) -> Any:
        """Enter ``value`` for the rest of the scope if it is a new frame, and return what it binds.

        A frame that is open, such as `T.KernelLaunchFrame.Current()`, is an object like any other.
        """
        if not isinstance(value, Frame) or any(s.frame is value for s in self.tracer.scopes):
            return value
        return self.tracer.enter(value, rest=True)

    def _evaluated(self, values: list[Any], names: Sequence[str | None]) -> list[Any]:
        """Evaluate ``values`` now if assigning to ``names`` stores to memory that they may read."""
        bindings = [None if name is None else self.bindings.get(name) for name in names]
        if not any(
            name is None or (binding is not None and self._is_place(binding.value))
            for name, binding in zip(names, bindings, strict=True)
        ):
            return values
        return [self._let("value", unwrap(v)) for v in values]

    def _is_place(self, value: Any) -> bool:
        return isinstance(value, Reference) or self.tracer.is_scalar_buffer(value)

    def annotated(self, annotation: Callable[[], Any], value: Any) -> Any:
        """Return the value of ``x: annotation = value``: cast if the annotation is a data type."""
        is_memory = is_buffer(value) or isinstance(value, ir.TensorRegion)
        if not is_memory and not is_storable(value):
            return value
        wanted = annotation()
        if not isinstance(wanted, dtype):
            return value
        if is_memory:
            raise TypeError(
                f"found {describe(value)} for a name annotated with {wanted}, wanted a scalar; "
                "leave the annotation out, or convert the elements with T.copy"
            )
        return wanted(value)

    def augment(self, name: str, current: Any, value: Any) -> Any:
        """Return the value of ``current op= value``."""
        if is_buffer(current) or isinstance(current, ir.TensorRegion):
            raise RuntimeError(
                f"{describe(current)} has no in-place arithmetic; "
                "write the elements in a T.Parallel loop: `for i in T.Parallel(n): buf[i] += x`"
            )
        if is_of_program(current) or is_of_program(value):
            return binary(name, current, value)
        return _IN_PLACE[name](current, value)

    def bind_targets(self, names: Any, value: Any) -> Any:
        """Bind the target of a ``for`` or ``with`` and return the value that Python unpacks into
        it."""
        if names is None:
            return value
        if isinstance(names, str):
            self.tracer.name(names, value)
            self.parameter(names, value)
            return value
        if isinstance(value, ir.Var) and len(names) == 1:
            value = [value]
        if isinstance(value, ir.Expr):
            raise ValueError(
                f"found one value to unpack, wanted {len(names)}; give one extent for each name"
            )
        values = list(value)
        if any(isinstance(n, tuple) and n[:1] == ("*",) for n in names):
            return values
        if len(values) != len(names):
            raise ValueError(f"found {len(values)} values to unpack, wanted {len(names)}")
        return [self.bind_targets(n, v) for n, v in zip(names, values, strict=True)]


def store_region(target: ir.TensorRegion, value: Any) -> None:
    """Emit ``buf[a:b] = value``: fill with a scalar, copy anything else."""
    if is_storable(value) and not isinstance(value, ir.TensorRegion):
        fill(target, value)
    else:
        copy(value, target)
