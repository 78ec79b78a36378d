"""From a Python function to its rewritten code: find the source, parse it, compile it against the
same names."""

from __future__ import annotations

import ast
import inspect
import re
import tokenize
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir

from tilelang.language.members import is_followed
from tilelang.language.rewrite import HOOKS, UnsupportedSyntax, declarations, rewrite
from tilelang.language.syntax_trees import parse
from tilelang.language.texts import CodeMap, file_lines, remember_rewritten
from tilelang.language.tracer import add_location


@dataclass(frozen=True)
class TracedCode:
    """A function's rewritten code and what its ``at`` hooks refer to."""

    code: types.CodeType
    spans: list[ir.Span]
    definition: ir.Span
    declared: dict[str, bool]
    """Parameters that the body declares (``A: T.Tensor[...]``), each with whether on every path."""

    def bind(self, function: types.FunctionType, hooks: Any) -> Callable[..., Any]:
        """Return the rewritten function over the globals and the closure of ``function``."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells[HOOKS] = types.CellType(hooks)
        closure = tuple(cells[name] for name in self.code.co_freevars)
        return types.FunctionType(self.code, function.__globals__, function.__name__, None, closure)


def traced_code(function: Any) -> TracedCode:
    """Return the rewritten code of ``function``; the same source is rewritten once.

    Raises
    ------
    TypeError
        If ``function`` is not a function written in Python with ``def``.
    OSError
        If its source cannot be read, as for a function made by ``exec``.
    NotImplementedError
        If it contains a statement that has no meaning in a kernel.
    """
    _check_function(function)
    code = function.__code__
    return _TRACED.get(code) or _TRACED.set(code, _traced_code(function))


def _objects(function: types.FunctionType) -> list[str]:
    """Return the names of the module's objects that ``function`` uses: the attributes of those may
    change, as of modules such as T they do not."""
    around = function.__globals__
    return [n for n in function.__code__.co_names if n in around and is_followed(around[n])]


_TRACED: CodeMap[TracedCode] = CodeMap()


def _traced_code(function: types.FunctionType) -> TracedCode:
    code = function.__code__
    tree = definition_tree(function)
    first_line = tree.lineno
    declared, last = declarations(tree)
    local = (*code.co_varnames, *code.co_cellvars)
    try:
        places = rewrite(tree, local, (*code.co_freevars, *_objects(function)), declared, last)
    except UnsupportedSyntax as unsupported:
        error = NotImplementedError(str(unsupported))
        add_location(error, _span(code, _place(unsupported.node)))
        raise error from None
    # Compiled inside a function whose locals are the free variables, so that they become free in
    # the code.
    outer = parse("def factory(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.args.args = [ast.arg(name, lineno=1, col_offset=0) for name in (*code.co_freevars, HOOKS)]
    # Under another name: in the body, the function's own name is a global or a variable of its
    # closure.
    tree.name = f"{HOOKS}_function"
    outer.body = [tree]
    module = ast.Module([outer], [])
    flags = code.co_flags & _annotations_flag()
    compiled = compile(module, code.co_filename, "exec", flags=flags, dont_inherit=True)
    rewritten = _find_code(_find_code(compiled, "factory"), tree.name)
    rewritten = rewritten.replace(co_name=code.co_name)
    remember_rewritten(rewritten, file_lines(function))
    spans = [_span(code, place) for place in places]
    definition = _span(code, (first_line, first_line, tree.col_offset + 1, 1))
    return TracedCode(rewritten, spans, definition, declared)


def _annotations_flag() -> int:
    import __future__

    return __future__.annotations.compiler_flag


def _check_function(function: Any) -> None:
    if not isinstance(function, types.FunctionType):
        raise TypeError(
            f"found {function!r}, wanted a function written in Python with `def`; put the "
            "decorator right above that"
        )


def definition_text(function: Any) -> str:
    """Return the text of the definition of ``function``, as it was when Python loaded it.

    Raises
    ------
    TypeError
        If ``function`` is not a function written in Python.
    OSError
        If its text cannot be read.
    """
    return _definition(function)[0]


def _definition(function: Any) -> tuple[str, ast.stmt | None]:
    """Return the text of a definition, and what it is as a statement in the lines of its file, or
    None where that is not known yet."""
    _check_function(function)
    code = function.__code__
    # Not inspect.getsource: for code without a file it may find the text of another function.
    lines = file_lines(function)[code.co_firstlineno - 1 :]
    if not lines:
        raise _unreadable(code)
    found = _first_definition(lines, code.co_firstlineno)
    if found is not None:
        return found
    try:
        return "".join(inspect.getblock(list(lines))), None
    except (SyntaxError, tokenize.TokenError) as error:  # a lambda in the middle of an expression
        raise _unreadable(code) from error


_DEFINES = re.compile(r"\s*(@|def\b|async\s+def\b)")


def _first_definition(lines: Sequence[str], first: int) -> tuple[str, ast.stmt] | None:
    """Return the definition that lines begin with, of which the first is the file's line `first`,
    or None if they begin with something else.

    It ends in front of the first statement that is indented no deeper. What ends at such a line in
    the middle of a statement does not parse. `inspect.getblock`, which looks at each token, takes
    as long as the parser and Python's compiler together.
    """
    if not _DEFINES.match(lines[0]):
        return None
    indent = _indent(lines[0])
    end = 0  # behind the last line that has more than a comment
    for number, line in enumerate((*lines, "end")):
        rest = line.strip()
        if not rest or rest[0] == "#":
            continue
        if number and (number == len(lines) or _indent(line) <= indent):
            text = "".join(lines[:end])
            try:
                return text, _statement(text, first)
            except SyntaxError:
                pass  # in the middle of decorators, of a bracket, or of a text of several lines
        end = number + 1
    return None


def _statement(text: str, first: int) -> ast.stmt:
    """Return the statement that a text is, which begins in the file's line `first`."""
    # Under an `if`, indented source parses as it stands: dedenting would change multi-line strings.
    offset = 1 if text[:1].isspace() else 0
    # Empty lines in front give each node its line; that is faster than moving all of them.
    lines = "\n" * (first - 1 - offset)
    statement = parse(lines + ("if 1:\n" if offset else "") + text).body[0]
    return statement.body[0] if offset and isinstance(statement, ast.If) else statement


