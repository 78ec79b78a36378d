"""The layouts that inference has given a program's tiles, as values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import tvm
from tvm_ffi import structural_walk

from tilelang.layout import Fragment, Layout
from tilelang.tools.tile_schedule import warp_threads
from tilelang.utils import dtypes

BANKS, BANK_BYTES = 32, 4
"""CUDA C++ Programming Guide, "Shared Memory": successive words of 32 bits are in successive
banks."""


@dataclass(frozen=True)
class InferredLayout:
    """Where the elements of one tile are.

    Attributes:
        function: the name of the program.
        buffer: the tile's name.
        dtype: of its elements.
        scope: ``"local.fragment"``, ``"shared.dyn"``, ...
        layout: from indices of an element to its place; a `Fragment` for a tile in registers.
        warp_threads: lanes of a warp.
    """

    function: str
    buffer: str
    dtype: str
    scope: str
    layout: Layout
    warp_threads: int

    @property
    def text(self) -> str:
        """The layout as a function.

        Example: ``"Layout(i < 8, j < 8) -> (i, j)"``
        """
        return str(self.layout).partition("\n")[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the tile, with one of its versions in front where it has several."""
        return tuple(int(extent) for extent in self.layout.get_input_shape())

    @property
    def rows(self) -> int:
        """Rows of a picture of the first tile: the last but one extent, or 1."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def columns(self) -> int:
        """The last extent."""
        return self.shape[-1]

    @cached_property
    def holders(self) -> list[tuple[int, ...]]:
        """The threads that hold each element of the first tile, in row-major order; empty for a
        tile in shared memory."""
        if not isinstance(self.layout, Fragment):
            return []
        threads, copies = self.layout.thread_table(), int(self.layout.num_replicas)
        count = self.rows * self.columns
        return [tuple(sorted(set(threads[k * copies : (k + 1) * copies]))) for k in range(count)]

    @cached_property
    def places(self) -> list[int]:
        """For each element of the first tile its register, or its number in shared memory."""
        count = self.rows * self.columns
        if isinstance(self.layout, Fragment):
            return [register for (register,) in self.layout.table()[:count]]
        return self.layout.addresses()[:count]

    def bank(self, place: int) -> int:
        """The bank of shared memory that an element with this number is in."""
        return place * dtypes.bits(self.dtype) // 8 // BANK_BYTES % BANKS


def inferred_layouts(mod: tvm.IRModule) -> list[InferredLayout]:
    """The layouts of a module after `LayoutInference`, in the order of their tiles' names.

    Example: ``inferred_layouts(trace.after("LayoutInference").mod)``
    """
    found: list[InferredLayout] = []

    def block(node: tvm.s_tir.SBlock) -> None:
        for buffer, layout in (node.annotations.get("layout_map") or {}).items():
            scope = str(buffer.scope())
            dtype = str(buffer.ty.dtype)
            tile = InferredLayout(name, str(buffer.name), dtype, scope, layout, warp)
            found.append(tile)

    for function in mod.functions.values():
        name, warp = str(function.attrs["global_symbol"]), warp_threads(function)
        structural_walk(function.body, [(tvm.s_tir.SBlock, block)])
    return sorted(found, key=lambda tile: (tile.scope, tile.buffer))
