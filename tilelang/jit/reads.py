"""What a trace reads besides the arguments of its call: globals, variables of enclosing functions,
attributes, and the same of each function that it may call.

It is found in bytecode, before the trace: each chain of names ``config.tile.m`` that begins with a
global, a variable of an enclosing function or a parameter. A chain is followed through modules,
classes and objects of the user's; what it ends at counts as a whole: a number by its value, a list
by its elements, a tensor by how often it was written, an object by its attributes, a function,
macro or class by its identity, and besides by what it reads itself. What libraries hold (Python's,
torch's, TVM's, tilelang's own) and what changes behind a name that no bytecode has
(`getattr(config, name)` of a module, `globals()`, an environment variable, a file) is not seen.

What a function only writes, as a counter of its traces, is none of its reads. `Reads.unchanged` is
what each call asks: a few comparisons of identity.
"""

from __future__ import annotations

import array
import ast
import builtins
import collections
import contextvars
import dis
import enum
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from tilelang.jit.cache_key import LIBRARIES, hashable
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.source import definition_tree
from tilelang.language.syntax_trees import parse_expression
from tilelang.language.texts import CodeMap
from tilelang.runtime.adapter.cython._adapter import ABSENT, Snapshot, Snapshots

Chain = tuple[str, ...]
"""A name and the attributes that are read of it."""

_STANDARD = sysconfig.get_path("stdlib")
_VALUES = (
    *(int, float, complex, str, bytes, type(None), type(...), range, enum.Enum, np.generic),
    *(torch.dtype, torch.device, torch.Size, np.dtype, data_type),
)
_PLAIN_OBJECTS = (
    *("types.SimpleNamespace", "argparse.Namespace"),
    *(f"collections.{name}" for name in ("ChainMap", "UserDict", "UserList", "UserString")),
)
"""Classes of Python's library that only hold attributes."""
_BYTES = (np.ndarray, bytearray, memoryview, array.array)
_METHODS = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    types.BuiltinMethodType,
)
"""Functions of built-in classes, which may read all of a value."""
_OF_NO_CONTENT = frozenset(
    (
        *("shape", "dtype", "device", "ndim", "layout", "is_cuda", "itemsize", "size", "stride"),
        *("numel", "dim", "element_size"),
    )
)
"""Attributes of a tensor that writing to it leaves as they are."""
_CONTAINERS = (tuple, list, set, frozenset, dict, collections.deque, *_BYTES)
_WRITERS = frozenset({"append", "extend", "insert", "add", "update", "clear", "discard", "remove"})
"""Methods of containers that tell nothing of the content."""
_MOST = 20_000
"""Reads of one trace; what is beyond is not seen."""


class _Same:
    """An object as a key: equal to itself alone. It keeps the object alive, hence its address."""

    def __init__(self, value: object):
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._value is other._value


@dataclass(frozen=True)
class _Names:
    """The chains of names in a function's code, by what they begin with."""

    outer: frozenset[Chain]
    """Globals, and variables of enclosing functions."""
    parameters: frozenset[Chain]


class Reads:
    """What a trace of ``function`` with compile-time arguments would read now.

    Attributes
    ----------
    key
        Equal for reads of the same values.
    snapshot
        The places that were read and what they held.
    """

    def __init__(
        self, function: Any, arguments: Mapping[str, Any], local: Mapping[str, Any] | None = None
    ):
        """``local`` are the variables where the function is defined, which annotations see."""
        finder = _Finder(local or {})
        finder.root(function, arguments)
        self.key: Hashable = tuple(finder.key)
        self.snapshot = finder.snapshot

    def unchanged(self) -> bool:
        """Whether everything is what it was; a value that was set again may count as changed."""
        return self.snapshot.unchanged()


