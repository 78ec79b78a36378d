"""Kernels that the memory's bandwidth bounds: elementwise, reductions, matrix times vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from tilelang.carver.cost import streaming_seconds
from tilelang.carver.roller.hint import Hint
from tilelang.carver.template.base import BaseTemplate, element_bytes

THREADS = (64, 128, 256, 512)
SHARES = (8, 16, 32, 64, 128, 256)
"""Threads that reduce a row together."""
LOADS = (1, 2, 4, 8)
"""Vectors of 16 bytes that a thread has on their way."""


class ElementwiseTemplate(BaseTemplate):
    """A tensor of `shape` of one of the same shape.

    Example: ``ElementwiseTemplate([4096, 4096], "float16").recommend_hints(5)``
    """

    def __init__(self, shape: Sequence[int], dtype: str = "float16"):
        self.shape, self.dtype = tuple(shape), str(dtype)

    def candidates(self) -> Iterator[Hint]:
        """See `BaseTemplate`. `block` is a row of consecutive elements."""
        size, width = math.prod(self.shape), element_bytes(self.dtype)
        vector = max(1, int(16 / width))
        for threads, loads in itertools.product(THREADS, LOADS):
            block = threads * vector * loads
            blocks = math.ceil(size / block)
            yield Hint(
                block=(block,),
                thread=(threads,),
                vectorize=vector,
                threads=threads,
                seconds=streaming_seconds(self.arch, 2 * size * width, blocks, threads, 16 * loads),
            )


class _RowTemplate(BaseTemplate):
    """Rows, each of which some threads reduce to one number."""

    rows: int
    length: int
    dtype: str

    def moved(self) -> float:
        """Bytes that are read and written."""
        width = element_bytes(self.dtype)
        return (self.rows * self.length + self.rows) * width

    def candidates(self) -> Iterator[Hint]:
        """See `BaseTemplate`. `block` is a number of rows, `rstep` what a step takes of each."""
        vector = max(1, int(16 / element_bytes(self.dtype)))
        for threads, loads, share in itertools.product(THREADS, LOADS, SHARES):
            if share > threads:
                continue
            rows, step = threads // share, share * vector * loads
            used = min(1.0, self.length / (math.ceil(self.length / step) * step))
            blocks = math.ceil(self.rows / rows)
            seconds = streaming_seconds(self.arch, self.moved() / used, blocks, threads, 16 * loads)
            # Threads that share a row exchange what they have: five shuffles, or through shared
            # memory where they are in several warps.
            exchange = (150 if share <= 32 else 300) / self.arch.speeds.clock
            waves = math.ceil(blocks / self.arch.speeds.sms / 8)
            yield Hint(
                block=(rows,),
                thread=(rows,),
                rstep=(step,),
                reduce_thread=(share,),
                vectorize=vector,
                threads=threads,
                seconds=seconds + exchange * waves,
            )


class GEMVTemplate(_RowTemplate):
    """y (N) of a matrix (N, K) and a vector (K).

    Example: ``GEMVTemplate(4096, 4096).recommend_hints(5)[0].reduce_thread``
    """

    def __init__(
        self,
        N: int,
        K: int,
        in_dtype: str = "float16",
        out_dtype: str = "float16",
        accum_dtype: str = "float32",
        trans_B: bool = True,
        with_bias: bool = False,
    ):
        self.rows, self.length, self.dtype = N, K, str(in_dtype)
        self.out_dtype, self.accum_dtype = str(out_dtype), str(accum_dtype)
        self.trans_B, self.with_bias = trans_B, with_bias


class GeneralReductionTemplate(_RowTemplate):
    """A tensor whose dimensions `structure` says: ``"S"`` stays, ``"R"`` is reduced.

    Raises `ValueError` where it has not a letter for each dimension.

    Example: ``GeneralReductionTemplate("SR", [1024, 4096], "float16").recommend_hints(5)``
    """

    def __init__(self, structure: str, shape: Sequence[int], dtype: str = "float16"):
        if len(structure) != len(shape) or set(structure) - {"S", "R"}:
            raise ValueError(
                f"structure of GeneralReductionTemplate is {structure!r}, wanted a letter S or R "
                f"for each of {len(shape)} dimensions"
            )
        pairs = list(zip(structure, shape, strict=True))
        self.structure, self.shape, self.dtype = structure, tuple(shape), str(dtype)
        self.rows = math.prod(size for letter, size in pairs if letter == "S")
        self.length = math.prod(size for letter, size in pairs if letter == "R")
