"""Members of Python's containers and objects that a function changes while it is traced.

A loop or a branch of the program is traced once, so what is changed in it (a member that is set, a
list that grows, an attribute) has that state for the trace behind it, whatever the program does.
Names have the same rules (bindings.py): what a loop or a branch has changed must not be used after
it, nor read in a loop before the loop changes it.

What changed is found by comparison, whoever changed it: a container or an object is copied, one
level deep, where a loop or a branch begins, or where it is first met there, and compared where that
ends.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from tvm_ffi import Object

from tilelang.language.scalars import is_buffer
from tilelang.language.state import (
    CONTENTS,
    LIBRARIES,
    Variable,
    contents_of,
    has_contents,
    package_of,
    uses_of,
)

if TYPE_CHECKING:
    from tilelang.language.tracer import Scope

CONTAINERS = (list, dict, set, deque)
"""The classes of Python's containers."""
# Methods of theirs: that add members and read none, that read one, that remove members.
_ADD = frozenset(("append", "appendleft", "extend", "extendleft", "add", "clear"))
_OF_ONE = frozenset(("get", "setdefault", "update"))
_REMOVE = frozenset(("insert", "pop", "popleft", "popitem", "remove", "discard"))
LITERALS = (bool, int, float, str, bytes, type(None))
"""The classes of values that never change."""


# The place of how many members there are, and which: what iterating over a container reads.
_ALL = object()
_ABSENT = object()
_Place = tuple[int, Any]


