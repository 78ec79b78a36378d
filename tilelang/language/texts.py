"""The text of a function as it was when Python loaded it.

A file may be edited after it was imported. So the text is read when a decorator sees the function,
for the functions in it too, and where the file is loaded by Python alone, a text counts only if it
compiles to the very code that was loaded.
"""

from __future__ import annotations

import functools
import importlib.machinery
import linecache
import sys
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

Lines = tuple[str, ...]
_Value = TypeVar("_Value")


class CodeMap(Generic[_Value]):
    """Values by the identity of code objects, for as long as these live: equal ones may differ in
    what is not compiled (annotations)."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[types.CodeType], _Value]] = {}

    def get(self, code: types.CodeType) -> _Value | None:
        """Return the value of ``code``."""
        found = self._values.get(id(code))
        return found[1] if found is not None and found[0]() is code else None

    def set(self, code: types.CodeType, value: _Value) -> _Value:
        """Set the value of ``code`` and return it."""
        values, key = self._values, id(code)
        values[key] = (weakref.ref(code, lambda _: values.pop(key, None)), value)
        return value


_texts: CodeMap[Lines] = CodeMap()
"""The file's lines when a decorator saw the function."""
_rewritten_from: CodeMap[Lines] = CodeMap()
"""The file's lines of what was compiled from a rewritten tree of them. A function in it is written
as it stands there, but its code may be another one: Python 3.11 calls a method of what the same
text imports in another way."""
_of_files: dict[str, tuple[Lines, ...]] = {}
"""The texts of each file that any decorator in it has met, the last ones: one of them is what a
function was loaded from whose own decorator runs later."""
_MOST_TEXTS = 4


def remember(function: types.FunctionType) -> None:
    """Keep the text of the file of ``function``, for it and for the functions that it defines."""
    code = function.__code__
    if _texts.get(code) is not None:
        return
    lines = _current(code.co_filename, function.__globals__)
    if not lines:
        return
    for inner in codes(code):
        _texts.set(inner, lines)
    known = _of_files.get(code.co_filename, ())
    if _is_compiled_as_written(function) and lines not in known:
        _of_files[code.co_filename] = (*known, lines)[-_MOST_TEXTS:]


def remember_rewritten(code: types.CodeType, lines: Lines) -> None:
    """Keep the text that ``code``, with the functions in it, was rewritten and compiled from."""
    for inner in codes(code):
        _rewritten_from.set(inner, lines)


def file_lines(function: types.FunctionType) -> Lines:
    """Return the lines of the file of ``function`` as Python loaded them; none if there is no text.

    Raises
    ------
    OSError
        If the file has been edited since, and its former text is not known.
    """
    code = function.__code__
    rewritten = _rewritten_from.get(code)
    if rewritten is not None:
        return rewritten
    remember(function)
    candidates = [
        _texts.get(code),
        _current(code.co_filename, function.__globals__),
        *_of_files.get(code.co_filename, ()),
    ]
    texts = [text for text in candidates if text]
    if not _is_compiled_as_written(function):
        return texts[0] if texts else ()
    if code.co_filename == "<string>" and not texts:
        texts = [tuple(text.splitlines(keepends=True)) for text in _command_lines()]
        return next((text for text in texts if _has(text, code)), ())
    for text in texts:
        if _has(text, code):
            return text
    if texts:
        raise OSError(
            f"{code.co_filename}:{code.co_firstlineno}: found text that is not that of the loaded "
            f"function {code.co_name}; the file has been edited since it was imported. Import it "
            "again, or start Python again"
        )
    return ()


def _current(file: str, variables: Mapping[str, Any]) -> Lines:
    """Return the text of a file as it is now."""
    linecache.lazycache(file, variables)  # type: ignore[arg-type]  # a zipped module
    linecache.checkcache(file)
    return _shared(tuple(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _shared(lines: Lines) -> Lines:
    """Return one tuple for equal ones: the functions of a file share its text."""
    return lines


def _is_compiled_as_written(function: types.FunctionType) -> bool:
    """Whether nobody has changed the program between the text and its code, as pytest does with
    assertions and IPython with its magics."""
    variables = function.__globals__
    if function.__code__.co_filename == "<string>":
        return variables.get("__name__") == "__main__"
    loader = variables.get("__loader__")
    is_of_file = variables.get("__file__") == function.__code__.co_filename
    return type(loader) is importlib.machinery.SourceFileLoader and is_of_file


def _command_lines() -> Iterator[str]:
    """Yield what may be the text of ``python -c``."""
    return (argument for argument in sys.orig_argv[1:] if "def " in argument)


def _has(lines: Lines, code: types.CodeType) -> bool:
    """Whether a text compiles to ``code``."""
    found = _compiled(lines, code.co_filename).get((code.co_name, code.co_firstlineno), ())
    return any(c == code for c in found)


@functools.lru_cache(maxsize=64)
def _compiled(lines: Lines, file: str) -> Mapping[tuple[str, int], Sequence[types.CodeType]]:
    """Return the functions of a text by name and line."""
    found: dict[tuple[str, int], list[types.CodeType]] = {}
    try:
        module = compile("".join(lines), file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}
    for code in codes(module):
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
    return found


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)
