"""The emulator's form of a tensor map: `emu::TensorMap` of src/device/emu/tl/tensor_map_state.h."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tilelang.engine.tensor_map import TensorMap

# address, strides, last, mark, box, lower, upper, element strides, rank, type, swizzle, NaN, im2col
_FORMAT = struct.Struct("=Q4Q5II5H3h3h5BBBB??")
_MARK = 0x7E450A9D
BYTES = 128
"""Size of a tensor map, which is to be aligned to 64."""


def encode_tensor_map(tensor_map: TensorMap, address: int) -> bytes:
    """The 128 bytes that a kernel in the emulator takes as its ``CUtensorMap``.

    Args:
        tensor_map: the tensor and its box.
        address: of the tensor's first element.

    Raises:
        ValueError: the address is not aligned to 16 bytes.

    Example: ``encode_tensor_map(TensorMap("x", "float32", (64,), (), (32,)), x.data_ptr())``
    """
    tensor_map.check_address(address)
    im2col = tensor_map.im2col
    box = tensor_map.box if im2col is None else (im2col.channels, im2col.pixels)
    packed = _FORMAT.pack(
        address,
        *_padded(tensor_map.byte_strides, 4),
        *_padded([extent - 1 for extent in tensor_map.shape], 5),
        _MARK,
        *_padded(box, 5),
        *_padded(im2col.lower if im2col else (), 3),
        *_padded(im2col.upper if im2col else (), 3),
        *_padded(tensor_map.element_strides, 5),
        len(tensor_map.shape),
        tensor_map.data_type,
        tensor_map.swizzle,
        tensor_map.oob_fill == "nan",
        im2col is not None,
    )
    return packed.ljust(BYTES, b"\0")


def _padded(values: Sequence[int], count: int) -> list[int]:
    return [*values, *[0] * (count - len(values))]
