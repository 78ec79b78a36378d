"""Tensor maps as arguments of kernels."""

import ctypes

import numpy as np

from tilelang.emulator.tensor_map import BYTES, encode_tensor_map
from tilelang.engine.tensor_map import TensorMap


def tensor_map(array: np.ndarray, box: tuple[int, ...], swizzle: int = 0) -> ctypes.Array:
    """The map of an array; the box is innermost first, the swizzle in bytes."""
    strides = tuple(stride // array.itemsize for stride in array.strides[-2::-1])
    described = TensorMap("x", str(array.dtype), array.shape[::-1], strides, box, swizzle=swizzle)
    memory = ctypes.create_string_buffer(BYTES + 64)
    aligned = (ctypes.c_char * BYTES).from_buffer(memory, -ctypes.addressof(memory) % 64)
    aligned.raw = encode_tensor_map(described, array.ctypes.data)
    aligned.array = array  # lives as long as the map
    aligned.described = described
    return aligned
