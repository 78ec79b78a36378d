"""Pictures of the layouts that inference chooses, as the program is compiled.

The pass configuration ``tl.layout_visualization_enable`` asks for them,
``tl.layout_visualization_formats`` says in which forms: ``txt`` (the log, by default), ``html`` (a
page of the program), ``png``, ``pdf``, ``svg`` (a file of each tile, by matplotlib), several of
these with commas, or ``all``. Files go to ``./tmp/<program>``.
"""

from __future__ import annotations

import logging
from pathlib import Path

import tvm

from tilelang.layout import Fragment, Layout
from tilelang.tools import layout_picture, page
from tilelang.tools.inferred_layouts import InferredLayout, inferred_layouts
from tilelang.tools.plot_layout import plot_layout
from tilelang.transform import PassConfigKey, current_config
from tilelang.utils.log import say

FORMATS = ("txt", "html", "png", "pdf", "svg")


class LayoutVisualization:
    """An observer (`tilelang.engine.observers`) that draws what `LayoutInference` leaves."""

    def __init__(self, name: str, formats: tuple[str, ...], directory: Path = Path("tmp")):
        self._name = name
        self._formats = formats
        self._directory = directory / name

    @staticmethod
    def from_config(name: str) -> LayoutVisualization:
        """With the formats that the pass configuration names.

        Raises:
            ValueError: there is no such format.
        """
        key = PassConfigKey.TL_LAYOUT_VISUALIZATION_FORMATS
        given = str(current_config(key, "")).strip().lower()
        names = tuple(part.strip() for part in given.split(",")) if given else ("txt",)
        if names == ("all",):
            names = FORMATS
        wrong = [part for part in names if part not in FORMATS]
        if wrong:
            raise ValueError(
                f"{key.value}: found {given!r}, wanted 'all' or some of {', '.join(FORMATS)}"
            )
        return LayoutVisualization(name, names)

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Draws the layouts of the program behind `LayoutInference`."""
        if pass_name != "tl.LayoutInference":
            return
        tiles = inferred_layouts(mod)
        if "txt" in self._formats:
            lines = (f"\n  {tile.buffer} ({tile.scope}): {tile.text}" for tile in tiles)
            say(logging.INFO, f"layouts of {self._name}:{''.join(lines) or ' none'}")
        if "html" in self._formats:
            page.save(self._directory / "layouts.html", layouts_page(self._name, tiles))
        drawn = [part for part in self._formats if part not in ("txt", "html")]
        for tile in tiles if drawn else []:
            # Of several versions the first one, whose places the others repeat.
            plot_layout(_one_tile(tile), self._directory, tile.buffer, formats=drawn)

    def close(self) -> None:
        """All pictures are there."""


def _one_tile(tile: InferredLayout) -> Layout:
    versions = len(tile.shape) - 2
    if versions < 1 or isinstance(tile.layout, Fragment):
        return tile.layout
    return Layout(tile.shape[-2:], lambda *at: tile.layout(*[0] * versions, *at))


def layouts_page(name: str, tiles: list[InferredLayout]) -> str:
    """A page with a picture of each tile.

    Example: ``layouts_page("main", inferred_layouts(trace.after("LayoutInference").mod))``
    """
    body = [f"<h1>{page.text(name)}: layouts</h1>", *map(layout_picture.picture, tiles)]
    if not tiles:
        body.append("<p>No tile has a layout.</p>")
    return page.page(f"{name}: layouts", body, layout_picture.STYLE, layout_picture.SCRIPT)
