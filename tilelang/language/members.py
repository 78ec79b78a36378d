"""Members of Python's lists and dicts that a function sets while it is traced.

A loop or a branch of the program is traced once, so a member that is set in it has that value for
the trace behind it, whatever the program does. Names have the same rules (bindings.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilelang.language.tracer import Scope

_REPAIR = "keep it in a T.alloc_var, or several in a T.alloc_local array"


class Members:
    """Where members are read and set, of containers that the function has given a name."""

    def __init__(self) -> None:
        self._bound: dict[int, tuple[Any, Scope]] = {}
        self._read: dict[tuple[int, Any], Scope] = {}
        self._set: dict[tuple[int, Any], Scope] = {}

    def bind(self, container: Any, scope: Scope) -> None:
        """Note the first name of a container, which is as old as that."""
        if type(container) in (list, dict):
            self._bound.setdefault(id(container), (container, scope))

    def read(self, container: Any, index: Any, scopes: Sequence[Scope]) -> None:
        """Check a use of ``container[index]``.

        Raises
        ------
        RuntimeError
            If it was set in a loop or a branch that has ended.
        """
        key, inner = self._place(container, index, scopes)
        if key is None:
            return
        was_set = self._set.get(key)
        if was_set is not None and not was_set.is_open:
            raise RuntimeError(
                f"member {index!r} of a {type(container).__name__} is used after the "
                f"{was_set.description}, in which it was set, has ended; {_REPAIR}"
            )
        loop = next((s for s in reversed(inner) if s.is_loop), None)
        if loop is not None:
            self._read[key] = loop

    def set(self, container: Any, index: Any, scopes: Sequence[Scope]) -> None:
        """Check ``container[index] = number``.

        Raises
        ------
        RuntimeError
            If a loop around has read it.
        """
        key, inner = self._place(container, index, scopes)
        if key is None:
            return
        loop = self._read.get(key)
        if loop is not None and loop.is_open:
            raise RuntimeError(
                f"member {index!r} of a {type(container).__name__} is read in the "
                f"{loop.description} and given a new value in it, which the next iteration would "
                f"not see; {_REPAIR}"
            )
        control = [s for s in inner if s.is_loop or s.kind == "branch"]
        if control:
            self._set[key] = control[-1]
        else:
            self._set.pop(key, None)

    def _place(
        self, container: Any, index: Any, scopes: Sequence[Scope]
    ) -> tuple[tuple[int, Any] | None, Sequence[Scope]]:
        """Return the member, None if its container has no name, and the scopes inside of the one
        where it got that."""
        if id(container) not in self._bound or not isinstance(index, int | str):
            return None, ()
        if isinstance(index, int) and index < 0 and type(container) is list:
            index += len(container)
        around = self._bound[id(container)][1].open_ancestor()
        return (id(container), index), scopes[around.depth + 1 :]