class _Finder:
    def __init__(self, local: Mapping[str, Any]):
        self.key: list[Hashable] = []
        self.snapshot = Snapshot()
        self._local = local
        self._seen: dict[Any, object] = {}  # keeps what it has seen alive, hence apart

    def root(self, function: Any, arguments: Mapping[str, Any]) -> None:
        """Follow what is called, then the arguments."""
        self._function(_unwrapped(function), arguments, self._local)
        for value in arguments.values():
            self._argument(value)

    def _is_new(self, *what: Any) -> bool:
        """Whether ``what`` was not met before; names the first meeting in the key if it was."""
        key = tuple([w if type(w) is str else id(w) for w in what])
        if key in self._seen or len(self._seen) >= _MOST:
            return False
        self._seen[key] = what
        return True

    # Functions.

    def _function(
        self,
        function: types.FunctionType,
        arguments: Mapping[str, Any],
        local: Mapping[str, Any] | None = None,
    ) -> None:
        names = _names_of(function)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for chain in sorted(names.outer):
            value = self._variable(chain[0], function.__globals__, cells, local or {})
            self._chain(value, chain[1:])
        for chain in sorted(names.parameters):
            if chain[0] in arguments and len(chain) > 1:
                self._chain(arguments[chain[0]], chain[1:])
            elif chain[0] in arguments:
                self._argument(arguments[chain[0]], is_whole=True)

    def _variable(
        self,
        name: str,
        variables: dict[str, Any],
        cells: Mapping[str, types.CellType],
        local: Mapping[str, Any],
    ) -> Any:
        self.key.append(name)
        if name in cells:
            cell = cells[name]
            if self._is_new("cell", cell):
                self.snapshot.cell(cell, _content(cell))
            return _content(cell)
        if name in local and local is not variables:
            return self._slot(local, name)
        value = self._slot(variables, name)
        return getattr(builtins, name, ABSENT) if value is ABSENT else value

    def _called(self, function: Any, instance: Any = ABSENT) -> None:
        """Follow a function of the user's, whose first parameter may be bound."""
        function = _unwrapped(function)
        if not isinstance(function, types.FunctionType) or _is_library(function.__globals__):
            return
        bound: dict[str, Any] = {}
        if instance is not ABSENT and function.__code__.co_argcount:
            bound[function.__code__.co_varnames[0]] = instance
        if not self._is_new("function", function.__code__, function, *bound.values()):
            return
        # A reloaded module may put new code into the functions that others hold.
        self.key.append(_Same(self._by_getattr(function, "__code__")))
        self._whole(function.__defaults__)
        self._whole(function.__kwdefaults__)
        self._function(function, bound)

    # Values.

    def _slot(self, mapping: Mapping[Any, Any], name: Any) -> Any:
        value = mapping.get(name, ABSENT)
        if self._is_new("slot", mapping, str(name)) or type(name) is not str:
            self.snapshot.item(mapping, name, value)
        return value

    def _chain(self, value: Any, names: Chain) -> None:
        for name in names:
            self.key.append(name)
            value = self._attribute(value, name)
        self._whole(value)

    def _attribute(self, value: Any, name: str) -> Any:
        """Return an attribute to follow; `ABSENT` where all of it is found here."""
        if value is ABSENT or isinstance(value, _VALUES):
            self.key.append(hashable(value) if value is not ABSENT else ABSENT)
            return ABSENT
        if isinstance(value, list | set | dict) and name in _WRITERS:
            return ABSENT
        if isinstance(value, types.ModuleType):
            self.key.append(_Same(value))
            return ABSENT if _is_library(vars(value)) else self._slot(vars(value), name)
        if isinstance(value, type):
            owner = _owner(value, name)
            self.key.append(_Same(value))
            if owner is None:
                return self._of_metaclass(value, name)
            return self._bound(self._slot(vars(owner), name), value)
        if isinstance(value, torch.Tensor) and name in _OF_NO_CONTENT:
            self.key.append(_Same(value))
            return ABSENT
        if isinstance(value, types.FunctionType) and name in vars(value):
            self.key.append(_Same(value))
            return self._slot(vars(value), name)
        if not _is_users(value):
            self._whole(value)
            return ABSENT
        return self._attribute_of_object(value, name)

    def _bound(self, found: Any, kind: type) -> Any:
        """Return what a class has, to follow; a method of the class is followed here."""
        if not isinstance(found, classmethod):
            return found
        self.key.append(_Same(found))
        self._called(found.__func__, kind)
        return ABSENT

    def _of_metaclass(self, value: type, name: str) -> Any:
        kind = type(value)
        owner = _owner(kind, name)
        if owner is None or _is_of_library(owner):
            return ABSENT
        found = self._slot(vars(owner), name)
        return self._described(found, value, name) if hasattr(type(found), "__get__") else found

    def _attribute_of_object(self, value: Any, name: str) -> Any:
        kind, held = type(value), vars(value) if hasattr(value, "__dict__") else {}
        self.key.append(_Same(kind))
        owner = _owner(kind, name)
        found = vars(owner)[name] if owner is not None else None
        if hasattr(type(found), "__set__"):
            return self._described(found, value, name)
        if name in held:
            return self._slot(held, name)
        if owner is None:
            self._whole(value)  # __getattr__ makes it of anything
            return ABSENT
        self._slot(held, name)
        self._slot(vars(owner), name)
        if isinstance(found, staticmethod | classmethod) or not hasattr(type(found), "__get__"):
            return self._bound(found, kind)
        return self._described(found, value, name)

    def _described(self, found: Any, value: Any, name: str) -> Any:
        """Return what a descriptor of its class gives for an attribute of `value`, to follow."""
        self.key.append(_Same(found))
        get = type(found).__get__
        if isinstance(found, property | functools.cached_property):
            self._called(found.fget if isinstance(found, property) else found.func, value)
        elif isinstance(found, _METHODS):
            self._whole(value)
        elif isinstance(_unwrapped(found), types.FunctionType):
            self._called(found, value)
        elif not isinstance(get, types.FunctionType):  # of C: a slot, a field of a named tuple
            return self._by_getattr(value, name)
        elif not _is_library(get.__globals__):
            self._called(get, found)
            self._whole(found)
            self._whole(value)
        return ABSENT

    def _by_getattr(self, value: Any, name: str) -> Any:
        found = getattr(value, name, ABSENT)
        self.snapshot.attribute(value, name, found)
        return found

    def _argument(self, value: Any, is_whole: bool = False) -> None:
        """Follow an argument, whose lists and numbers select the trace by their values."""
        if isinstance(value, tuple | list | set | frozenset):
            for element in value:
                self._argument(element, True)
        elif isinstance(value, dict):
            for element in value.values():
                self._argument(element, True)
        elif not isinstance(value, _VALUES) and (is_whole or not _is_users(value)):
            self._whole(value)

    def _whole(self, value: Any) -> None:
        """Follow a value of which anything may be read."""
        key = self.key
        if isinstance(value, _VALUES) and type(value) is not types.FunctionType:
            key.append(hashable(value))
        elif value is ABSENT:
            key.append(ABSENT)
        elif isinstance(value, _CONTAINERS):
            self._container(value)
            if _is_users(value):
                self._object(value)
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, contextvars.ContextVar):
            key.append(_Same(value))
            content = value.get(ABSENT)
            self.snapshot.call(lambda: value.get(ABSENT) is content, (), True)
            self._whole(content)
        elif isinstance(value, types.BuiltinMethodType):
            key.append(value.__name__)
            self._whole(value.__self__)
        elif isinstance(value, types.ModuleType):
            key.append(_Same(value))
        elif isinstance(value, types.MethodType):
            key.append(_Same(value.__func__))
            self._called(value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self._whole(part)
        elif isinstance(value, staticmethod | classmethod):
            self._whole(value.__func__)
        elif isinstance(_unwrapped(value), types.FunctionType):
            key.append(_Same(value))
            self._called(value)
        elif isinstance(value, type):
            key.append(_Same(value))
            self._class(value)
        elif _is_users(value):
            self._object(value)
        else:
            key.append(_Same(value))

    def _container(self, value: Any) -> None:
        self.key.append(_Same(type(value)))
        if not self._is_new("container", value):
            return
        if isinstance(value, _BYTES):
            content = hashable(value)
            self.key.append(content)
            self.snapshot.call(lambda: hashable(value) == content, (), True)
            return
        self.key.append(len(value))
        if isinstance(value, dict):
            items = list(value.items())
            self.snapshot.length(value)
            for name, element in items:
                self.key.append(_member(name))
                self._slot(value, name)
                self._whole(element)
            return
        elements = tuple(value)
        if isinstance(value, list):
            self.snapshot.elements(value, elements)
        elif isinstance(value, collections.deque):
            self.snapshot.call(tuple, (value,), elements)
        elif isinstance(value, set):
            self.snapshot.call(
                lambda: len(value) == len(elements) and value.issuperset(elements), (), True
            )
            self.key.append(frozenset(map(_member, elements)))
            return
        for element in elements:
            self._whole(element)

    def _tensor(self, value: torch.Tensor) -> None:
        """Count how often the tensor was written, as torch does but in its mode of inference."""
        self.key.append(_Same(value))
        if not value.is_inference():
            version = value._version
            self.key.append(version)
            self.snapshot.call(lambda: value._version == version, (), True)

    def _object(self, value: Any) -> None:
        """Follow all attributes of an object of the user's."""
        kind = type(value)
        self.key.append(_Same(kind))
        if not self._is_new("object", value):
            return
        if hasattr(value, "__dict__"):
            self._container(vars(value))
        for cls in kind.__mro__:
            names = vars(cls).get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if name not in ("__dict__", "__weakref__"):
                    self._whole(self._by_getattr(value, name))
        self._class(kind)

    def _class(self, cls: type) -> None:
        """Follow the methods and attributes of a class of the user's."""
        for base in cls.__mro__:
            is_fixed = _is_of_library(base) or issubclass(base, enum.Enum)
            if is_fixed or not self._is_new("class", base):
                continue
            for name, member in list(vars(base).items()):
                if isinstance(member, property):
                    self._called(member.fget)
                elif isinstance(_unwrapped(member), types.FunctionType):
                    self._slot(vars(base), name)
                    self.key.append(_Same(member))
                    self._called(member)
                elif not name.startswith("__"):
                    self.key.append(name)
                    self._slot(vars(base), name)
                    if not isinstance(member, types.MemberDescriptorType):
                        self._whole(member)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return ABSENT


def _unwrapped(value: Any) -> Any:
    """Return the function in a macro, a function under `tilelang.jit`, and what else keeps the one
    that it was made of."""
    for _ in range(100):
        if isinstance(value, types.FunctionType) and not _is_library(value.__globals__):
            return value
        inner = getattr(value, "__dict__", {}).get("__wrapped__")
        if inner is None:
            return value
        value = inner
    return value


def _owner(kind: type, name: str) -> type | None:
    return next((base for base in kind.__mro__ if name in vars(base)), None)


def _member(value: Any) -> Hashable:
    """The key of a member of a set, or of a dict's key: an object's is its identity, since its
    attributes may lead to all others, as those of a tree's nodes do."""
    of_python = isinstance(value, _VALUES) or type(value) in (tuple, frozenset)
    return hashable(value) if of_python else _Same(value)


def _is_library(variables: Mapping[str, Any]) -> bool:
    """Whether a module, given by its variables, is none of the user's."""
    root = str(variables.get("__name__", "")).partition(".")[0]
    if root not in sys.stdlib_module_names:
        return root in LIBRARIES
    # A user's module may have the name of one of Python's.
    file = variables.get("__file__")
    return file is None or str(file).startswith(_STANDARD)


def _is_of_library(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and _is_library(vars(module))


def _is_users(value: Any) -> bool:
    """Whether a value is an object with attributes of the user's class."""
    kind = type(value)
    if f"{kind.__module__}.{kind.__name__}" in _PLAIN_OBJECTS:
        return True
    is_other = isinstance(value, types.FunctionType | types.ModuleType | type | torch.Tensor)
    return not is_other and not _is_of_library(kind)


_Version = TypeVar("_Version")


class Versions(Generic[_Version]):
    """What is made for one set of compile-time arguments: a version for each state of what its
    trace reads."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, _Version] = {}
        self.recent: Snapshots[_Version] = Snapshots()
        """Versions of the last calls, by what was read."""

    def current(self) -> _Version | None:
        """The version of now, if it is one of the last ones."""
        return self.recent.current()

    def renew(self, reads: Reads, make: Callable[[], _Version]) -> _Version:
        """The version for `reads`; `make` makes it if there is none."""
        version = self._by_key.get(reads.key)
        if version is None:
            version = self._by_key.setdefault(reads.key, make())
        self.recent.keep(reads.snapshot, version)
        return version

    def traced(self, version: _Version, reads: Reads) -> None:
        """Keep `version` for what its trace has left, too: it may fill tables as it goes."""
        if self._by_key.setdefault(reads.key, version) is version:
            self.recent.keep(reads.snapshot, version)


# Names in code.


_NAMES: CodeMap[_Names] = CodeMap()
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_CELL = ("LOAD_DEREF", "LOAD_CLASSDEREF")
_WRITES = ("STORE_GLOBAL", "STORE_DEREF")


def _names_of(function: types.FunctionType) -> _Names:
    code = function.__code__
    return _NAMES.get(code) or _NAMES.set(code, _find_names(function))


def _find_names(function: types.FunctionType) -> _Names:
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    outer: set[Chain] = set()
    inner: set[Chain] = set()
    written = {i.argval for i in dis.get_instructions(code) if i.opname in _WRITES}
    for is_cell, chain in _chains(code, frozenset(parameters)):
        if chain == (chain[0],) and chain[0] in written:
            continue
        if is_cell and chain[0] in parameters:
            inner.add(chain)
        elif not is_cell or chain[0] in code.co_freevars:
            outer.add(chain)
    try:
        annotations = list(_annotation_chains(definition_tree(function)))
    except (OSError, TypeError):
        annotations = []
    known = {*code.co_varnames, *code.co_cellvars}
    outer.update(chain for chain in annotations if chain[0] not in known)
    return _Names(frozenset(outer), frozenset(inner))


def _chains(code: types.CodeType, parameters: frozenset[str]) -> Iterator[tuple[bool, Chain]]:
    """Yield the chains in ``code`` and in the functions that it defines, each with whether it
    begins with a variable of a function."""
    chain: list[str] = []
    is_cell = False
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if chain and name in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(instruction.argval)
            continue
        if name == "EXTENDED_ARG":
            continue
        if chain:
            yield is_cell, tuple(chain)
        is_parameter = name.startswith("LOAD_FAST") and instruction.argval in parameters
        is_cell = name in _CELL or is_parameter
        chain = [instruction.argval] if is_cell or name in _GLOBAL else []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for is_cell, inner in _chains(constant, frozenset()):
                # What the function itself binds and is no parameter is found where it comes from.
                is_own = is_cell and inner[0] not in constant.co_freevars
                if not is_own:
                    yield is_cell, inner


def _annotation_chains(tree: ast.AST) -> Iterator[Chain]:
    """Yield the chains in annotations, which no bytecode may have: those of variables, and all
    where they are text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            annotation: ast.AST = node.annotation
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                try:
                    annotation = parse_expression(annotation.value)
                except SyntaxError:
                    continue
            yield from _expression_chains(annotation)


def _expression_chains(tree: ast.AST) -> Iterator[Chain]:
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):  # outer nodes come first
        if node in inner:
            continue
        names: list[str] = []
        root = node
        while isinstance(root, ast.Attribute):
            names.insert(0, root.attr)
            root = root.value
            inner.add(root)
        if isinstance(root, ast.Name):
            yield (root.id, *names)
