"""Calls whose arguments do not fit a signature: Python says which argument, these errors also say
of which function, and what it takes."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def bind(
    signature: inspect.Signature,
    where: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    partial: bool = False,
) -> inspect.BoundArguments:
    """Return the arguments of a call of the function that `where` names; with `partial`, some may
    be missing.

    Raises
    ------
    TypeError
        If they do not fit the signature.

    Example
    -------
    ``bind(inspect.signature(f), "f", (1,), {}).arguments``
    """
    try:
        return (signature.bind_partial if partial else signature.bind)(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{where}: {error}; {advice(str(error), signature)}") from None


def advice(error: str, signature: inspect.Signature) -> str:
    """Return what to pass instead, for Python's words on arguments that do not fit.

    Example
    -------
    ``"did you mean 'block'? It takes (A, block=32)"``
    """
    takes = f"t takes ({', '.join(_parameters(signature))})"
    keyword = re.search(r"unexpected keyword argument '(\w+)'", error)
    close = difflib.get_close_matches(keyword[1], signature.parameters, n=1) if keyword else []
    return f"did you mean {close[0]!r}? I{takes}" if close else f"i{takes}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Names, with defaults whose text is short, and no annotations."""
    has_star = False
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and not has_star:
            yield "*"
        has_star |= p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        stars = "*" * ((p.kind is p.VAR_POSITIONAL) + 2 * (p.kind is p.VAR_KEYWORD))
        is_plain = type(p.default) in (bool, int, float, str, type(None))
        default = "" if p.default is p.empty else f"={p.default!r}" if is_plain else "=.."
        yield f"{stars}{p.name}{default}"


def place_of(function: Callable[..., Any]) -> str:
    """Return which function it is, for an error message: name, file and line."""
    code = inspect.unwrap(function).__code__
    return f"Function `{function.__name__}` ({code.co_filename}:{code.co_firstlineno})"


__all__ = ["advice", "bind", "place_of"]
