"""What each pass changes in a program, as text and as a page.

    TILELANG_PASS_DIFF=1 python kernel.py          # ./pass_diff/<program>.html and .diff
    python -m tilelang.tools.pass_diff dump_ir/main -o main.html   # of what TL_LOWER_TRACE=1 wrote

`pass_diff` does the same in Python, `lower_trace` keeps the programs themselves.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tvm

from tilelang.tools import page
from tilelang.tools.lower_trace import Trace, lower_trace
from tilelang.utils.target import TargetLike

_CONTEXT = 3
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
# How far the line that a line has become is looked for, and how much of it must be the same.
_WINDOW, _ALIKE = 12, 0.6
_STYLE = """
.diff { width: 100%; table-layout: fixed; border-spacing: 0; }
.diff td { padding: 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
.diff td.number { width: 2.6rem; padding: 0 .4rem 0 0; text-align: right; color: var(--faint);
  user-select: none; }
.diff .removed { background: var(--removed); } .diff .added { background: var(--added); }
.diff .removed b { background: var(--removed-word); font-weight: inherit; border-radius: 2px; }
.diff .added b { background: var(--added-word); font-weight: inherit; border-radius: 2px; }
.diff .gap td { color: var(--faint); background: var(--soft); text-align: center; }
.count { font: 12.5px ui-monospace, monospace; margin-left: .8rem; }
.plus { color: #1d8a3d; } .minus { color: #d0403c; }
.same { color: var(--faint); margin: .3rem .7rem; }
button { font: inherit; margin: .6rem .4rem .2rem 0; }
"""
_SCRIPT = """
for (const button of document.querySelectorAll("button[data-open]"))
  button.addEventListener("click", () => {
    for (const d of document.querySelectorAll("details"))
      d.open = button.dataset.open === "yes";
  });
"""


class Row(NamedTuple):
    """A line before and after a pass, each with its number from 1; None where there is none."""

    before: tuple[int, str] | None
    after: tuple[int, str] | None

    @property
    def is_changed(self) -> bool:
        """Whether the pass has changed, added or removed the line."""
        return (self.before and self.before[1]) != (self.after and self.after[1])


@dataclass(frozen=True)
class Change:
    """What one pass did.

    Attributes:
        name: of the pass.
        before, after: the lines of the program.
    """

    name: str
    before: Sequence[str] = field(repr=False)
    after: Sequence[str] = field(repr=False)

    @cached_property
    def hunks(self) -> list[list[Row]]:
        """The rows that differ, with three that do not around them."""
        # No line counts as too common to be looked at, however long the program is.
        matcher = difflib.SequenceMatcher(None, self.before, self.after, autojunk=False)
        return [list(self._rows(group)) for group in matcher.get_grouped_opcodes(_CONTEXT)]

    @property
    def removed(self) -> int:
        """How many lines are gone or became others."""
        return sum(r.is_changed and r.before is not None for rows in self.hunks for r in rows)

    @property
    def added(self) -> int:
        """How many lines are new or were others."""
        return sum(r.is_changed and r.after is not None for rows in self.hunks for r in rows)

    def unified(self) -> list[str]:
        """The lines of a unified diff; none where nothing changed."""
        names = ("before", f"after {self.name}")
        return [*difflib.unified_diff(self.before, self.after, *names, lineterm="", n=_CONTEXT)]

    def _rows(self, group: Sequence[tuple[str, int, int, int, int]]) -> Iterator[Row]:
        for tag, first, last, begin, end in group:
            old = [(i + 1, self.before[i]) for i in range(first, last)]
            new = [(i + 1, self.after[i]) for i in range(begin, end)]
            yield from map(Row, old, new) if tag == "equal" else _aligned(old, new)


def _aligned(old: list[tuple[int, str]], new: list[tuple[int, str]]) -> Iterator[Row]:
    """Beside each line that is gone the one that it has become: the same at another depth, else one
    of the next that is like it."""
    lines, others = ([line.strip() for _, line in side] for side in (old, new))
    matcher = difflib.SequenceMatcher(None, lines, others, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        yield from map(Row, old[a:b], new[c:d]) if tag == "equal" else _alike(old[a:b], new[c:d])


def _alike(old: list[tuple[int, str]], new: list[tuple[int, str]]) -> Iterator[Row]:
    at = 0
    for line in old:
        near = range(at, min(at + _WINDOW, len(new)))
        found = next((k for k in near if _is_like(line[1], new[k][1])), None)
        if found is None:
            yield Row(line, None)
            continue
        yield from (Row(None, other) for other in new[at:found])
        yield Row(line, new[found])
        at = found + 1
    yield from (Row(None, other) for other in new[at:])


def _is_like(old: str, new: str) -> bool:
    words, others = _WORDS.findall(old.strip()), _WORDS.findall(new.strip())
    matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
    return matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE


def _marked(old: str, new: str) -> tuple[str, str]:
    """Both lines as HTML, with the words that differ in bold."""
    words, others = _WORDS.findall(old), _WORDS.findall(new)
    out: tuple[list[str], list[str]] = ([], [])
    matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        for parts, side in ((words[a:b], out[0]), (others[c:d], out[1])):
            if parts:
                piece = page.text("".join(parts))
                side.append(piece if tag == "equal" else f"<b>{piece}</b>")
    return "".join(out[0]), "".join(out[1])


class PassDiff:
    """The changes of all passes of one lowering, in order."""

    def __init__(self, trace: Trace):
        self.name = trace.name
        texts = [step.script.splitlines() for step in trace.steps]
        self.changes = [
            Change(step.name, before, after)
            for step, before, after in zip(trace.steps[1:], texts, texts[1:], strict=False)
        ]

    def text(self) -> str:
        """A unified diff for each pass that changes something; the others are named."""
        lines = []
        for is_same, changes in itertools.groupby(self.changes, lambda c: c.before == c.after):
            if is_same:
                lines.append("unchanged by " + ", ".join(change.name for change in changes))
                continue
            for change in changes:
                lines += [f"{change.name}: +{change.added} -{change.removed} lines"]
                lines += change.unified()
        return "\n".join([f"# {self.name}", *lines]) + "\n"

    def html(self) -> str:
        """One page: a section for each pass, both programs side by side where they differ."""
        changed = sum(change.before != change.after for change in self.changes)
        body = [
            f"<h1>{page.text(self.name)}, pass by pass</h1>",
            f'<p class="faint">{changed} of {len(self.changes)} passes change the program. Left: '
            "before the pass, right: after it. Three lines around each change are shown.</p>",
            '<button data-open="yes">Open all</button><button data-open="no">Close all</button>',
        ]
        numbered = enumerate(self.changes, 1)
        for is_same, changes in itertools.groupby(numbered, lambda c: c[1].before == c[1].after):
            if is_same:
                names = ", ".join(change.name for _, change in changes)
                body.append(f'<p class="same">unchanged by {page.text(names)}</p>')
            else:
                body += [_section(number, change) for number, change in changes]
        return page.page(f"{self.name}: passes", body, _STYLE, _SCRIPT)

    def save(self, path: str | Path) -> Path:
        """Writes the page, or the text where `path` ends in ``.diff`` or ``.txt``.

        Example: ``pass_diff(main).save("main.html")``
        """
        is_text = Path(path).suffix in (".diff", ".txt")
        return page.save(path, self.text() if is_text else self.html())


def _section(number: int, change: Change) -> str:
    gap = '<tr class="gap"><td colspan="4">⋯</td></tr>'
    hunks = ("\n".join(map(_row, rows)) for rows in change.hunks)
    columns = '<colgroup><col style="width:3rem"><col><col style="width:3rem"><col></colgroup>'
    return (
        f'<details id="pass-{number}"><summary>{number}. {page.text(change.name)}'
        f'<span class="count plus">+{change.added}</span>'
        f'<span class="count minus">&minus;{change.removed}</span></summary>\n'
        f'<table class="diff">{columns}\n' + f"\n{gap}\n".join(hunks) + "\n</table></details>"
    )


def _row(row: Row) -> str:
    sides = [page.text(side[1]) if side else "" for side in row]
    if row.is_changed and row.before and row.after:
        sides = [*_marked(row.before[1], row.after[1])]
    cells = ""
    for side, html, kind in zip(row, sides, ("removed", "added"), strict=True):
        of_kind = f' class="{kind}"' if row.is_changed and side else ""
        cells += f'<td class="number">{side[0] if side else ""}</td><td{of_kind}>{html}</td>'
    return f"<tr>{cells}</tr>"


def pass_diff(
    func: Any, target: TargetLike = "auto", pass_configs: Mapping[Any, Any] | None = None
) -> PassDiff:
    """What each pass changes in `func`, a PrimFunc, when it is lowered for `target`.

    Raises what `tilelang.lower` raises.

    Example: ``pass_diff(main, "cuda -arch=sm_90a").save("main.html")``
    """
    from tilelang.engine.lower import lower
    from tilelang.transform import PassContext

    with PassContext(config=pass_configs), lower_trace() as traces:
        lower(func, target=target)
    return PassDiff(traces[0])


class PassDiffWriter:
    """An observer (`tilelang.engine.observers`) that leaves ``<name>.html`` and ``<name>.diff``."""

    def __init__(self, directory: Path, name: str):
        self._directory = directory
        self._trace = Trace(name)

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Notes the program after a pass."""
        self._trace.write(pass_name, mod)

    def close(self) -> None:
        """Writes both files, of all passes that have run."""
        found = PassDiff(self._trace)
        for suffix in ("html", "diff"):
            found.save(self._directory / f"{found.name}.{suffix}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: a page, or a text, of the programs in a folder."""
    parser = argparse.ArgumentParser("python -m tilelang.tools.pass_diff", description=__doc__)
    parser.add_argument("folder", type=Path, help="what TL_LOWER_TRACE=1 wrote of one program")
    parser.add_argument("-o", "--output", type=Path, help="a page, or .diff; by default text here")
    given = parser.parse_args(arguments)
    found = PassDiff(Trace.of_folder(given.folder))
    if given.output is None:
        sys.stdout.write(found.text())
    else:
        print(found.save(given.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
