"""Products of matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tilelang.carver.cost import Product, Tiling, product_seconds, warp_tile
from tilelang.carver.roller.hint import Hint
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization2DRow
from tilelang.carver.template.base import BaseTemplate, element_bytes

ROWS = (16, 32, 64, 128, 192, 256)
COLUMNS = (32, 64, 96, 128, 192, 256)
STEP_BYTES = (64, 128, 256)
"""Bytes of a row of an operand's tile: 128 is the widest swizzle; tiles of few rows take two at a
time, to have more bytes on their way."""
FEW_ROWS = 64
STAGES = (2, 3, 4, 5, 6, 8)
WARPS = (1, 2, 4, 8, 12)
PANELS = (1, 4, 8)


class MatmulTemplate(BaseTemplate):
    """C (M, N) of A (M, K), transposed (K, M), and B (K, N), transposed (N, K); with `with_bias` a
    row of N numbers is added.

    Example: ``MatmulTemplate(4096, 4096, 4096, trans_B=False).recommend_hints(10)[0].block``
    """

    def __init__(
        self,
        M: int,
        N: int,
        K: int,
        in_dtype: str = "float16",
        out_dtype: str = "float16",
        accum_dtype: str = "float32",
        trans_A: bool = False,
        trans_B: bool = True,
        with_bias: bool = False,
    ):
        self.M, self.N, self.K = M, N, K
        self.in_dtype, self.out_dtype = str(in_dtype), str(out_dtype)
        self.accum_dtype = str(accum_dtype)
        self.trans_A, self.trans_B, self.with_bias = trans_A, trans_B, with_bias

    @property
    def product(self) -> Product:
        """What the model is asked about."""
        operand, result = element_bytes(self.in_dtype), element_bytes(self.out_dtype)
        return Product(self.M, self.N, self.K, self.in_dtype, operand, result)

    def tilings(self) -> Iterator[Tiling]:
        """Tiles that instructions and threads divide, none of them much larger than the result."""
        width = element_bytes(self.in_dtype)
        rows = _up_to(ROWS, self.M)
        columns = _up_to(COLUMNS, self.N)
        steps = [int(size / width) for size in STEP_BYTES]
        for m, n, warps in itertools.product(rows, columns, WARPS):
            threads = warps * self.arch.warp_size
            by_groups = (
                self.arch.has_warp_groups
                and threads % 128 == 0
                and m % 64 == 0
                and warp_tile(m, n, warps, True)[1] % 8 == 0
            )
            if not by_groups and not _divides(m, n, warps):
                continue
            depths = _up_to(steps[: 3 if m <= FEW_ROWS else 2], self.K)
            for k, stages, panel in itertools.product(depths, STAGES, PANELS):
                # More versions than there are steps are never filled.
                is_whole = stages <= max(2, math.ceil(self.K / k))
                if is_whole and (panel == 1 or m * panel <= self.M):
                    yield Tiling(m, n, k, stages, threads, panel, by_groups)

    def candidates(self) -> Iterator[Hint]:
        """See `BaseTemplate`."""
        product = self.product
        for tiling in self.tilings():
            yield Hint(
                block=(tiling.m, tiling.n),
                warp=tiling.warp(self.arch.warp_size),
                rstep=(tiling.k,),
                pipeline_stage=tiling.stages,
                use_async=tiling.stages > 1,
                vectorize=max(1, int(16 / product.operand)),
                rasterization_plan=NoRasterization()
                if tiling.panel == 1
                else Rasterization2DRow(tiling.panel),
                threads=tiling.threads,
                seconds=product_seconds(self.arch, product, tiling),
            )


def _up_to(sizes: tuple[int, ...] | list[int], extent: int) -> list[int]:
    """The sizes that are not larger than the extent, and the first that covers it."""
    return [size for i, size in enumerate(sizes) if i == 0 or sizes[i - 1] < extent]


def _divides(m: int, n: int, warps: int) -> bool:
    """Whether warps share a tile of mma's: 16 rows and 8 columns each or more (PTX ISA, mma)."""
    rows, columns = warp_tile(m, n, warps, by_warp_groups=False)
    return rows >= 16 and columns >= 8 and columns % 8 == 0
