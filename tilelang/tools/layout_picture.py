"""Layouts as pictures on a page.

A fragment's elements have the colour of the warp that holds them, and say thread and register. A
shared tile's have the colour of their banks; where 16 bytes stay together, a cell is such a chunk.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence

from tilelang.tools import page
from tilelang.tools.inferred_layouts import BANK_BYTES, BANKS, InferredLayout
from tilelang.utils import dtypes

_CHUNK_BYTES = 16
_ROWS, _COLUMNS = 16, 16  # of the part whose cells have words
_MOST_PIXELS = 384

STYLE = """
.layout { display: flex; gap: 2rem; flex-wrap: wrap; align-items: flex-start; }
.layout canvas { image-rendering: pixelated; border: 1px solid var(--line); cursor: crosshair; }
.layout output { display: block; min-height: 1.5em; font: 12.5px ui-monospace, monospace; }
"""
SCRIPT = """
for (const canvas of document.querySelectorAll("canvas[data-layout]")) {
  const told = JSON.parse(canvas.dataset.layout), context = canvas.getContext("2d");
  const numbers = name => new Uint16Array(
    Uint8Array.from(atob(told[name]), c => c.charCodeAt(0)).buffer);
  const places = numbers("places"), colors = numbers("colors"), side = told.side;
  for (let k = 0; k < colors.length; ++k) {
    context.fillStyle = told.palette[colors[k] % told.palette.length];
    context.fillRect(k % told.columns * side, Math.floor(k / told.columns) * side, side, side);
  }
  const threads = told.threads && numbers("threads"), output = canvas.nextElementSibling;
  canvas.addEventListener("pointermove", event => {
    const column = Math.min(Math.floor(event.offsetX / side), told.columns - 1);
    const row = Math.min(Math.floor(event.offsetY / side), told.rows - 1);
    const k = row * told.columns + column;
    if (k < 0 || k >= places.length) return;
    const bytes = places[k] * told.bits / 8;
    output.textContent = `[${told.rows > 1 ? row + ", " : ""}${column}]: ` + (threads
      ? `thread ${threads[k]}${told.copies > 1 ? ` and ${told.copies - 1} more` : ""}, ` +
        `register ${places[k]}`
      : `byte ${bytes}, bank ${Math.floor(bytes / told.bank) % told.banks}`);
  });
}
"""


def picture(tile: InferredLayout) -> str:
    """A layout as HTML, for a page with `STYLE` and `SCRIPT`: all elements, of which the one below
    the pointer is told in words, and the first of them in large.

    Example: ``page("layouts", map(picture, inferred_layouts(mod)), STYLE, SCRIPT)``
    """
    extents = " x ".join(map(str, tile.shape))
    versions = (len(tile.shape) > 2 and "; the first tile is shown") or ""
    return (
        f"<h3><code>{page.text(tile.buffer)}</code>, {extents} of {tile.dtype}, "
        f'{page.text(tile.scope)}{versions}</h3>\n<p class="code">{page.text(tile.text)}</p>\n'
        f'<div class="layout">\n<div>{_overview(tile)}</div>\n'
        f"<div>{_close_up(tile)}</div>\n</div>"
    )


def _overview(tile: InferredLayout) -> str:
    side = max(1, min(12, _MOST_PIXELS // max(tile.rows, tile.columns)))
    threads = [holders[0] for holders in tile.holders]
    told = {
        "rows": tile.rows,
        "columns": tile.columns,
        "side": side,
        "palette": page.COLORS,
        "colors": _packed(_colors(tile)),
        "places": _packed(tile.places),
        "threads": _packed(threads) if threads else None,
        "copies": len(tile.holders[0]) if threads else 0,
        "bits": dtypes.bits(tile.dtype),
        "bank": BANK_BYTES,
        "banks": BANKS,
    }
    return (
        f'<canvas width="{tile.columns * side}" height="{tile.rows * side}" '
        f'data-layout="{page.text(json.dumps(told))}"></canvas><output class="faint">point at an '
        "element</output>"
    )


def _colors(tile: InferredLayout) -> list[int]:
    if tile.holders:
        return [holders[0] // tile.warp_threads for holders in tile.holders]
    return [_chunk(tile, place) % (BANKS * BANK_BYTES // _CHUNK_BYTES) for place in tile.places]


def _chunk(tile: InferredLayout, place: int) -> int:
    return place * dtypes.bits(tile.dtype) // 8 // _CHUNK_BYTES


def _packed(numbers: Sequence[int]) -> str:
    return base64.b64encode(
        struct.pack(f"<{len(numbers)}H", *(n & 0xFFFF for n in numbers))
    ).decode()


def _close_up(tile: InferredLayout) -> str:
    step = 1 if tile.holders else _elements_of_a_chunk(tile)
    drawing = page.Drawing()
    wide, high = (58, 22) if tile.holders else (44, 20)
    rows = min(_ROWS, tile.rows)
    columns = min(_COLUMNS if step > 1 else _COLUMNS // 2, tile.columns // step)
    colors = _colors(tile)
    for c in range(columns):
        at = str(c * step) if step == 1 else f"{c * step}.."
        drawing.label(34 + (c + 0.5) * wide, 12, at, "middle", "faint")
    for r in range(rows):
        drawing.label(28, 18 + (r + 0.65) * high, str(r), "end", "faint")
        for c in range(columns):
            k = r * tile.columns + c * step
            drawing.rect(
                34 + c * wide,
                18 + r * high,
                wide,
                high,
                page.color(colors[k]),
                _title(tile, k),
                stroke="#ffffff80",
            )
            drawing.label(
                34 + (c + 0.5) * wide, 18 + (r + 0.68) * high, _words(tile, k), "middle", "cell"
            )
    what = "thread and register" if tile.holders else "first bank"
    cells = "of each element" if step == 1 else f"of each {step} elements (16 bytes)"
    part = f"rows 0 to {rows - 1}, columns 0 to {columns * step - 1}"
    return f'<p class="faint">{what} {cells}; {part}</p>' + drawing.svg(f"{tile.buffer}: {what}")


def _elements_of_a_chunk(tile: InferredLayout) -> int:
    """As many as stay together in 16 bytes, or 1."""
    count = _CHUNK_BYTES * 8 // dtypes.bits(tile.dtype)
    together = tile.layout.contiguous_elements() >= count
    return count if together and tile.columns % count == 0 else 1


def _words(tile: InferredLayout, k: int) -> str:
    if not tile.holders:
        return str(tile.bank(tile.places[k]))
    more = "+" if len(tile.holders[k]) > 1 else ""
    return f"T{tile.holders[k][0]}{more} R{tile.places[k]}"


def _title(tile: InferredLayout, k: int) -> str:
    if not tile.holders:
        place = tile.places[k]
        return f"byte {place * dtypes.bits(tile.dtype) // 8}, bank {tile.bank(place)}"
    return f"threads {', '.join(map(str, tile.holders[k]))}; register {tile.places[k]}"
