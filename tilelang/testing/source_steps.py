"""Smaller texts of a Python program: what `tilelang.autodd` tries."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

_BODIES = ("body", "orelse", "finalbody")
_WHOLE = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp, ast.Call, ast.Subscript)


def measure(text: str) -> tuple[int, int, int]:
    """How large a text is: nodes of its tree, the sum of its whole numbers, characters."""
    nodes = list(ast.walk(ast.parse(text)))
    return len(nodes), sum(_number(n) or 0 for n in nodes), len(text)


def smaller(text: str) -> Iterator[str]:
    """Smaller texts, each once, the boldest steps first: without statements, with a body instead of
    its statement, without arguments and elements, with parts of expressions, with smaller numbers.
    Comments are lost.
    """
    tree = ast.parse(text)
    seen, size = {text}, measure(text)
    for make in (_without_statements, _unwrapped, _without_parts, _expressions, _numbers):
        for changed in make(tree):
            candidate = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            if candidate not in seen:
                seen.add(candidate)
                if _is_program(candidate) and measure(candidate) < size:
                    yield candidate


def _is_program(text: str) -> bool:
    """Whether a text parses: that of a tree may not, as a `try` without handlers."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _changed(tree: ast.Module, number: int, name: str, value: Any) -> ast.Module:
    """A copy of a tree with a copy of another value for a field of node `number`, in the order of
    `ast.walk`."""
    tree = copy.deepcopy(tree)
    for position, node in enumerate(ast.walk(tree)):
        if position == number:
            setattr(node, name, copy.deepcopy(value))
            break
    return tree


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST):
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else self.generic_visit(node)


def _replaced(tree: ast.Module, old: ast.AST, new: ast.AST) -> ast.Module:
    """A copy of a tree with another expression in the place of a node."""
    changed: ast.Module = _Replace(old, new).visit(copy.deepcopy(tree, {id(old): old}))
    return changed


def _bodies(tree: ast.Module) -> Iterator[tuple[int, str, list[ast.stmt]]]:
    for number, node in enumerate(ast.walk(tree)):
        for name in _BODIES:
            body = getattr(node, name, None)
            if isinstance(body, list):  # that of a lambda and of `a if b else c` is an expression
                yield number, name, body


def _with_body(tree: ast.Module, number: int, name: str, body: list[ast.stmt]) -> ast.Module:
    needed = name == "body" and number > 0
    return _changed(tree, number, name, body or ([ast.Pass()] if needed else []))


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    """Many at once, then one by one."""
    for number, name, body in _bodies(tree):
        length = 2 * len(body)
        while length > 1:
            length = (length + 1) // 2
            for start in reversed(range(0, len(body), length)):
                rest = body[:start] + body[start + length :]
                yield _with_body(tree, number, name, rest)


def _unwrapped(tree: ast.Module) -> Iterator[ast.Module]:
    for number, name, body in _bodies(tree):
        for position, statement in enumerate(body):
            for inner in _insides(statement):
                changed = body[:position] + inner + body[position + 1 :]
                yield _with_body(tree, number, name, changed)


def _insides(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """What may stand for a statement: its body; in that of a loop, variables are 0."""
    if isinstance(statement, ast.For):
        names = [n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)]
        zeros = [f"{name} = 0" for name in names]
        yield [*ast.parse("\n".join(zeros)).body, *statement.body]
    elif isinstance(statement, ast.If):
        yield statement.body
        yield statement.orelse
    elif isinstance(statement, ast.With | ast.While | ast.Try):
        yield statement.body


def _without_parts(tree: ast.Module) -> Iterator[ast.Module]:
    """Without a decorator, a keyword, a last argument, an element, a default."""
    lists = ("decorator_list", "keywords", "args", "elts", "names", "targets", "items")
    for number, node in enumerate(ast.walk(tree)):
        for name in lists:
            parts = getattr(node, name, None)
            if not isinstance(parts, list):
                continue
            for position in reversed(range(len(parts))):
                rest = parts[:position] + parts[position + 1 :]
                if rest or name in ("decorator_list", "keywords", "args", "elts"):
                    yield _changed(tree, number, name, rest)


def _expressions(tree: ast.Module) -> Iterator[ast.Module]:
    """With a part of an expression instead of it, or with 0."""
    for node in ast.walk(tree):
        if isinstance(node, _WHOLE) and not isinstance(getattr(node, "ctx", None), ast.Store):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    yield _replaced(tree, node, part)
            yield _replaced(tree, node, ast.Constant(0))


def _numbers(tree: ast.Module) -> Iterator[ast.Module]:
    """With smaller numbers: all that are equal, then each by itself."""
    values = {n: _number(node) for n, node in enumerate(ast.walk(tree))}
    places = {n: value for n, value in values.items() if value is not None}
    equal = [[n for n in places if places[n] == v] for v in dict.fromkeys(places.values())]
    for group in [*equal, *([n] for n in places)]:
        value = places[group[0]]
        for less in dict.fromkeys((1, 2, 4, 16, 32, 64, 128, value // 2, value - 1)):
            if 1 <= less < value:
                changed = tree
                for number in group:
                    changed = _changed(changed, number, "value", less)
                yield changed


def _number(node: ast.AST) -> int | None:
    """The whole number that a node is."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None