class Members:
    """Where members are read and changed, of containers and objects that are older than the loop
    or the branch."""

    def __init__(self) -> None:
        # By its id, what is followed (which keeps the id its own), and the scope that made it.
        self._known: dict[int, tuple[Any, Scope]] = {}
        self._named: dict[int, Any] = {}
        # Variables around functions that are not traced, which these set, and what is loaded of
        # variables around, by whomever.
        self._variables: dict[Any, Variable] = {}
        self._loaded: set[Any] = set()
        self._settled: dict[int, Any] = {}
        # Iterators that names have been given, and where.
        self._iterators: dict[int, tuple[Any, Scope]] = {}
        # The members when the trace met them first in a loop or a branch.
        self._before: dict[Scope, dict[int, dict[Any, Any]]] = {}
        # What an open loop has read while it was still as it was in front of the loop.
        self._read: dict[Scope, dict[_Place, None]] = {}
        # What a loop or a branch that has ended changed, with the value that it left.
        self._changed: dict[_Place, tuple[Scope, Any]] = {}
        # The loop or the branch in which a member was set last by an assignment.
        self._set: dict[_Place, Scope] = {}

    # -- what is followed -------------------------------------------------------------------------

    def bind(self, value: Any, scopes: Sequence[Scope]) -> None:
        """Note that ``value``, which a name has been given, and the containers in it are as old as
        the innermost scope, if they are new to the trace."""
        if isinstance(value, LITERALS) or id(value) in self._named:
            return
        if isinstance(value, Iterator) and id(value) not in self._iterators:
            self._iterators[id(value)] = (value, scopes[-1])
        if has_state(value):
            self._named[id(value)] = value
        if type(value) is tuple or has_state(value):
            self._age(value, scopes[-1], scopes)

    def _age(self, value: Any, scope: Scope, scopes: Sequence[Scope]) -> None:
        if type(value) is not tuple:
            if id(value) in self._known or not has_state(value):
                return
            self._known[id(value)] = (value, scope)
        # What has no age is as old as the function.
        if self._inside(scopes[0], scopes):
            for member in value if type(value) is tuple else _members(value).values():
                if not isinstance(member, LITERALS):
                    self._age(member, scope, scopes)

    def is_settled(self, value: Any, scopes: Sequence[Scope]) -> bool:
        """Whether this was asked of a container or an object before; else it is as old as the
        innermost scope, unless that is known."""
        known = id(value) in self._settled
        self._settled[id(value)] = value
        self._age(value, scopes[-1], scopes)
        return known

    def load(self, variable: Variable) -> None:
        """Note that the traced function names a variable around it."""
        self._loaded.add(variable.identity)

    def open(self, scopes: Sequence[Scope]) -> None:
        """Copy what names have been given, for the loop or the branch that begins."""
        if scopes[-1].is_loop or scopes[-1].kind == "branch":
            for value in self._named.values():
                self.meet(value, scopes)

    def meet(self, value: Any, scopes: Sequence[Scope]) -> None:
        """Copy the members of ``value`` for the loops and branches around, if this is where it is
        first met in them."""
        if not has_state(value):
            return
        _, made = self._known.setdefault(id(value), (value, scopes[0]))
        copied = None
        for scope in self._inside(made, scopes):
            before = self._before.setdefault(scope, {})
            if id(value) not in before:
                copied = _members(value) if copied is None else copied
                before[id(value)] = copied
        # Code that is not traced may change these as well.
        for member in (copied or {}).values():
            if isinstance(member, CONTAINERS):
                self._known.setdefault(id(member), (member, made))
                self.meet(member, scopes)

    @staticmethod
    def _inside(made: Scope, scopes: Sequence[Scope]) -> list[Scope]:
        """Return the loops and branches inside of the scope that made a container."""
        inner = scopes[made.open_ancestor().depth + 1 :]
        return [s for s in inner if s.is_loop or s.kind == "branch"]

    # -- uses -------------------------------------------------------------------------------------

    def read(self, owner: Any, index: Any, scopes: Sequence[Scope]) -> None:
        """Check a use of ``owner[index]``, or of an attribute.

        Raises
        ------
        RuntimeError
            If a loop or a branch that has ended changed it.
        """
        self.meet(owner, scopes)
        if id(owner) not in self._known:
            return
        if has_contents(owner):
            self._read_one(owner, CONTENTS, scopes)
        elif isinstance(owner, list) and isinstance(index, int):
            self._read_at(owner, index, scopes)
        elif isinstance(index, slice):
            self.read_all(owner, scopes)
        else:
            self._read_one(owner, _key(index), scopes)

    def read_all(self, owner: Any, scopes: Sequence[Scope]) -> None:
        """Check a use of all members of a container.

        Raises
        ------
        RuntimeError
            If a loop or a branch that has ended changed one of them, or how many there are.
        """
        if id(owner) in self._iterators:
            self._check_iterator(owner, scopes)
        if has_contents(owner):
            self.read(owner, CONTENTS, scopes)
        self.meet(owner, scopes)
        if not isinstance(owner, CONTAINERS) or id(owner) not in self._known:
            return
        self._check_grown(owner, scopes)
        for key in (_ALL, *_members(owner)):
            self._read_one(owner, key, scopes)

    def _read_at(self, owner: list[Any], index: int, scopes: Sequence[Scope]) -> None:
        from_end = index < 0
        index += len(owner) if from_end else 0
        # What this iteration has appended is found from the end, and from there only.
        grown = self._grown(owner, scopes)
        if grown is not None and from_end and index >= grown[1]:
            return
        if grown is not None and (from_end or index >= grown[1]):
            self._check_grown(owner, scopes)
        if from_end:
            self._read_one(owner, _ALL, scopes)
        self._read_one(owner, index, scopes)

    def _grown(self, owner: Any, scopes: Sequence[Scope]) -> tuple[Scope, int] | None:
        """Return the loop that has changed how many members a list has, and how many there were."""
        if isinstance(owner, list | deque):
            cleared = self._set.get((id(owner), _ALL))
            for scope in self._inside(self._known[id(owner)][1], scopes):
                before = self._before[scope][id(owner)]
                is_new = cleared is not None and cleared.is_open and cleared.depth >= scope.depth
                if scope.is_loop and len(before) != len(owner) and not is_new:
                    return scope, len(before)
        return None

    def _check_grown(self, owner: Any, scopes: Sequence[Scope]) -> None:
        grown = self._grown(owner, scopes)
        if grown is not None:
            raise RuntimeError(
                f"{_described(owner, _ALL)} is read in the {grown[0].description} and gets or "
                "loses members in it, which only the first iteration would not see; make it in "
                "the loop, or use a T.alloc_local array"
            )

    def _check_iterator(self, iterator: Any, scopes: Sequence[Scope]) -> None:
        control = self._inside(self._iterators[id(iterator)][1], scopes)
        if control:
            raise RuntimeError(
                f"a {type(iterator).__name__} goes on in the {control[-1].description}, which is "
                "traced once, so that each iteration would see the same; index a list by the "
                "loop's variable, or make the iterator there"
            )

    def _read_one(self, owner: Any, key: Any, scopes: Sequence[Scope]) -> None:
        place = (id(owner), key)
        self._check_end(owner, place)
        now = _member(owner, key)
        set_in = self._set.get(place)
        for scope in self._inside(self._known[id(owner)][1], scopes):
            is_set = set_in is not None and set_in.is_open and set_in.depth >= scope.depth
            if scope.is_loop and not is_set:
                before = self._before[scope][id(owner)]
                was = tuple(before) if key is _ALL else before.get(key, _ABSENT)
                if _is_same(was, now):
                    self._read.setdefault(scope, {})[place] = None

    def _check_end(self, owner: Any, place: _Place) -> None:
        changed = self._changed.get(place)
        if changed is None:
            return
        set_in = self._set.get(place)
        is_renewed = set_in is not None and set_in.is_open
        if not is_renewed and _is_same(changed[1], _member(owner, place[1])):
            what = "got or lost members" if place[1] is _ALL else "was set"
            raise RuntimeError(
                f"{_described(owner, place[1])} is used after the {changed[0].description}, in "
                f"which it {what}, has ended; {_repair(changed[1])}"
            )

    def changes(self) -> bool:
        """Whether a loop or a branch that has ended changed something."""
        return bool(self._changed)

    def check(self, owner: Any, scopes: Sequence[Scope]) -> None:
        """Check that no loop or branch that has ended changed a member of ``owner``.

        Raises
        ------
        RuntimeError
            If one did.
        """
        for place in [p for p in self._changed if p[0] == id(owner)]:
            self._check_end(owner, place)

    def method(self, owner: Any, name: str, arguments: Any, scopes: Sequence[Scope]) -> None:
        """Check the use of a container by one of its methods.

        Raises
        ------
        RuntimeError
            If it reads what a loop or a branch that has ended changed, or changes what a loop
            around has read.
        """
        if name == "pop" and not arguments and isinstance(owner, list):
            self.read(owner, -1, scopes)
        elif name not in _ADD and name not in _OF_ONE:
            self.read_all(owner, scopes)
        if name in _ADD or name in _REMOVE:
            self.change_size(owner, scopes)
        if name == "clear":
            self._renew(owner, _ALL, scopes)

    # -- changes ----------------------------------------------------------------------------------

    def set(self, owner: Any, index: Any, scopes: Sequence[Scope]) -> None:
        """Check ``owner[index] = value``, or of an attribute, in front of it.

        Raises
        ------
        RuntimeError
            If a loop around has read it.
        """
        self.meet(owner, scopes)
        if id(owner) not in self._known:
            return
        if isinstance(owner, list) and isinstance(index, int) and index < 0:
            index += len(owner)
        if has_contents(owner):
            # An element of an array is not told from the others.
            self._check_loops(owner, (id(owner), CONTENTS), scopes)
        elif not isinstance(index, slice):
            self._check_loops(owner, (id(owner), _key(index)), scopes)
            self._renew(owner, _key(index), scopes)

    def _renew(self, owner: Any, key: Any, scopes: Sequence[Scope]) -> None:
        """Note that what is there from now on is of this iteration."""
        place = (id(owner), key)
        control = self._inside(self._known[id(owner)][1], scopes)
        if control:
            self._set[place] = control[-1]
        else:
            self._set.pop(place, None)
            self._changed.pop(place, None)

    def change_size(self, owner: Any, scopes: Sequence[Scope]) -> None:
        """Check that ``owner`` gets or loses a member, in front of it.

        Raises
        ------
        RuntimeError
            If a loop around has asked how many there are.
        """
        self.meet(owner, scopes)
        self._check_loops(owner, (id(owner), _ALL), scopes)

    def _check_loops(self, owner: Any, place: _Place, scopes: Sequence[Scope]) -> None:
        loop = next((s for s in reversed(scopes) if place in self._read.get(s, ())), None)
        if loop is not None:
            what = "gets or loses members" if place[1] is _ALL else "is given a new value"
            raise RuntimeError(
                f"{_described(owner, place[1])} is read in the {loop.description} and {what} in "
                f"it, which the next iteration would not see; {_repair(_member(owner, place[1]))}"
            )

    # -- calls of functions that are not traced ---------------------------------------------------

    def call(
        self, function: Any, given: Sequence[Any], scopes: Sequence[Scope]
    ) -> Callable[[], None]:
        """Check the call of a function that is not traced, a method perhaps, in front of it;
        returns what is to be called behind it. ``given`` are its arguments.

        Raises
        ------
        RuntimeError
            If it reads what a loop or a branch that has ended changed.
        """
        owner = getattr(function, "__self__", None)
        uses = uses_of(function, owner)
        _, made = self._known.get(id(function), (None, scopes[0]))
        for variable in uses.sets:
            kept = self._variables.setdefault(variable.identity, variable)
            self._known.setdefault(id(kept), (kept, made))
            self.meet(kept, scopes)
        self._loaded |= uses.loads
        for identity in uses.loads & self._variables.keys():
            self._read_one(self._variables[identity], "value", scopes)
        owners = {id(v): v for v in (owner, *given, *uses.around) if has_state(v)}
        for value in owners.values():
            self.meet(value, scopes)
            if has_contents(value):
                self.read(value, CONTENTS, scopes)
            elif not isinstance(value, CONTAINERS):
                for name in uses.first_loads & _members(value).keys():
                    self._read_one(value, name, scopes)
        before = [
            (v, _members(v))
            for v in owners.values()
            if isinstance(v, CONTAINERS) and uses.loads_elements
        ]
        return partial(self._called, before, scopes)

    def _called(self, before: list[tuple[Any, dict[Any, Any]]], scopes: Sequence[Scope]) -> None:
        """Note that a call has read the members that it has changed."""
        for owner, was in before:
            for key, now in _members(owner).items():
                if key not in was or _is_same(was[key], now):
                    continue
                for scope in self._inside(self._known[id(owner)][1], scopes):
                    first = self._before[scope][id(owner)].get(key, _ABSENT)
                    if scope.is_loop and _is_same(first, was[key]):
                        self._read.setdefault(scope, {})[id(owner), key] = None

    def close(self, scope: Scope) -> None:
        """Note what the scope, which ends, has changed.

        Raises
        ------
        RuntimeError
            If it is a loop that has read something before it changed it.
        """
        read = self._read.pop(scope, {})
        for identity, before in self._before.pop(scope, {}).items():
            owner = self._known[identity][0]
            now = _members(owner)
            keys = [
                k
                for k in dict.fromkeys(itertools.chain(before, now))
                if not _is_same(before.get(k, _ABSENT), now.get(k, _ABSENT))
            ]
            if before.keys() != now.keys() or (keys and isinstance(owner, set | deque)):
                keys.append(_ALL)
            for key in keys:
                if isinstance(owner, Variable) and owner.identity in self._loaded:
                    raise RuntimeError(
                        f"variable {owner.name} is set in the {scope.description}, which is "
                        "traced once, by a function that is not traced, and is read; "
                        f"{_repair(None)}"
                    )
                place = (identity, key)
                if place in read:
                    self._check_loops(owner, place, self._reader(scope, read))
                self._changed[place] = (scope, _member(owner, key))

    def _reader(self, scope: Scope, read: dict[_Place, None]) -> Sequence[Scope]:
        self._read[scope] = read
        return (scope,)