def _indent(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def _unreadable(code: types.CodeType) -> OSError:
    return OSError(
        f"cannot read the source of {code.co_name}, defined in {code.co_filename} at line "
        f"{code.co_firstlineno}; define it in a file or a notebook, or register its text with "
        "linecache"
    )


def definition_tree(function: types.FunctionType) -> ast.FunctionDef:
    """Return the definition of ``function``, in the lines of its file.

    Raises
    ------
    TypeError
        If it is a coroutine.
    OSError
        If its source cannot be read.
    """
    code = function.__code__
    text, definition = _definition(function)
    try:
        definition = definition or _statement(text, code.co_firstlineno)
    except SyntaxError as error:
        raise _unreadable(code) from error
    if not isinstance(definition, ast.FunctionDef) or definition.name != code.co_name:
        if isinstance(definition, ast.AsyncFunctionDef):
            raise TypeError(f"{code.co_name} is an async function, wanted a plain `def`")
        raise _unreadable(code)
    return definition


def _find_code(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


def _place(node: Any) -> tuple[int, int, int, int]:
    return node.lineno, node.end_lineno, node.col_offset + 1, node.end_col_offset + 1


def _span(code: types.CodeType, place: tuple[int, int, int, int]) -> ir.Span:
    return ir.Span(ir.SourceName(code.co_filename), *place)


def enclosing_names(frame: types.FrameType) -> dict[str, Any]:
    """Return the variables that a definition in ``frame`` sees, apart from globals.

    A variable of an outer function that only an annotation names is not in the closure of the inner
    ones, so it is read from the outer function's frame, as long as that is still running.
    """
    names = dict(frame.f_locals)
    inner, outer = frame.f_code, frame.f_back
    while outer is not None:
        if inner in outer.f_code.co_consts:
            names = {**outer.f_locals, **names}
            inner = outer.f_code
        outer = outer.f_back
    return names


def resolve_annotation(
    annotation: Any, function: types.FunctionType, local: Mapping[str, Any]
) -> Any:
    """Return the object that an annotation stands for.

    Annotations are text under ``from __future__ import annotations``; names in it are looked up in
    the closure, in ``local`` (see ``enclosing_names``) and in the globals.

    Raises
    ------
    NameError
        If a name is not found.
    """
    if type(annotation) is not str:
        return annotation
    names = dict(local)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    try:
        return eval(annotation, function.__globals__, names)
    except NameError as error:
        raise NameError(
            f"{error}, in the annotation {annotation!r} of {function.__name__}; wanted a global or "
            "a variable of a function that is still running (under `from __future__ import "
            "annotations` an annotation keeps no variable alive: name it in the body too)"
        ) from None
