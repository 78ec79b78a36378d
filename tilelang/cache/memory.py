"""What kernels of this process share, for as long as one of them lives."""

from __future__ import annotations

import weakref
from typing import Any

_kept: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def find(key: str) -> Any:
    """What `keep` was given, or None."""
    return _kept.get(key)


def keep(key: str, value: Any) -> None:
    """Keeps `value`, which never changes, until nobody else does."""
    _kept[key] = value


def forget() -> None:
    """Forgets all."""
    _kept.clear()
