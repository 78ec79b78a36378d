"""Lists what the language refuses: ``refusals()`` reads the sources for errors that a program can
meet when it is traced or compiled, and ``page()`` writes them as docs/refusals.md.

A refusal is a `raise` of the front end or a `ThrowAt` of a pass. What a message takes from the
program is written as `…`. Errors of calls of a compiled kernel, of files and of devices are not
listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON = ("tilelang/language", "tilelang/layout")
CPP = ("src/transform", "src/op", "src/layout", "src/analysis", "src/codegen", "src/target")
CLASSES = (
    "ValueError",
    "TypeError",
    "IndexError",
    "NotImplementedError",
    "RuntimeError",
    "SharedMemoryError",
)
HOLE = "…"

_LITERAL = r'"(?:[^"\\]|\\.)*"'
# A call that refuses: its own class, or ValueError where it has none.
_CPP_CALL = re.compile(r"\b(ThrowAt|Refuse)\(")
_CPP_REFUSE = re.compile(r"\[\[noreturn\]\] void Refuse\(|void \w+::Refuse\([^{;]*\{\s*ThrowAt")


@dataclass(frozen=True)
class Refusal:
    """An error of a file: its class and text."""

    path: str
    error: str
    text: str

    @property
    def has_repair(self) -> bool:
        """Whether the text says what is wanted, or what to do."""
        return re.search(r"wanted|;|[.…] ?(Use|Make|Allocate|Cast) ", self.text) is not None


def _joined(pieces: list[str]) -> str:
    text = re.sub(rf"(?:{HOLE}\s*)+", lambda m: HOLE + m[0][len(m[0].rstrip()) :], "".join(pieces))
    return re.sub(r"\s+", " ", text).strip()


def _text(node: ast.expr) -> str:
    """A message with holes for what is not written in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return HOLE


def _python(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        error = getattr(node.exc.func, "id", "")
        if error in CLASSES and node.exc.args:
            yield error, _joined([_text(node.exc.args[0])])


def _arguments(source: str, start: int) -> str:
    """What stands between the parentheses of a call that begins at `start`."""
    depth, at = 1, start
    for token in re.finditer(rf"{_LITERAL}|'(?:[^'\\]|\\.)'|[()]", source[start:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        at = start + token.start()
        if depth == 0:
            break
    return source[start:at]


def _cpp(path: Path) -> Iterator[tuple[str, str]]:
    source = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    refuse_throws = _CPP_REFUSE.search(source) or path.name.startswith("scheduled_")
    for call in _CPP_CALL.finditer(source):
        if call[1] == "Refuse" and not refuse_throws:
            continue  # it tells a reason
        arguments = _arguments(source, call.end())
        if not re.search(_LITERAL, arguments):
            continue
        pieces = [
            ast.literal_eval(token[0]) if token[0].startswith('"') else HOLE
            for token in re.finditer(rf'{_LITERAL}|[^"\s][^"]*', arguments)
        ]
        error = next((p for p in pieces if p in CLASSES), "ValueError")
        pieces = [p for p in pieces if p not in CLASSES]
        yield error, _joined(pieces).strip(HOLE + " ")


def refusals() -> list[Refusal]:
    """All refusals whose text says something, by file."""
    found = []
    for folders, suffix, read in ((PYTHON, ".py", _python), (CPP, ".cc", _cpp)):
        for folder in folders:
            for path in sorted((ROOT / folder).rglob("*" + suffix)):
                name = str(path.relative_to(ROOT))
                texts = sorted(set(read(path)))
                found += [Refusal(name, e, t) for e, t in texts if re.search(r"\w{3}", t)]
    return found


def page() -> str:
    """The page: a table for each file."""
    found = refusals()
    lines = [
        "# What the language refuses",
        "",
        f"{len(found)} errors that a program can meet when it is traced or compiled, by the file "
        "that raises them. `…` stands for what the message takes from the program. The error also "
        "names file and line of the program. Written by `python docs/generate.py`.",
    ]
    for name in dict.fromkeys(r.path for r in found):
        lines += ["", f"## {name}", "", "| class | text |", "|---|---|"]
        for r in found:
            if r.path == name:
                text = r.text.replace("|", "\\|").replace("\n", " ")
                lines.append(f"| {r.error} | {text} |")
    return "\n".join(lines) + "\n"
