"""Keys of compile-time arguments."""

from __future__ import annotations

import array
import dataclasses
import enum
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch

from tilelang.language.dtypes import dtype as data_type

_PLAIN = frozenset({int, bool, str, type(None), data_type})


def hashable(value: Any) -> Hashable:
    """A key that tells apart what is equal but traces differently, such as 1, 1.0 and True.

    Lists, dicts, sets and arrays count by their elements; what else cannot be hashed counts by its
    repr.

    Example: ``hashable(1) != hashable(True)``
    """
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is float:
        return (kind, value.hex())  # -0.0 equals 0.0, and NaN does not equal itself
    if isinstance(value, tuple | list):
        return (kind, tuple([hashable(element) for element in value]))
    if isinstance(value, dict):
        return (kind, tuple([(hashable(k), hashable(v)) for k, v in value.items()]))
    if isinstance(value, set | frozenset):
        return (kind, frozenset([hashable(element) for element in value]))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        # Its repr leaves out the middle of a large one.
        return (kind, str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, bytearray | memoryview | array.array):
        return (kind, bytes(value))
    try:
        hash(value)
    except TypeError:
        return (kind, repr(value))
    return (kind, value)


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
