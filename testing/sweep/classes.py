"""All classes of drawn programs, by name."""

from __future__ import annotations

from collections.abc import Iterator

import drawn_blocks
import drawn_cubes
import drawn_grids
import drawn_names
import drawn_products
import drawn_roles
import drawn_rows
import drawn_tiles
import drawn_values
import drawn_waves
from drawn import CLASSES, Program, Writer

MODULES = (
    drawn_tiles,
    drawn_cubes,
    drawn_roles,
    drawn_rows,
    drawn_products,
    drawn_waves,
    drawn_grids,
    drawn_blocks,
    drawn_values,
    drawn_names,
)
"""They register their classes."""


def programs(name: str, seed: int, count: int) -> Iterator[Program]:
    """The first `count` programs of a class and a seed."""
    for number in range(count):
        yield named(f"{name} {seed}/{number}")


def named(title: str) -> Program:
    """The program of a title as failures have it: ``views 7/12`` is number 12 of seed 7."""
    return CLASSES[title.split()[0]](Writer(title), title)


__all__ = ["CLASSES", "MODULES", "named", "programs"]
