"""Tensor maps as arguments of kernels."""

import ctypes
from collections.abc import Sequence

import numpy as np

from tilelang.emulator.tensor_map import BYTES, encode_tensor_map
from tilelang.engine.launch_plan import Descriptor
from tilelang.engine.tensor_map import TensorMap


def maps_of(descriptor: Descriptor, arrays: Sequence[np.ndarray]) -> ctypes.Array:
    """Tensor maps of a launch plan, one of each array, one behind the other."""
    described = TensorMap.of_bytes(
        descriptor.param,
        descriptor.dtype,
        descriptor.shape,
        descriptor.strides,
        box=descriptor.box,
        element_strides=descriptor.element_strides,
        swizzle=descriptor.swizzle,
    )
    return _aligned(described, arrays)


def tensor_map(array: np.ndarray, box: tuple[int, ...], swizzle: int = 0) -> ctypes.Array:
    """The map of an array; the box is innermost first, the swizzle in bytes."""
    strides = tuple(stride // array.itemsize for stride in array.strides[-2::-1])
    described = TensorMap("x", str(array.dtype), array.shape[::-1], strides, box, swizzle=swizzle)
    aligned = _aligned(described, [array])
    aligned.array = array
    aligned.described = described
    return aligned


def _aligned(described: TensorMap, arrays: Sequence[np.ndarray]) -> ctypes.Array:
    memory = ctypes.create_string_buffer(BYTES * len(arrays) + 64)
    aligned = (ctypes.c_char * (BYTES * len(arrays))).from_buffer(
        memory, -ctypes.addressof(memory) % 64
    )
    aligned.raw = b"".join(encode_tensor_map(described, a.ctypes.data) for a in arrays)
    aligned.arrays = arrays  # live as long as the maps
    return aligned
