"""Tensor maps: what TMA is told about a tensor, and the checks of it.

A map describes a tensor in global memory and the box of it that one copy moves. The CUDA driver
encodes it for the GPU, `tilelang.emulator.tensor_map` for the emulator; both after the same checks,
which are those of ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col`` (CUDA Driver API,
Tensor Map Object Management). Dimensions are innermost first throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from tilelang.utils import dtypes

# Numbers of CUtensorMapDataType. Types without one of their own move as their bits.
_FLOATS = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9}
_INTEGERS = {"uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5}
MAP_DTYPES = {number: dtype for dtype, number in (_FLOATS | _INTEGERS).items()}
"""A dtype for each number of CUtensorMapDataType."""
_BITS = {1: 0, 2: 1, 4: 2, 8: 4}
_SWIZZLES = (0, 32, 64, 128)
_CORNER_BITS = {3: 16, 4: 8, 5: 5}


@dataclass(frozen=True)
class Im2col:
    """The pixels of a map in im2col mode.

    Attributes:
        lower: for each pixel dimension, where the bounding box begins, relative to the first pixel.
        upper: where it ends, relative to the last pixel.
        channels: channels that a copy takes of each pixel.
        pixels: pixels that a copy takes.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int

    def __post_init__(self) -> None:
        for corner in ("lower", "upper"):
            object.__setattr__(self, corner, tuple(getattr(self, corner)))

    def script(self) -> str:
        """The pixels in a few words."""
        corners = f"pixels {self.lower} to {self.upper}"
        return f"({corners}, {self.channels} channels of {self.pixels})"


