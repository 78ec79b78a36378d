"""Descriptors of operands of wgmma in shared memory, kept by the program (sm_90a)."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.allocation import allocate
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.element_address import as_element, check_scope, constant
from tilelang.language.intrinsics import address_of
from tilelang.language.ops import device_call
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import current_tracer
from tilelang.language.unavailable import alloc_tcgen05_instr_desc, alloc_tcgen05_smem_desc

_SCOPE = "local.descriptor.wgmma"
_KINDS = {
    "tcgen05_smem": alloc_tcgen05_smem_desc,
    "tcgen05_instr": alloc_tcgen05_instr_desc,
}
_FIELD = 2**14


def _emit(name: str, call: ir.Call) -> None:
    current_tracer(name).kernel_scope(name)
    tir_builder.evaluate(call)


def alloc_descriptor(kind: str = "wgmma", dtype: Any = "uint64") -> ir.Var:
    """Allocate a register of each thread for a descriptor.

    Parameters
    ----------
    kind
        ``wgmma``: that of an operand in shared memory (``alloc_wgmma_desc``). ``tcgen05_smem`` and
        ``tcgen05_instr`` are for sm_100.
    dtype
        uint64.

    Raises
    ------
    ValueError
        Outside of a kernel; for another ``kind`` or ``dtype``.
    NotImplementedError
        For the descriptors of sm_100.

    Example
    -------
    ``desc = T.alloc_descriptor("wgmma")``
    """
    if kind in _KINDS:
        _KINDS[kind]()
    if kind != "wgmma":
        known = ", ".join(["wgmma", *_KINDS])
        raise ValueError(f"kind of T.alloc_descriptor is {kind!r}, wanted one of {known}")
    if data_type(dtype) != "uint64":
        raise ValueError(f"dtype of T.alloc_descriptor is {dtype}, wanted uint64")
    return allocate("T.alloc_descriptor", [1], "uint64", _SCOPE, _SCOPE)


def alloc_wgmma_desc(dtype: Any = "uint64") -> ir.Var:
    """Allocate the descriptor of an operand of wgmma: a buffer of one uint64 in each thread, which
    ``T.initialize_wgmma_descriptor`` sets.

    Raises
    ------
    ValueError
        As ``alloc_descriptor``.

    Example
    -------
    ``desc_a = T.alloc_wgmma_desc()``
    """
    return alloc_descriptor("wgmma", dtype)


def descriptor_of(name: str, value: Any) -> ir.TensorLoad:
    """Return the descriptor that an argument of the function ``name`` is, as a value.

    Raises
    ------
    TypeError, ValueError
        If it is none.
    """
    place = as_element(name, value, "a descriptor")
    check_scope(name, place, (_SCOPE,), "allocate it with T.alloc_wgmma_desc")
    return place


def initialize_wgmma_descriptor(
    desc: Any, addr: Any, layout_type_: int = 0, lbo: int = 0, sbo: int = 0
) -> None:
    """Let a descriptor describe an operand of wgmma in shared memory (PTX ISA, Matrix Descriptor
    Format). The fields are given as the descriptor holds them.

    Parameters
    ----------
    desc
        A descriptor of ``T.alloc_wgmma_desc``.
    addr
        Where the operand begins: an element of dynamic shared memory, a buffer, or a pointer. The
        buffer is row-major unless a layout is given to it (``T.annotate_layout``) or ``T.gemm``
        places it.
    layout_type_
        0 for no swizzle; 1, 2, 3 for one of 128, 64, 32 bytes.
    lbo, sbo
        Leading and stride offset, in units of 16 bytes: how far apart are 16-byte columns, and
        groups of 8 rows, of an operand whose elements along K lie side by side (the first means
        nothing where it is swizzled); see the PTX ISA, Strides, for others.

    Raises
    ------
    TypeError, ValueError
        If ``desc`` is no descriptor, ``addr`` not in dynamic shared memory; for other numbers;
        outside of a kernel; if the tile's layout has another swizzle.

    Example
    -------
    ``T.initialize_wgmma_descriptor(desc_a, A_shared[0, 0], 1, 1, 64)`` for 128-byte rows
    """
    name = "T.initialize_wgmma_descriptor"
    register = descriptor_of(name, desc)
    tile = as_element(name, addr, "an element of shared memory")
    check_scope(name, tile, ("shared.dyn",), "allocate it with T.alloc_shared")
    swizzle = constant(name, "layout_type_", layout_type_, (0, 1, 2, 3))
    offsets = [_field(name, "lbo", lbo), _field(name, "sbo", sbo)]
    pointers = [address_of(register), address_of(tile)]
    _emit(name, device_call("initialize_wgmma_descriptor", [swizzle, *offsets, *pointers]))


def _field(name: str, word: str, value: Any) -> int:
    number = as_int(value)
    if number is None or not 0 <= number < _FIELD:
        raise ValueError(
            f"{word} of {name} is {value!r}, wanted a constant from 0 to {_FIELD - 1}, in units of "
            "16 bytes"
        )
    return number


def bytes_of(name: str, word: str, value: Any) -> ir.Expr:
    """Return an argument of the function ``name`` that is a distance in bytes.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or a constant that is no multiple of 16.
    """
    value = as_expr(value)
    number = as_int(value)
    is_integer = is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint"))
    if number is None and not is_integer:
        raise TypeError(f"{word} of {name} is {describe(value)}, wanted an integer")
    if number is not None and number % 16:
        raise ValueError(f"{word} of {name} is {number} bytes, wanted a multiple of 16")
    return as_dtype(value, "int32")


def increase_descriptor_offset(desc: Any, off: Any) -> None:
    """Move a descriptor by ``off`` bytes in shared memory, a multiple of 16.

    Raises
    ------
    TypeError, ValueError
        If ``desc`` is no descriptor, ``off`` no integer or a constant that is no multiple; outside
        of a kernel.

    Example
    -------
    ``T.increase_descriptor_offset(desc_a, 32)`` to the next 16 elements of float16 along K
    """
    name = "T.increase_descriptor_offset"
    register = descriptor_of(name, desc)
    arguments = [address_of(register), bytes_of(name, "off", off)]
    _emit(name, device_call("increase_descriptor_offset", arguments))


__all__ = [
    "alloc_descriptor",
    "alloc_wgmma_desc",
    "increase_descriptor_offset",
    "initialize_wgmma_descriptor",
]
