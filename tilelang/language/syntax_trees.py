"""Syntax trees of text, made by one thread at a time.

CPython 3.11 counts the depth of the tree that it builds in one place for all threads. A collection
of garbage in the middle lets another thread in, and then the first one fails with "SystemError: AST
constructor recursion depth mismatch".
"""

from __future__ import annotations

import ast
import threading

# What is collected meanwhile may come here again.
_one_thread = threading.RLock()


def parse(text: str) -> ast.Module:
    """As `ast.parse`.

    Example: ``parse("x = 1").body[0].lineno == 1``
    """
    with _one_thread:
        return ast.parse(text)


def parse_expression(text: str) -> ast.Expression:
    """As ``ast.parse(text, mode="eval")``.

    Example: ``parse_expression("x + 1").body.lineno == 1``
    """
    with _one_thread:
        return ast.parse(text, mode="eval")
