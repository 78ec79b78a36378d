"""Tensor maps of a launch plan, made for the tensors of a call."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import struct
from collections.abc import Callable

import torch

from tilelang.emulator import tensor_map as emulated
from tilelang.engine.launch_plan import Descriptor, LaunchPlan
from tilelang.engine.tensor_map import TensorMap
from tilelang.runtime.adapter.peer_tables import table_at
from tilelang.utils import dtypes

Encode = Callable[[Descriptor, int, tuple[int, ...], tuple[int, ...]], bytes]
"""The 128 bytes for a descriptor, an address, extents, and strides in bytes. Of a descriptor of
peers the address is that of the table, and the first 8 bytes are the address of the maps."""

# Between the elements of the least map, in bytes.
_LEAST_STRIDE = 16


def encoder(plan: LaunchPlan, encode: Callable[[TensorMap, int], bytes]) -> Encode:
    """How the adapter of `plan` makes tensor maps, with `encode` for the checked ones.

    The function raises `ValueError`, naming the kernel and the tensor, where the hardware has no
    map for the tensor.
    """

    owner = object()

    def make(
        descriptor: Descriptor, address: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> bytes:
        if descriptor.peers:
            tensor = descriptor.param.removesuffix("_peers")
            one = dataclasses.replace(descriptor, param=tensor, peers=False)
            maps = table_at(address).maps(
                (descriptor, shape, strides, encode),
                lambda peer: make(one, peer, shape, strides),
            )
            return struct.pack("=Q", maps).ljust(emulated.BYTES, b"\0")
        if 0 in shape:
            # A map has elements even if the tensor has none: zeros. A kernel may write to them: no
            # other map has the same ones, else what is stored to an output would be loaded from an
            # input.
            shape, strides = _least_shape(descriptor), (_LEAST_STRIDE,) * len(strides)
            size = _LEAST_STRIDE * (1 + sum(n - 1 for n in shape))
            address = _zeros(owner, descriptor, size).data_ptr()
        try:
            described = _describe(descriptor, shape, strides)
            described.check_address(address)
        except ValueError as error:
            raise ValueError(f"{plan.where()}: {error}") from error
        return encode(described, address)

    return make


def describe_least(descriptor: Descriptor) -> TensorMap:
    """The map that stands for that of a tensor without elements."""
    shape = _least_shape(descriptor)
    return _describe(descriptor, shape, (_LEAST_STRIDE,) * (len(shape) - 1))


@functools.cache
def _zeros(owner: object, descriptor: Descriptor, size: int) -> torch.Tensor:
    """Bytes for one map of an adapter, `owner`, in memory of the host that every GPU reaches. They
    stay: a kernel may run longer than its adapter is there."""
    memory = torch.zeros(size + _LEAST_STRIDE, dtype=torch.uint8)
    if torch.cuda.is_available():
        memory = memory.pin_memory()
    return memory[-memory.data_ptr() % _LEAST_STRIDE :]


def _least_shape(descriptor: Descriptor) -> tuple[int, ...]:
    """Extents that are not 0, nor are those of the pixels of a map in im2col mode. A row is a chunk
    of 16 bytes: TMA writes no part of one."""
    if descriptor.im2col is None:
        chunk = _LEAST_STRIDE // -(-dtypes.bits(descriptor.dtype) // 8)  # a bool has a byte
        return (chunk, *(1,) * (len(descriptor.shape) - 1))
    corners = zip(descriptor.im2col.lower, descriptor.im2col.upper, strict=True)
    return (1, *[max(1, lower - upper + 1) for lower, upper in corners], 1)


def _describe(
    descriptor: Descriptor, shape: tuple[int, ...], strides: tuple[int, ...]
) -> TensorMap:
    return TensorMap.of_bytes(
        descriptor.param,
        descriptor.dtype,
        shape,
        strides,
        box=descriptor.box,
        element_strides=descriptor.element_strides,
        swizzle=descriptor.swizzle,
        l2_promotion=descriptor.l2_promotion,
        oob_fill=descriptor.oob_fill,
        im2col=descriptor.im2col,
    )


def encode_for_driver(tensor_map: TensorMap, address: int) -> bytes:
    """The ``CUtensorMap`` that the CUDA driver makes (CUDA Driver API, cuTensorMapEncodeTiled and
    cuTensorMapEncodeIm2col).

    Raises `RuntimeError` where the driver refuses it.
    """
    from cuda.bindings import driver

    from tilelang.runtime.adapter.cuda_module import check

    fill = driver.CUtensorMapFloatOOBfill
    none, nan = (
        fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    )
    # Of one dimension too the driver refuses a null pointer to strides, though it reads none.
    strides = tensor_map.byte_strides or (_LEAST_STRIDE,)
    tensor = (
        driver.CUtensorMapDataType(tensor_map.data_type),
        len(tensor_map.shape),
        address,
        [driver.cuuint64_t(extent) for extent in tensor_map.shape],
        [driver.cuuint64_t(stride) for stride in strides],
    )
    access = (
        [driver.cuuint32_t(step) for step in tensor_map.element_strides],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle((0, 32, 64, 128).index(tensor_map.swizzle)),
        driver.CUtensorMapL2promotion((0, 64, 128, 256).index(tensor_map.l2_promotion)),
        nan if tensor_map.oob_fill == "nan" else none,
    )
    im2col = tensor_map.im2col
    if im2col is None:
        box = [driver.cuuint32_t(extent) for extent in tensor_map.box]
        made = check(
            driver.cuTensorMapEncodeTiled(*tensor, box, *access),
            f"cuTensorMapEncodeTiled({tensor_map.name})",
        )
    else:
        pixels = list(im2col.lower), list(im2col.upper), im2col.channels, im2col.pixels
        made = check(
            driver.cuTensorMapEncodeIm2col(*tensor, *pixels, *access),
            f"cuTensorMapEncodeIm2col({tensor_map.name})",
        )
    return ctypes.string_at(int(made.getPtr()), emulated.BYTES)


encode_for_emulator = emulated.encode_tensor_map
