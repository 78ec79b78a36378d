"""``OddRows``: rows of any number of bytes as an operand of a product, without a copy of them.

TMA takes tensors whose rows are multiples of 16 bytes, and boxes that begin at one. Rows p apart
begin at the same byte of 16, if p of them are a multiple of 16 bytes: a view that has p rows as one
has rows that TMA takes. A box has the whole 16 bytes around a part of rows that begin at the same
byte, and threads shift its words as these go to the registers of an operand. So the rows of a tile
are in another order than those of the tensor, and so are those of the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tilelang.language as T

CHUNK = 16
"""Bytes of which TMA takes multiples."""
WORD = 4
"""Bytes of a register."""


@dataclass(frozen=True)
class OddRows:
    """Rows of a contiguous tensor, whose number is a multiple of `phases`, as tiles of `height`
    rows.

    Attributes:
        length: elements of a row.
        dtype: of elements of 8 or 16 bits.
        height: rows of a tile: 8 times `phases` or a multiple of that, so that boxes begin where
            TMA wants it in shared memory.

    Example: ``odd = OddRows(31103, T.float8_e4m3fn, 128)``
    """

    length: int
    dtype: T.dtype
    height: int

    def __post_init__(self) -> None:
        if T.dtype(self.dtype).bits not in (8, 16):
            raise ValueError(f"dtype is {self.dtype}, wanted one of 8 or 16 bits")
        if self.height < 1 or self.height % (8 * self.phases):
            raise ValueError(
                f"height is {self.height}, wanted a multiple of {8 * self.phases}: 8 rows of each "
                f"of the {self.phases} bytes at which rows of {self.length} elements begin"
            )

    @property
    def element(self) -> int:
        """Bytes."""
        return T.dtype(self.dtype).bits // 8

    @property
    def phases(self) -> int:
        """The fewest rows that are a multiple of 16 bytes."""
        return CHUNK // math.gcd(self.length * self.element, CHUNK)

    @property
    def ahead(self) -> int:
        """Elements by which a row in shared memory is longer than the part of it that is wanted."""
        return CHUNK // self.element

    @property
    def of_phase(self) -> int:
        """Rows of a tile that begin at the same byte."""
        return self.height // self.phases

    def view(self, tensor: Any) -> Any:
        """The tensor (.., rows, length) as rows that TMA takes, in a kernel."""
        rows = math.prod(int(extent) for extent in tensor.shape[:-1])
        if rows % self.phases:
            raise ValueError(f"found {rows} rows, wanted a multiple of {self.phases}")
        shape = rows // self.phases, self.phases * self.length
        return T.Tensor(shape, self.dtype, tensor.data)

    def alloc(self, width: int) -> Any:
        """Shared memory for `width` elements of the rows of a tile."""
        return T.alloc_shared((self.height, width + self.ahead), self.dtype)

    def place(self, i: Any) -> Any:
        """Which of the tile's rows, as the tensor has them, is row `i` in shared memory."""
        return i % self.of_phase * self.phases + i // self.of_phase


@T.macro
def load_odd_rows(odd: OddRows, source: Any, first: Any, column: Any, target: Any) -> None:
    """Load the parts of a tile's rows that begin at element `column`, a multiple of 16 bytes, and
    the elements around them that fill 16 bytes.

    Args:
        source: ``odd.view`` of the tensor.
        first: the tile's first row, divided by ``odd.phases``.
        target: ``odd.alloc`` of the part's elements.
    """
    some, width = odd.of_phase, target.shape[1]
    for r in T.unroll(odd.phases, explicit=True):
        begin = r * odd.length // odd.ahead * odd.ahead + column
        box = source[first : first + some, begin : begin + width]
        # Who evicts them first loads lines twice that lie in two boxes.
        T.copy(box, target[r * some : (r + 1) * some, :])


@T.macro
def shift_odd_rows(odd: OddRows, source: Any, column: Any, target: Any) -> None:
    """The elements of these parts, and zeros behind the end of their rows, in the order in which
    shared memory has the rows.

    Args:
        source: what `load_odd_rows` filled from element `column` on.
        target: a fragment, the first operand of a product.
    """
    rows, width = target.shape
    words = int(width) * odd.element // WORD
    given = T.view(source, (rows, words + CHUNK // WORD), T.uint32)
    wanted = T.view(target, (rows, words), T.uint32)
    for i, j in T.Parallel(rows, words):
        begin = i // odd.of_phase * (odd.length * odd.element % CHUNK) % CHUNK
        at = j + begin // WORD
        pair = T.cast(given[i, at + 1], T.uint64) << 32 | T.cast(given[i, at], T.uint64)
        wanted[i, j] = T.cast(pair >> T.cast(begin % WORD * 8, T.uint64), T.uint32)
    if column + width > odd.length:
        for i, j in T.Parallel(rows, words):
            left = (odd.length - column) * odd.element - WORD * j
            bits = T.cast(T.min(T.max(left, 0), WORD) * 8, T.uint64)
            wanted[i, j] &= T.cast((T.uint64(1) << bits) - T.uint64(1), T.uint32)
