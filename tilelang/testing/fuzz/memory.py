"""The interpreter's memory: elements with their errors, whether they are defined, and who touched
them since when, so that an unordered access is noticed."""

from __future__ import annotations

import dataclasses

import numpy as np

from tilelang.testing.fuzz.operations import FLOATS, INTS, Values, fit
from tilelang.testing.fuzz.program import Invalid

NOBODY, SEVERAL, ATOMIC = -1, -2, -3


class Accesses:
    """Who has read and written each element of a buffer since the last synchronisation.

    Two parties are unordered: what one writes no other may read or write, but atomically.
    """

    def __init__(self, size: int):
        self.writer = np.full(size, NOBODY)
        self.reader = np.full(size, NOBODY)

    def read(self, where: np.ndarray, who: np.ndarray) -> None:
        """Notes reads; raises `Invalid` where somebody else has written."""
        writer = self.writer[where]
        if np.any((writer != NOBODY) & (writer != who)):
            raise Invalid("a race: a read of what another one writes")
        before = self.reader[where]
        self.reader[where] = np.where((before == NOBODY) | (before == who), who, SEVERAL)
        # Several of this statement's, of whom the last one was noted.
        self.reader[where[self.reader[where] != who]] = SEVERAL

    def write(self, where: np.ndarray, who: np.ndarray) -> None:
        """Notes writes; raises `Invalid` where somebody else has been."""
        for others in (self.reader[where], self.writer[where]):
            if np.any((others != NOBODY) & (others != who)):
                raise Invalid("a race: a write to what another one uses")
        self.writer[where] = who
        if np.any(self.writer[where] != who):
            raise Invalid("a race: two writes")

    def update(self, where: np.ndarray, who: np.ndarray) -> None:
        """Notes atomic operations, by anyone; raises `Invalid` where there were other accesses."""
        del who
        writer = self.writer[where]
        if np.any((writer != NOBODY) & (writer != ATOMIC)) or np.any(self.reader[where] != NOBODY):
            raise Invalid("a race: an atomic operation and another access")
        self.writer[where] = ATOMIC


@dataclasses.dataclass
class Storage:
    """A buffer's elements in row-major order; float64 or int64 whatever its dtype."""

    dtype: str
    shape: tuple[int, ...]
    value: np.ndarray
    error: np.ndarray
    defined: np.ndarray
    accesses: Accesses
    is_global: bool = False
    order_free: tuple[str, np.ndarray] | None = None
    """The operation of atomic updates or of a reducer, and the sums of all absolute values."""
    threads: list[tuple[int, int] | None] = dataclasses.field(default_factory=list)
    """The threads whose registers these are, None for all of the block; empty before any use."""

    @staticmethod
    def make(dtype: str, shape: tuple[int, ...], is_global: bool = False) -> Storage:
        """Memory of which nothing is defined."""
        if not all(extent >= 1 for extent in shape):
            raise Invalid("an empty buffer")
        size = int(np.prod(shape, dtype=np.int64))
        value = np.zeros(size, np.float64 if dtype in FLOATS else np.int64)
        no = np.zeros(size, np.bool_)
        return Storage(dtype, shape, value, np.zeros(size), no, Accesses(size), is_global)

    def place(self, indices: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The row-major places of elements (0 for those outside), and which are inside.

        Raises `Invalid` outside of a buffer that is not global.
        """
        if len(indices) != len(self.shape):
            raise Invalid("a wrong number of indices")
        where: np.ndarray = np.zeros_like(indices[0])
        inside = np.ones(indices[0].shape, np.bool_)
        for index, extent in zip(indices, self.shape, strict=True):
            inside &= (index >= 0) & (index < extent)
            where = where * extent + index
        if not self.is_global and not inside.all():
            raise Invalid("an index outside of memory of the chip")
        return np.where(inside, where, 0), inside

    def load(self, where: np.ndarray, inside: np.ndarray) -> Values:
        """Elements; 0 outside."""
        if not self.defined[where[inside]].all():
            raise Invalid("a read of what nothing was written to")
        value = np.where(inside, self.value[where], 0)
        error = np.where(inside, self.error[where], 0.0)
        return Values(value, error if error.any() else 0.0, self.dtype)

    def store(self, where: np.ndarray, values: Values) -> None:
        """Replaces elements."""
        self.value[where] = values.value
        self.error[where] = values.error
        self.defined[where] = True
        self.order_free = None


def hash_integers(count: int, seed: int, low: int, high: int) -> np.ndarray:
    """`count` integers from low to high, the same on every machine (the mixing step of
    MurmurHash3)."""
    x = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B1)) ^ np.uint64(seed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        x &= np.uint64(0xFFFFFFFF)
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    return ((x & np.uint64(0xFFFFFFFF)) % np.uint64(high - low + 1)).astype(np.int64) + low


_BITS = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "bool": np.bool_}


def _numpy_dtype(dtype: str) -> np.dtype:
    if dtype not in _BITS and dtype not in INTS:
        raise Invalid(f"the bits of {dtype}")
    return np.dtype(_BITS.get(dtype, dtype))


def reinterpret(storage: Storage, dtype: str, shape: tuple[int, ...]) -> Storage:
    """A copy of the memory's bits under another dtype and shape."""
    if not storage.defined.all() or storage.error.any():
        raise Invalid("bits of what is undefined or rounded")
    bits = storage.value.astype(_numpy_dtype(storage.dtype)).view(_numpy_dtype(dtype))
    view = Storage.make(dtype, shape, storage.is_global)
    if bits.size != view.value.size:
        raise Invalid("a view of another size")
    if dtype in FLOATS and not np.isfinite(bits).all():
        raise Invalid("bits that are no number")
    values = fit(dtype, bits.astype(view.value.dtype))
    view.value[:] = values.value
    view.defined[:] = True
    return view
