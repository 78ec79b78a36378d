"""Keys of compile-time arguments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

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
    try:
        hash(value)
    except TypeError:
        return (kind, repr(value))
    return (kind, value)
