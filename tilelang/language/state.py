"""State that plain Python code keeps where a trace does not see it: in arrays, in random number
generators, and in variables around functions.

A function that is not traced may read and change all of these. What it reads before it changes it
follows from its code: an attribute whose first mention there is a load, for example that of
``self.count += 1``.
"""

from __future__ import annotations

import array
import dis
import functools
import hashlib
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any

LIBRARIES = ("tilelang", "tvm", "torch", "numpy", "functools")
"""Packages whose functions take the program's expressions."""

CONTENTS = object()
"""The place of all elements of an array, and of the state of a generator of random numbers."""


def _is_of(value: Any, module: str, name: str) -> bool:
    """Whether ``value`` is of a class of a library, which is loaded then."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _is_tensor(value: Any) -> bool:
    return _is_of(value, "torch", "Tensor")


def _is_ndarray(value: Any) -> bool:
    return _is_of(value, "numpy", "ndarray")


def has_contents(value: Any) -> bool:
    """Whether ``value`` is an array that Python code can change, or draws random numbers."""
    kinds = (bytearray, array.array, random.Random)
    return isinstance(value, kinds) or _is_ndarray(value) or _is_tensor(value)


def contents_of(value: Any) -> Any:
    """What changes where the contents of ``value`` do."""
    if isinstance(value, random.Random):
        return value.getstate()
    if _is_tensor(value):
        # Tensors of inference mode count no changes.
        return None if value.is_inference() else value._version
    if _is_ndarray(value):
        if value.dtype.hasobject:
            return tuple(value.flat)
        return value.shape, hashlib.blake2b(value.tobytes()).digest()
    return hashlib.blake2b(value).digest()


def is_of_user(function: Any) -> bool:
    """Whether ``function`` is a function or a method in Python that is not traced, and not one of a
    library that takes the program's expressions."""
    if isinstance(function, MethodType):
        function = function.__func__
    return isinstance(function, FunctionType) and package_of(function) not in LIBRARIES


def is_of_arrays(function: Any) -> bool:
    """Whether ``function`` is one of the libraries of arrays, which reads those that it is
    given."""
    return package_of(function) in ("numpy", "torch")


def package_of(definition: Any) -> str:
    module = getattr(definition, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


@dataclass(frozen=True)
class Variable:
    """A variable of a module or of a function around; `identity` is what it is known by."""

    name: str
    identity: Any
    get: Callable[[], dict[str, Any]]


@dataclass
class Uses:
    """What functions that are not traced do to state, by their code."""

    first_loads: set[str] = field(default_factory=set)
    """Attributes that are loaded before they are stored."""
    loads_elements: bool = False
    """Whether there is an ``x[i]`` that is read."""
    sets: list[Variable] = field(default_factory=list)
    """Variables around that they set."""
    loads: set[Any] = field(default_factory=set)
    """Variables around that they load, but for ``x += 1``."""
    around: list[Any] = field(default_factory=list)
    """Values of variables around."""


def uses_of(function: Any, owner: Any) -> Uses:
    """What ``function``, perhaps a method of ``owner``, and the functions that it names do."""
    found = Uses()
    todo, seen = [function], set()
    while todo:
        one = todo.pop()
        one = one.__func__ if isinstance(one, MethodType) else one
        if not isinstance(one, FunctionType) or one in seen or not _is_followed(one):
            continue
        seen.add(one)
        code = _code_uses(one.__code__)
        found.first_loads |= code.first_loads
        found.loads_elements |= code.loads_elements
        values: list[Any] = []
        for variable in variables_around(one):
            values += variable.get().values()
            if variable.name in code.sets:
                found.sets.append(variable)
            if variable.name in code.loads:
                found.loads.add(variable.identity)
        found.around += values
        todo += values
        todo += [getattr(type(owner), name) for name in code.names if hasattr(type(owner), name)]
    return found


def _is_followed(function: FunctionType) -> bool:
    return is_of_user(function) and package_of(function) not in sys.stdlib_module_names


def variables_around(function: FunctionType) -> Iterator[Variable]:
    """The variables of the functions around ``function`` and of its module that it names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield Variable(name, id(cell), functools.partial(_content_of, cell))
    module = function.__globals__
    for name in _code_uses(function.__code__).names & module.keys():
        yield Variable(name, (id(module), name), functools.partial(_global_of, module, name))


def _content_of(cell: Any) -> dict[str, Any]:
    try:
        return {"value": cell.cell_contents}
    except ValueError:  # a variable that has no value yet
        return {}


def _global_of(module: dict[str, Any], name: str) -> dict[str, Any]:
    return {"value": module[name]} if name in module else {}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@dataclass(frozen=True)
class _CodeUses:
    """The same of a function's code alone, by names, and all names in it."""

    first_loads: frozenset[str]
    loads_elements: bool
    sets: frozenset[str]
    loads: frozenset[str]
    names: frozenset[str]


@functools.cache
def _code_uses(code: CodeType) -> _CodeUses:
    first_loads: set[str] = set()
    stored: set[str] = set()
    sets: set[str] = set()
    loads: Counter[str] = Counter()
    loads_elements = False
    for inner in _codes(code):
        is_update = False
        for step in dis.get_instructions(inner):
            kind, _, place = step.opname.partition("_")
            if place in ("ATTR", "METHOD"):
                if kind == "LOAD" and step.argval not in stored:
                    first_loads.add(step.argval)
                elif kind == "STORE":
                    stored.add(step.argval)
            elif place in ("DEREF", "GLOBAL") and kind in ("LOAD", "STORE"):
                if kind == "STORE":
                    sets.add(step.argval)
                # An update has loaded it once.
                loads[step.argval] += {"LOAD": 1, "STORE": -is_update}[kind]
            # Python 3.12 has an instruction for slices, 3.14 makes an operator of both.
            is_element = step.opname in ("BINARY_SUBSCR", "BINARY_SLICE")
            loads_elements |= is_element or step.argrepr == "[]"
            is_operator = step.opname == "BINARY_OP" and step.argrepr.endswith("=")
            is_update = kind == "INPLACE" or is_operator
    return _CodeUses(
        frozenset(first_loads),
        loads_elements,
        frozenset(sets),
        frozenset(name for name, count in loads.items() if count > 0),
        frozenset(name for inner in _codes(code) for name in inner.co_names),
    )


__all__ = [
    "CONTENTS",
    "LIBRARIES",
    "Uses",
    "Variable",
    "contents_of",
    "has_contents",
    "is_of_arrays",
    "is_of_user",
    "package_of",
    "uses_of",
    "variables_around",
]
