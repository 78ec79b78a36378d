"""Pages of the tools: one HTML file each, which needs nothing else, in light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1c2127; --paper: #ffffff; --soft: #f3f5f7; --line: #d3d9df; --faint: #66707b;
  --added: #d9f5df; --added-word: #97dfa8; --removed: #ffe1e0; --removed-word: #ffaaa7;
  --accent: #1f5fbf; --warn: #9a5b00; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e2e6ea; --paper: #15181c; --soft: #1f242a; --line: #3a424b; --faint: #98a2ad;
  --added: #12351d; --added-word: #23703b; --removed: #43191a; --removed-word: #8d2f30;
  --accent: #7fb0ff; --warn: #e8b04f; } }
body { margin: 0 auto; padding: 1.2rem 1.6rem 3rem; max-width: 100rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
a { color: var(--accent); } p { margin: .4rem 0; max-width: 60rem; }
.faint { color: var(--faint); } .warn { color: var(--warn); }
code, pre, .code { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; }
td, th { padding: .2rem .7rem .2rem 0; vertical-align: top; }
.rows td, .rows th { border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; }
summary { cursor: pointer; padding: .35rem .7rem; background: var(--soft); border-radius: 6px; }
.scroll { overflow-x: auto; max-width: 100%; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .faint { fill: var(--faint); } svg .axis { stroke: var(--line); }
svg .cell { fill: #14181c; font: 9.5px ui-monospace, monospace; }
.legend span { display: inline-block; margin-right: 1.1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
  margin-right: .35rem; vertical-align: -.08rem; }
"""

COLORS = (
    *("#8ecae6", "#ffb86b", "#a3d9a5", "#e5a4cb", "#c9b6f2", "#f2d16b"),
    *("#90d5c8", "#f29e8e", "#b5c7e8", "#cfd98b", "#e0b899", "#b9b9b9"),
)
"""Colours of bars and cells: light enough for black letters, on light and dark paper."""


def color(number: int) -> str:
    """One of `COLORS`, the same for the same number.

    Example: ``color(0) == color(len(COLORS))``
    """
    return COLORS[number % len(COLORS)]


def text(value: Any) -> str:
    """`value` as characters of HTML, in attributes too.

    Example: ``text("a < b") == "a &lt; b"``
    """
    return html.escape(str(value), quote=True)


def page(title: str, body: Iterable[str], style: str = "", script: str = "") -> str:
    """A whole page; `body` is HTML, `title` plain text.

    Example: ``Path("t.html").write_text(page("gemm", ["<p>nothing</p>"]))``
    """
    code = f"<script>\n{script}\n</script>\n" if script else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n{code}</body>\n</html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of plain texts.

    Example: ``table(["pass", "lines"], [("Simplify", 3)])``
    """
    cells = ["".join(f"<th>{text(name)}</th>" for name in head)]
    cells += ["".join(f"<td>{text(value)}</td>" for value in row) for row in rows]
    lines = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="scroll"><table class="rows">\n{lines}\n</table></div>'


def legend(names: Iterable[tuple[str, str]]) -> str:
    """What colours mean: pairs of a colour and plain text.

    Example: ``legend([("#8ecae6", "loads")])``
    """
    marks = (f'<span><i style="background:{c}"></i>{text(name)}</span>' for c, name in names)
    return f'<p class="legend">{"".join(marks)}</p>'


class Drawing:
    """An SVG picture whose size is that of what is drawn, in pixels.

    Example: ``Drawing().rect(0, 0, 10, 10, color(0), "a tile").svg("one tile")``
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._width = self._height = 0.0

    def _reach(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        title: str = "",
        **more: str,
    ) -> Drawing:
        """A box; `title` shows where the pointer rests. `more` are attributes of SVG."""
        self._reach(x + width, y + height)
        attributes = "".join(f' {k.replace("_", "-")}="{text(v)}"' for k, v in more.items())
        inside = f"<title>{text(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"'
            f"{attributes}>{inside}</rect>"
        )
        return self

    def label(
        self, x: float, y: float, words: str, anchor: str = "start", kind: str = ""
    ) -> Drawing:
        """Words whose base line is at y; `kind` is a class of the page's style."""
        # Letters are about 6 pixels wide.
        self._reach(x + {"start": 6.3 * len(words), "middle": 3.2 * len(words)}.get(anchor, 0), y)
        of_kind = f' class="{kind}"' if kind else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{of_kind}>{text(words)}</text>'
        )
        return self

    def line(self, x: float, y: float, to_x: float, to_y: float, **more: str) -> Drawing:
        """A line in the colour of axes, or as the attributes `more` say."""
        self._reach(max(x, to_x), max(y, to_y))
        attributes = "".join(f' {k.replace("_", "-")}="{text(v)}"' for k, v in more.items())
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" class="axis"{attributes}/>'
        )
        return self

    def svg(self, what: str) -> str:
        """The picture; `what` says to who cannot see it what it shows."""
        width, height = self._width + 4, self._height + 6
        return (
            f'<div class="scroll"><svg role="img" aria-label="{text(what)}" width="{width:g}" '
            f'height="{height:g}" viewBox="-2 -2 {width:g} {height:g}">\n'
            + "\n".join(self._parts)
            + "\n</svg></div>"
        )


def save(path: str | Path, content: str) -> Path:
    """Writes a page, making the folder that it is in; returns where it is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path
