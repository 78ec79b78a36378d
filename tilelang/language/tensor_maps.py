"""Tensor maps of the program's own, and loads of boxes by hand (sm_90)."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.engine.tensor_map import MAP_DTYPES
from tilelang.engine.tensor_map_spec import TensorMapSpec
from tilelang.language.barriers import barrier_operand
from tilelang.language.copies import eviction_number
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.element_address import as_element, check_scope, constant
from tilelang.language.intrinsics import address_of
from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.ops import device_call
from tilelang.language.scalars import as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import current_tracer

_NUMBERS = {name: number for number, name in MAP_DTYPES.items()}
_EVICTIONS = ("evict_normal", "evict_first", "evict_last")


def create_tma_descriptor(dtype: Any, rank: int, tensor: Any, *numbers: Any) -> ir.Call:
    """Return a tensor map: what TMA is told about a tensor of the call
    and the box of it that one copy moves. The host makes it before the launch; ``T.tma_load`` takes
    it.

    Parameters
    ----------
    dtype
        Data type of the elements, or its number in CUtensorMapDataType.
    rank
        Number of dimensions, 1 to 5.
    tensor
        A parameter of the function, its first element, or a pointer to that (``A.data``).
    numbers
        Of each dimension, innermost first, ``rank`` extents in elements, ``rank`` strides in bytes,
        ``rank`` extents of the box and ``rank`` steps between its elements; then the interleave
        (0), the swizzle (0 to 3 for none, 32, 64, 128 bytes), the L2 promotion (0 to 3 for none,
        64, 128, 256 bytes) and what is read outside of the tensor (0 for zeros, 1 for NaN), all as
        in cuTensorMapEncodeTiled (CUDA Driver API). Extents and strides may be expressions over
        sizes of the call, the others are constants.

    Raises
    ------
    ValueError
        For another number of numbers, or one that is none of these; for another tensor. A map that
        the hardware does not have is refused at the call.
    TypeError
        If ``tensor`` is no place in memory, or a number no integer.

    Example
    -------
    ``T.create_tma_descriptor(T.float16, 2, A.data, K, M, 2, K * 2, 64, 128, 1, 1, 0, 3, 2, 0)``
    """
    name = "T.create_tma_descriptor"
    dimensions = constant(name, "rank", rank, (1, 2, 3, 4, 5))
    if len(numbers) != 4 * dimensions + 4:
        raise ValueError(
            f"{name} found {len(numbers)} numbers behind the tensor, wanted {4 * dimensions + 4} "
            f"for rank {dimensions}: extents, strides, box and steps of each dimension, then "
            "interleave, swizzle, L2 promotion and fill"
        )
    place = as_element(name, tensor, "a parameter of the function")
    check_scope(name, place, ("global",), "pass a parameter of the function")
    if any(as_int(index) != 0 for index in place.indices):
        raise ValueError(
            f"{name} found an element of {place.source.name} that is not the first, wanted the "
            "tensor; add the offset to the coordinates of T.tma_load"
        )
    per_dimension = [numbers[k * dimensions : (k + 1) * dimensions] for k in range(4)]
    shape, strides, box, steps = per_dimension
    _, swizzle, promotion, fill = (
        _number(name, word, n, 0, most)
        for word, n, most in zip(
            ("interleave", "swizzle", "L2 promotion", "fill"),
            numbers[4 * dimensions :],
            (0, 3, 3, 1),
            strict=True,
        )
    )
    spec = TensorMapSpec(
        pointer=address_of(place),
        shape=tuple(_size(name, n) for n in shape),
        byte_strides=tuple(_size(name, n) for n in strides)[1:],
        dtype=_data_type(name, dtype),
        box=tuple(_number(name, "box", n, 1, 256) for n in box),
        element_strides=tuple(_number(name, "a step", n, 1, 8) for n in steps),
        swizzle=(0, 32, 64, 128)[swizzle],
        l2_promotion=(0, 64, 128, 256)[promotion],
        oob_fill="nan" if fill else "zeros",
    )
    return spec.to_call()


def _data_type(name: str, dtype: Any) -> str:
    number = as_int(dtype)
    if number is None:
        number = _NUMBERS.get(str(data_type(dtype)))
        # Types without a number of their own move as their bits.
        number = {8: 0, 16: 1}.get(data_type(dtype).bits) if number is None else number
    if number not in MAP_DTYPES:
        known = ", ".join(f"{n} ({d})" for n, d in sorted(MAP_DTYPES.items()))
        raise ValueError(f"dtype of {name} is {dtype!r}, wanted a type of 8 to 64 bits or {known}")
    return MAP_DTYPES[number]


def _size(name: str, value: Any) -> ir.Expr:
    value = as_expr(value)
    number = as_int(value)
    if number is not None:
        return tirx.const(number, "int32" if number < 2**31 else "int64")
    if is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint")):
        return value
    raise TypeError(f"{name} found {describe(value)}, wanted an integer")


def _number(name: str, word: str, value: Any, least: int, most: int) -> int:
    number = as_int(value)
    if number is None or not least <= number <= most:
        raise ValueError(f"{word} of {name} is {value!r}, wanted a constant {least} to {most}")
    return number


def tma_load(
    descriptor: Any,
    mbarrier: Any,
    smem: Any,
    *coordinates: Any,
    eviction_policy: str | int | None = None,
    cluster_mask: int | None = None,
) -> None:
    """Load one box by TMA: the thread that gets here issues it (PTX ISA,
    cp.async.bulk.tensor).

    The program tells the mbarrier how many bytes come (``T.mbarrier_arrive_expect_tx``), lets one
    thread issue the load, and waits (``T.mbarrier_wait_parity``) before anybody uses them. Elements
    outside of the tensor are filled as the map says.

    Parameters
    ----------
    descriptor
        A tensor map of ``T.create_tma_descriptor``.
    mbarrier
        A buffer of one mbarrier, or an element of a buffer of them.
    smem
        Where the box begins in dynamic shared memory, at a multiple of 128 bytes: an element, a
        buffer or a pointer. The buffer is row-major unless a layout is given to it
        (``T.annotate_layout``) or ``T.gemm`` places it; then the map's swizzle is the layout's.
    coordinates
        Of the box's first element, innermost first; one more is the eviction policy.
    eviction_policy
        ``evict_normal``, ``evict_first``, ``evict_last``, or 0, 1, 2.
    cluster_mask
        A bit for each block of the cluster that gets the box, at the same place; its mbarrier at
        the same place counts the bytes.

    Raises
    ------
    TypeError, ValueError
        If the first three are something else; for another number of coordinates or another policy;
        outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``if tx == 0: T.tma_load(A_map, full[0], A_shared, k * 64, by * 128)``
    """
    name = "T.tma_load"
    current_tracer(name).kernel_scope(name)
    if not TensorMapSpec.is_call(descriptor):
        raise TypeError(
            f"{name} found {describe(descriptor)}, wanted a tensor map of T.create_tma_descriptor"
        )
    rank, given = len(TensorMapSpec.from_call(descriptor).shape), list(coordinates)
    if len(given) == rank + 1 and eviction_policy is None:
        eviction_policy = given.pop()
    if len(given) != rank:
        raise ValueError(
            f"{name} found {len(given)} coordinates, wanted {rank}, one for each dimension of the "
            "tensor map, innermost first"
        )
    tile = as_element(name, smem, "an element of shared memory")
    check_scope(name, tile, ("shared.dyn",), "allocate it with T.alloc_shared")
    arguments: list[Any] = [
        f"tl::{_policy(name, eviction_policy)}",
        descriptor,
        barrier_operand(name, mbarrier),
        address_of(tile),
    ]
    if cluster_mask is not None:
        arguments.append(_mask(name, cluster_mask))
    arguments += [_size(name, c) for c in given]
    op = "tma_load" if cluster_mask is None else "tma_load_multicast"
    tir_builder.evaluate(device_call(op, arguments))


def _policy(name: str, policy: Any) -> str:
    if policy is None or isinstance(policy, str):
        return _EVICTIONS[eviction_number(name, policy or "evict_normal")]
    return _EVICTIONS[constant(name, "eviction_policy", policy, (0, 1, 2))]


def _mask(name: str, cluster_mask: Any) -> int:
    kernel = KernelLaunchFrame.Current()
    assert kernel is not None
    mask = as_int(cluster_mask)
    if mask is None or not 0 < mask < 2**kernel.cluster_blocks:
        raise ValueError(
            f"cluster_mask of {name} is {cluster_mask!r}, wanted a bit for each of the cluster's "
            f"{kernel.cluster_blocks} blocks; T.Kernel(.., cluster_dims=)"
        )
    return mask


__all__ = ["create_tma_descriptor", "tma_load"]