def is_followed(value: Any) -> bool:
    """Whether ``value`` is a container of Python's, or a class of the user's or an object of it."""
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, (*CONTAINERS, SimpleNamespace)) or (
        kind.__flags__ & _HEAP_TYPE != 0
        and not isinstance(value, Object | FunctionType | ModuleType | BaseException)
        and package_of(kind) not in _OTHERS
        and (hasattr(value, "__dict__") or bool(_slots(kind)))
    )


def has_state(value: Any) -> bool:
    """Whether a trace follows what changes of ``value``: members, attributes or elements."""
    if isinstance(value, FunctionType | Variable) or has_contents(value):
        return True
    # Macros are functions, too.
    return is_followed(value) or "__wrapped__" in getattr(value, "__dict__", ())


# Classes that a `class` statement has made.
_HEAP_TYPE = 1 << 9
_OTHERS = (*LIBRARIES, "builtins", "enum")


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    return names


def _members(owner: Any) -> dict[Any, Any]:
    """Return the members of a container or an object as they are now."""
    if isinstance(owner, list | deque):
        return dict(enumerate(owner))
    if isinstance(owner, set):
        return {_key(member): member for member in owner}
    if isinstance(owner, dict):
        return {_key(key): member for key, member in owner.items()}
    if has_contents(owner):
        return {CONTENTS: contents_of(owner)}
    if isinstance(owner, Variable):
        return owner.get()
    members = dict(getattr(owner, "__dict__", {}))
    for name in _slots(type(owner)):
        if hasattr(owner, name):
            members[name] = getattr(owner, name)
    return members


