"""Keys of compile-time arguments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.tensors import Tensor

_PLAIN = frozenset({int, bool, str, type(None), data_type})


def hashable(value: Any) -> Hashable:
    """A key that tells apart what is equal but traces differently, such as 1, 1.0 and True.

    A tensor, or a `T.Tensor` in its place, counts by dtype, shape and strides, and what cannot be
    hashed by its repr.

    Example: ``hashable(1) != hashable(True)``
    """
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is float:
        return (kind, value.hex())  # -0.0 equals 0.0, and NaN does not equal itself
    if isinstance(value, tuple):
        return (type(value), tuple([hashable(element) for element in value]))
    if isinstance(value, torch.Tensor):
        return (torch.Tensor, value.dtype, tuple(value.shape), value.stride())
    if isinstance(value, Tensor):
        return (Tensor, repr(value))
    try:
        hash(value)
    except TypeError:
        return (kind, repr(value))
    return (kind, value)
