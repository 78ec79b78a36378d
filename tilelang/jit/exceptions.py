"""Exception classes of tracing and just-in-time compilation."""

from __future__ import annotations


class JITNoBuilderError(Exception):
    """A ``T`` construct was used outside a function that is being traced.

    Example: calling ``T.Kernel(1)`` or a ``@T.macro`` from ordinary Python code.
    """


class EagerJITBuildError(Exception):
    """A function in eager style could not be turned into a program."""
