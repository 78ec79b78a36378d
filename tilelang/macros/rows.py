"""``copy_rows``: a kernel that copies rows to longer or shorter ones at a copy's speed.

Rows of any number of bytes begin anywhere in a word. A thread stores whole words: it loads the two
words in which the bytes of one lie, and shifts them. All loads of a thread stand in front of its
stores, so that they are under way together. Words that have bytes of two rows, and those at the
ends of the tensors, are stored byte by byte.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import tilelang.language as T

WORD = 8
"""Bytes."""
SHIFT = 3
"""By which bytes are words."""
THREADS = 128
ROWS = 8
"""Words of a thread, below each other."""


@dataclass(frozen=True)
class Copy:
    """Numbers of a copy, which are constants of the program.

    Attributes:
        rows: of both tensors.
        given, wanted: bytes of a row.
    """

    rows: int
    given: int
    wanted: int

    @property
    def together(self) -> int:
        """Rows of the target that are whole words: the fewest, or as many as a block's threads have
        a word of."""
        fewest = WORD // math.gcd(self.wanted, WORD)
        return fewest * max(1, THREADS * WORD // (fewest * self.wanted))

    @property
    def words(self) -> int:
        """Words of so many rows."""
        return self.together * self.wanted // WORD

    @property
    def across(self) -> int:
        """Blocks beside each other that copy these words."""
        return -(-self.words // THREADS)

    @property
    def blocks(self) -> int:
        """Blocks of the whole copy."""
        if self.is_short:
            return -(-self.rows // THREADS)
        return self.across * -(-self.rows // (self.together * ROWS))

    @property
    def source_words(self) -> int:
        """Whole ones of the source."""
        return self.rows * self.given // WORD

    @property
    def loads(self) -> int:
        """Words of the source that a thread loads for one of the target."""
        return 2 if self.shifts else 1

    @property
    def target_words(self) -> int:
        """And of the target."""
        return self.rows * self.wanted // WORD

    @property
    def target_tail(self) -> int:
        """Bytes behind the last word of the target."""
        return self.rows * self.wanted % WORD

    @property
    def is_short(self) -> bool:
        """Whether it is copied byte by byte."""
        return min(self.given, self.wanted) < WORD or self.source_words < self.loads

    @property
    def shifts(self) -> bool:
        """Whether rows of the source begin in a word, or words of the target in a row."""
        return self.given % WORD != 0 or self.wanted % WORD != 0


def _copy_of(source: Any, target: Any) -> Copy:
    counts = []
    for tensor in (source, target):
        if not all(isinstance(extent, int) or hasattr(extent, "value") for extent in tensor.shape):
            raise ValueError(f"copy_rows found {tensor.name} of shape {tensor.shape}, wanted ints")
        *outer, last = (int(extent) for extent in tensor.shape)
        counts.append((math.prod(outer), last * T.dtype(tensor.dtype).bits // 8))
    (rows, given), (below, wanted) = counts
    if rows != below or source.dtype != target.dtype:
        raise ValueError(
            f"copy_rows found {rows} rows of {source.dtype} and {below} of {target.dtype}, wanted "
            "as many of the same dtype"
        )
    return Copy(rows, given, wanted)


@T.macro
def _gathered(x: Any, row: Any, column: Any, copy: Copy) -> Any:
    """A word of the target, of bytes of two rows or of the last bytes of the source."""
    word = T.alloc_var(T.uint64, init=0)
    for byte in T.unroll(WORD):
        at, of = (column + byte) % copy.wanted, row + (column + byte) // copy.wanted
        if of < copy.rows and at < copy.given:
            word = word | T.cast(x[of, at], T.uint64) << (8 * byte)
    return word


@T.macro
def _shifted(low: Any, high: Any, begin: Any) -> Any:
    """The word that begins in `low`."""
    bits = T.cast(begin & (WORD - 1), T.uint64) * 8
    # In two steps: a shift by all bits of a word is none.
    return low >> bits | high << 1 << (8 * WORD - 1 - bits)


@T.macro
def _copy_part(X: Any, Y: Any, copy: Copy, block: Any) -> None:
    """The rows and words of a block."""
    x_bytes = T.view(X, (copy.rows, copy.given), T.uint8)
    x = T.Tensor((copy.source_words,), T.uint64, X.data)
    y = T.Tensor((copy.target_words,), T.uint64, Y.data)
    low = T.alloc_local((ROWS,), T.uint64)
    high = T.alloc_local((ROWS,), T.uint64)
    word = block % copy.across * THREADS + T.get_thread_binding()
    first = block // copy.across * ROWS
    turn = WORD * word // copy.wanted
    column = WORD * word - turn * copy.wanted
    inside = T.min(column, copy.given - 1)
    kept = T.min(T.max(copy.given - column, 0), WORD)
    mask = T.alloc_var(T.uint64, init=(T.uint64(1) << T.cast(8 * kept, T.uint64)) - 1)
    if kept == WORD:
        mask = ~T.uint64(0)
    for i in T.unroll(ROWS):
        row = T.min((first + i) * copy.together + turn, copy.rows - 1)
        at = T.min((row * copy.given + inside) >> SHIFT, copy.source_words - copy.loads)
        low[i] = x[at]
        high[i] = x[at + 1] if copy.shifts else 0
    for i in T.unroll(ROWS):
        row = (first + i) * copy.together + turn
        begin = row * copy.given + inside
        of_two = column + WORD > copy.wanted if copy.wanted % WORD else False
        at_end = (begin >> SHIFT) > copy.source_words - copy.loads
        at = (first + i) * copy.words + word
        if word < copy.words and at < copy.target_words:
            if of_two or at_end:
                y[at] = _gathered(x_bytes, row, column, copy)
            elif copy.shifts:
                y[at] = _shifted(low[i], high[i], begin) & mask
            else:
                y[at] = low[i] & mask
    if copy.target_tail:
        y_bytes = T.view(Y, (copy.rows * copy.wanted,), T.uint8)
        left = T.get_thread_binding()
        if block == 0 and left < copy.target_tail:
            at = copy.wanted - copy.target_tail + left
            last = copy.rows - 1
            value = T.if_then_else(at < copy.given, x_bytes[last, T.min(at, copy.given - 1)], 0)
            y_bytes[WORD * copy.target_words + left] = value


@T.macro
def _copy_bytes(X: Any, Y: Any, copy: Copy, block: Any) -> None:
    """Rows that have no word."""
    x = T.view(X, (copy.rows, copy.given), T.uint8)
    y = T.view(Y, (copy.rows, copy.wanted), T.uint8)
    row = block * THREADS + T.get_thread_binding()
    if row < copy.rows:
        for j in T.serial(copy.wanted):
            y[row, j] = T.if_then_else(j < copy.given, x[row, T.min(j, copy.given - 1)], 0)


@T.macro
def copy_rows(*pairs: Any) -> None:
    """Copy the rows of tensors to shorter ones, or to longer ones that end with zeros: a kernel of
    its own, one for all pairs.

    TMA takes tensors whose rows are multiples of 16 bytes. Others are copied to a workspace with
    such rows, whatever is in them, in front of the kernel that loads them. That kernel may begin
    beside it, if it waits by itself (``T.pdl_sync``).

    Parameters
    ----------
    pairs
        A source and a target each: contiguous tensors in global memory, of constant shapes (..,
        given) and (.., wanted), with as many rows, and of the same dtype.

    Raises
    ------
    ValueError
        If an extent is not constant; if the numbers of rows, or the dtypes, differ.

    Example
    -------
    ``wide = T.alloc_global((M, 208), T.bfloat16)``; ``copy_rows((A, wide))`` for A of (M, 201)
    """
    copies = [_copy_of(source, target) for source, target in pairs]
    ends = list(itertools.accumulate(copy.blocks for copy in copies))
    with T.Kernel(ends[-1], threads=THREADS) as block:
        T.pdl_trigger()
        for (source, target), copy, end in zip(pairs, copies, ends, strict=True):
            if block >= end - copy.blocks and block < end:
                part = _copy_bytes if copy.is_short else _copy_part
                part(source, target, copy, block - (end - copy.blocks))
