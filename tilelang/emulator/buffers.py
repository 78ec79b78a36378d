"""Names for places in the memory of an emulated kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_BYTES = {
    **dict.fromkeys(("bool", "int8_t", "uint8_t", "fp8_e4_t", "fp8_e5_t", "fp8_e8_t"), 1),
    **dict.fromkeys(("half_t", "bfloat16_t", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("float", "int", "uint32_t", "unsigned", "unsigned int"), 4),
    **dict.fromkeys(("double", "int64_t", "uint64_t"), 8),
}
_KERNEL = re.compile(r"^extern \"C\" __global__ ", re.MULTILINE)
_SHARED = re.compile(r"auto (\w+) = tl::shared<([\w ]+), (\d+)>\((\w+) \+ (\d+)\);")
_SHARED_TILE = re.compile(r"auto (\w+) = tl::shared<([\w ]+)>\(\w+ \+ (.+), .+\);")
_LOCAL = re.compile(r"tl::local<([\w ]+), (\d+)> (\w+);")
_STATIC_SHARED = "buf_shmem"


@dataclass(frozen=True)
class Array:
    """A declared array of a kernel: `extent` elements of `itemsize` bytes from byte `start` of its
    memory, which is ``"dynamic"`` or ``"static"`` shared memory, or ``"local"``. What only the
    launch knows is None.
    """

    name: str
    memory: str
    start: int | None
    extent: int | None
    itemsize: int

    def begins_at(self, start: int) -> bool:
        """Whether it may begin at byte `start`."""
        return self.start is None or self.start == start

    def holds(self, offset: int) -> bool:
        """Whether byte `offset` is surely in it."""
        if self.start is None or self.extent is None:
            return False
        return self.start <= offset < self.start + self.extent * self.itemsize

    def element(self, offset: int) -> int:
        """The number of the element at byte `offset`; for an array whose `start` is known."""
        assert self.start is not None
        return (offset - self.start) // self.itemsize

    def is_of(self, size: int) -> bool:
        """Whether it may have `size` bytes."""
        return self.extent is None or self.extent * self.itemsize == size

    def place(self, offset: int, start: int | None = None) -> str:
        """The element at byte `offset` of the memory, such as ``A_shared + 209``; `start` is where
        it begins, if that is known."""
        start = self.start if start is None else start
        if start is None:
            return self.name
        element = (offset - start) // self.itemsize
        return f"{self.name} {'-' if element < 0 else '+'} {abs(element)}"


def declared_arrays(source: str, kernel: str) -> list[Array]:
    """The arrays that a kernel of a generated source declares."""
    arrays = []
    for text in _KERNEL.split(source)[1:]:
        if not re.match(rf"[^(]*(\(\d[^)]*\))? *{kernel}\(", text):
            continue
        for name, ctype, extent, memory, start in _SHARED.findall(text):
            kind = "static" if memory == _STATIC_SHARED else "dynamic"
            arrays.append(Array(name, kind, int(start), int(extent), _BYTES.get(ctype, 1)))
        for name, ctype, start in _SHARED_TILE.findall(text):
            known = int(start) if start.isdigit() else None
            arrays.append(Array(name, "dynamic", known, None, _BYTES.get(ctype, 1)))
        for ctype, extent, name in _LOCAL.findall(text):
            arrays.append(Array(name, "local", 0, int(extent), _BYTES.get(ctype, 1)))
    return arrays


@dataclass(frozen=True)
class Tensor:
    """A tensor argument of a launch, in elements of `bits` bits; it begins `start` bytes behind the
    argument's address. `owner` says of which rank it is, where there are several."""

    name: str
    shape: Sequence[int]
    strides: Sequence[int]
    bits: int
    start: int = 0
    owner: str = ""

    @staticmethod
    def of_array(name: str, array: np.ndarray, owner: str = "") -> Tensor:
        """A numpy array."""
        bits = 8 * array.itemsize
        strides = [stride // array.itemsize for stride in array.strides]
        return Tensor(name, array.shape, strides, bits, owner=owner)

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The index of the element at byte `offset`; before or behind the tensor the outermost
        index leaves its range. None where no index leads there.
        """
        rest = (offset - self.start) * 8 // self.bits
        index = [0] * len(self.shape)
        order = sorted(range(len(self.shape)), key=lambda d: -self.strides[d])
        for place, d in enumerate(order):
            if self.strides[d] <= 0:
                continue
            index[d] = rest // self.strides[d]
            if place > 0 and index[d] >= self.shape[d]:
                return None
            rest -= index[d] * self.strides[d]
        return tuple(index) if rest == 0 else None

    def place(self, offset: int) -> str:
        """The element at byte `offset`, such as ``A[3, 17]`` or ``A + 209``."""
        index = self.index(offset)
        if index is None:
            return f"{self.name} + {(offset - self.start) * 8 // self.bits}{self.owner}"
        return f"{self.name}[{', '.join(map(str, index))}]{self.owner}"
