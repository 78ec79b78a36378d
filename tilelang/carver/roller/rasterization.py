"""The order in which blocks take the tiles of a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rasterization:
    """`panel_width` rows, or columns, of tiles that blocks take together; 0: one row after the
    other."""

    panel_width: int = 0


class NoRasterization(Rasterization):
    """Tiles as the grid has them."""


class Rasterization2DRow(Rasterization):
    """Panels of rows, as of ``T.use_swizzle(panel_width)``."""


class Rasterization2DColumn(Rasterization):
    """Panels of columns, as of ``T.use_swizzle(panel_width, order="column")``."""