@dataclass(frozen=True)
class TensorMap:
    """A tensor and the box of one copy; all in elements, innermost dimension first.

    Attributes:
        name: of the parameter, for error texts.
        dtype: of the elements.
        shape: 1 to 5 extents.
        strides: of the dimensions but the innermost, which is contiguous.
        box: extents of the box; empty for im2col.
        element_strides: steps between the elements of the box that are copied.
        swizzle: bytes within which 16-byte chunks are exchanged: 0, 32, 64 or 128.
        l2_promotion: bytes that the L2 cache reads at once: 0, 64, 128 or 256.
        oob_fill: what is read outside of the tensor.
        im2col: the pixels, for a map in im2col mode.

    Raises `ValueError` with what was found and what was wanted where the hardware has no such map.

    Example: ``TensorMap("A", "float16", (64, 256), (64,), (64, 128), swizzle=128)``
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    l2_promotion: int = 128
    oob_fill: Literal["zeros", "nan"] = "zeros"
    im2col: Im2col | None = None

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.shape))
        self._check_tensor()
        if self.im2col is None:
            self._check_box()
        else:
            self._check_pixels(self.im2col)
        self._check_row()

    @staticmethod
    def of_bytes(
        name: str, dtype: str, shape: tuple[int, ...], byte_strides: tuple[int, ...], **rest: Any
    ) -> TensorMap:
        """A map whose strides are given in bytes.

        Raises `ValueError` also where they are no multiples of an element.
        """
        size = max(1, dtypes.bits(dtype) // 8)
        if any(stride % size for stride in byte_strides):
            raise ValueError(
                f"tensor map of `{name}`: found strides of {_list(byte_strides)} bytes, wanted "
                f"multiples of {size}. Pad the rows."
            )
        strides = tuple(stride // size for stride in byte_strides)
        return TensorMap(name, dtype, shape, strides, **rest)

    @property
    def data_type(self) -> int:
        """The dtype's number in the driver's CUtensorMapDataType."""
        known = _FLOATS | _INTEGERS
        return known[self.dtype] if self.dtype in known else _BITS[self.element_bytes]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; a bool has one."""
        return -(-dtypes.bits(self.dtype) // 8)

    @property
    def byte_strides(self) -> tuple[int, ...]:
        return tuple(stride * self.element_bytes for stride in self.strides)

    @property
    def box_bytes(self) -> int:
        """Bytes of shared memory that a copy fills, and that its mbarrier counts."""
        if self.im2col is not None:
            return self.im2col.channels * self.im2col.pixels * self.element_bytes
        total = self.box[0] * self.element_bytes
        for extent, step in zip(self.box[1:], self.element_strides[1:], strict=True):
            total *= -(-extent // step)
        return total

    def check_address(self, address: int) -> None:
        """Raises `ValueError` where a tensor at this address has no map."""
        if address % 16 != 0:
            self._refuse(
                f"its data {address % 16} bytes past a multiple of 16", "an aligned one", "Copy it"
            )

    def _check_tensor(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= 5 or len(self.strides) != rank - 1:
            self._refuse(
                f"{rank} extents and {len(self.strides)} strides",
                "1 to 5 extents, and a stride for each but the innermost",
                "Merge dimensions",
            )
        if self.element_bytes not in _BITS or dtypes.packing(self.dtype) > 1:
            self._refuse(f"dtype {self.dtype}", "elements of 1, 2, 4 or 8 bytes", "Pass bytes")
        if any(not 1 <= extent <= 1 << 32 for extent in self.shape):
            self._refuse(f"shape {self.shape}", "extents from 1 to 2^32", "Check the shape")
        if any(stride % 16 != 0 or not 0 <= stride < 1 << 40 for stride in self.byte_strides):
            self._refuse(
                f"strides of {_list(self.byte_strides)} bytes",
                "multiples of 16 below 2^40",
                f"Pad the rows to a multiple of {16 // self.element_bytes} elements",
            )
        if len(self.element_strides) != rank or any(not 1 <= s <= 8 for s in self.element_strides):
            self._refuse(
                f"element strides {self.element_strides}", f"{rank} of them, 1 to 8", "Use 1"
            )
        if self.swizzle not in _SWIZZLES:
            self._refuse(f"swizzle {self.swizzle}", "0, 32, 64 or 128 bytes", "Use 128")
        if self.l2_promotion not in (0, 64, 128, 256):
            self._refuse(f"L2 promotion {self.l2_promotion}", "0, 64, 128 or 256 bytes", "Use 128")
        if self.oob_fill != "zeros" and (self.oob_fill != "nan" or self.dtype not in _FLOATS):
            self._refuse(
                f"fill {self.oob_fill!r} of {self.dtype}",
                "'zeros', or 'nan' for floats of at least 16 bits",
                "Use 'zeros'",
            )

    def _check_box(self) -> None:
        if len(self.box) != len(self.shape) or any(not 1 <= extent <= 256 for extent in self.box):
            self._refuse(
                f"box {self.box}", f"{len(self.shape)} extents from 1 to 256", "Use smaller tiles"
            )

    def _check_pixels(self, im2col: Im2col) -> None:
        rank = len(self.shape)
        if rank not in _CORNER_BITS or self.box:
            self._refuse(
                f"im2col of {rank} dimensions and box {self.box}",
                "3, 4 or 5 dimensions and no box",
                "Give im2col instead of the box",
            )
        limit = 1 << (_CORNER_BITS[rank] - 1)
        for corner in (im2col.lower, im2col.upper):
            if len(corner) != rank - 2 or any(not -limit <= place < limit for place in corner):
                self._refuse(
                    f"bounding box from {im2col.lower} to {im2col.upper}",
                    f"{rank - 2} places from {-limit} to {limit - 1}",
                    "Use less padding",
                )
        steps = zip(self.shape[1:-1], im2col.lower, im2col.upper, strict=True)
        if any(extent + upper <= lower for extent, lower, upper in steps):
            self._refuse(
                f"extents {self.shape[1:-1]} with pixels from {im2col.lower} to {im2col.upper}",
                "a window that fits into the padded image",
                "Use a larger image or more padding",
            )
        if not 1 <= im2col.channels <= 256 or not 1 <= im2col.pixels <= 1024:
            self._refuse(
                f"{im2col.channels} channels of {im2col.pixels} pixels",
                "1 to 256 channels of 1 to 1024 pixels",
                "Use smaller tiles",
            )

    def _check_row(self) -> None:
        extent = self.box[0] if self.im2col is None else self.im2col.channels
        row = extent * self.element_bytes
        if row % 16 != 0:
            self._refuse(
                f"a box with rows of {row} bytes", "a multiple of 16", "Widen its inner extent"
            )
        # What shared memory looks like where a row is shorter than the swizzle is not documented.
        if self.swizzle and row != self.swizzle:
            self._refuse(
                f"a box with rows of {row} bytes and a swizzle of {self.swizzle}",
                "rows of as many bytes as the swizzle",
                f"Use an inner extent of {self.swizzle // self.element_bytes}, or another swizzle",
            )

    def _refuse(self, found: str, wanted: str, repair: str) -> NoReturn:
        raise ValueError(f"tensor map of `{self.name}`: found {found}, wanted {wanted}. {repair}.")


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
