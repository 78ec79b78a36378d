"""Keys of compile-time arguments."""

from __future__ import annotations

import array
import dataclasses
import enum
import sys
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

from tilelang.language.dtypes import dtype as data_type

LIBRARIES = frozenset({"tilelang", "tvm", "tvm_ffi", "torch", "numpy", "ml_dtypes"})
"""Modules whose classes are none of the user's, beside Python's."""
_PLAIN = frozenset({int, bool, str, type(None), data_type})


def hashable(value: Any) -> Hashable:
    """A key that tells apart what is equal but traces differently, such as 1, 1.0 and True.

    Lists, dicts, sets and arrays count by their elements. So do objects by their attributes whose
    class says when two are equal, as a dataclass does: it may leave out an attribute, or take 1
    for 1.0. What else cannot be hashed counts by its repr.

    Example: ``hashable(1) != hashable(True)``
    """
    return _key(value, ())


def _key(value: Any, around: tuple[int, ...]) -> Hashable:
    """The key of a value in containers and objects, given by their addresses."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is float:
        return (kind, value.hex())  # -0.0 equals 0.0, and NaN does not equal itself
    if id(value) in around:
        return (kind, around.index(id(value)))
    inside = (*around, id(value))
    if isinstance(value, tuple | list):
        elements: Hashable = tuple([_key(element, inside) for element in value])
        return (kind, elements, *_attributes(value, inside))
    if isinstance(value, dict):
        elements = tuple([(_key(k, inside), _key(v, inside)) for k, v in value.items()])
        return (kind, elements, *_attributes(value, inside))
    if isinstance(value, set | frozenset):
        elements = frozenset([_key(element, inside) for element in value])
        return (kind, elements, *_attributes(value, inside))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        # Its repr leaves out the middle of a large one.
        return (kind, str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, bytearray | memoryview | array.array):
        return (kind, bytes(value))
    try:
        hash(value)
    except TypeError:
        return (kind, _attributes(value, inside) or repr(value))
    if _is_equal_by_its_class(value):
        base = value if isinstance(value, int | float | str | bytes) else None
        return (kind, base, *_attributes(value, inside))
    return (kind, value)


def _is_equal_by_its_class(value: Any) -> bool:
    """Whether a class of the user's says when two of its objects are equal."""
    kind = type(value)
    if isinstance(value, type | enum.Enum) or kind.__eq__ is object.__eq__:
        return False
    root = kind.__module__.partition(".")[0]
    return root not in LIBRARIES and root not in sys.stdlib_module_names


def _attributes(value: Any, around: tuple[int, ...]) -> tuple[Hashable, ...]:
    found = dict(getattr(value, "__dict__", ()))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return tuple([(name, _key(found[name], around)) for name in sorted(found)])


def copied(value: Any) -> Any:
    """A value with lists and dicts of its own, which nobody else changes."""
    if type(value) is dict:
        return {name: copied(v) for name, v in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def is_comparable(value: Any) -> bool:
    """Whether a call can tell by a comparison in C (`same` in the adapter) that an argument is what
    it was to a trace, as long as what the trace reads of it is unchanged.

    It compares lists and dicts with copies, numbers and texts by value, and all else by identity.
    """
    if type(value) in (tuple, list):
        return all(map(is_comparable, value))
    if type(value) is dict:
        return all(map(is_comparable, (*value, *value.values())))
    return is_constant(value)


def is_constant(value: Any) -> bool:
    """Whether the same object is the same to a trace, as long as what the trace reads of it is
    unchanged: nothing can change the value, or `hashable` knows it by its identity."""
    kind = type(value)
    if kind in _PLAIN or kind is float or isinstance(value, type | enum.Enum | torch.dtype):
        return True
    if kind is tuple:
        return all(map(is_constant, value))
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        return all(is_constant(getattr(value, field.name)) for field in dataclasses.fields(value))
    return kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
