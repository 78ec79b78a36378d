"""Other names of keywords."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def also_called(**others: str) -> Callable[[F], F]:
    """Lets a function take parameters under other names: ``also_called(other="name")``.

    A call that gives a parameter under both names is a `TypeError`.

    Example: ``@also_called(lo="min_val", hi="max_val")``
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            for other in [name for name in keywords if name in others]:
                name = others[other]
                if name in keywords:
                    raise TypeError(
                        f"T.{function.__name__} found {name} and {other}, which are one parameter; "
                        "give it once"
                    )
                keywords[name] = keywords.pop(other)
            return function(*args, **keywords)

        return call  # type: ignore[return-value]

    return decorate