def _member(owner: Any, key: Any) -> Any:
    """Return a member as it is now, ``_ABSENT`` if there is none, or the keys of all."""
    if key is _ALL:
        return tuple(_members(owner))
    if isinstance(owner, list):
        return owner[key] if 0 <= key < len(owner) else _ABSENT
    if isinstance(owner, dict) and isinstance(key, LITERALS):
        return owner.get(key, _ABSENT)
    return _members(owner).get(key, _ABSENT)


def _key(index: Any) -> Any:
    """Return what a member is known by: expressions have no hash that says whether they are
    equal."""
    if type(index) is tuple:
        return tuple(map(_key, index))
    return index if isinstance(index, LITERALS) else ("id", id(index))


def _is_same(a: Any, b: Any) -> bool:
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a is b or (type(a) is type(b) and isinstance(a, LITERALS) and a == b)


def _described(owner: Any, key: Any) -> str:
    kind = (owner if isinstance(owner, type) else type(owner)).__name__
    if key is CONTENTS:
        return f"the state of {kind}"
    if key is _ALL:
        return f"a {kind}"
    if isinstance(owner, CONTAINERS):
        return f"member {key!r} of a {kind}"
    if isinstance(owner, Variable):
        return f"variable {owner.name}"
    return f"attribute {key} of {kind}"


def _repair(member: Any) -> str:
    if is_buffer(member):
        return "allocate one buffer of one dimension more, and choose by index: buf[i % 2, j]"
    return "keep it in a T.alloc_var, or several in a T.alloc_local array"


__all__ = ["CONTAINERS", "LITERALS", "Members", "has_state", "is_followed"]
