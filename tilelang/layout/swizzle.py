"""Layouts of shared memory tiles.

W = 128 / bits is the number of elements of a 16-byte vector. The matrix is a buffer's last two
dimensions; leading ones are kept. src/layout/swizzle.h has the mappings. What is no buffer is a
TypeError.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import tvm

from tilelang._ffi import get_function
from tilelang.layout.arguments import as_buffer, of_class, positive
from tilelang.layout.layout import Layout, static_shape


def _tile(buffer: Any, maker: str) -> tuple[list[int], int]:
    """Shape and bits of an element of a buffer."""
    tile = as_buffer(buffer, maker)
    return static_shape(tile.shape), tvm.DataType(tile.dtype).bits


def make_full_bank_swizzled_layout(buffer: tvm.ir.Var) -> Layout:
    """Rows swizzled in spans of 128 bytes; wants columns % 8W == 0 and rows % 8 == 0 (or 4 rows),
    else ValueError.

    Example
    -------
    ``T.annotate_layout({A_shared: make_full_bank_swizzled_layout(A_shared)})``
    """
    shape, bits = _tile(buffer, "make_full_bank_swizzled_layout")
    return get_function("MakeBankSwizzle")(shape, bits, 8)


def make_half_bank_swizzled_layout(buffer: tvm.ir.Var) -> Layout:
    """Rows swizzled in spans of 64 bytes; wants columns % 4W == 0 and rows % 8 == 0 (or 4 rows),
    else ValueError.

    Example
    -------
    ``T.annotate_layout({A_shared: make_half_bank_swizzled_layout(A_shared)})``
    """
    shape, bits = _tile(buffer, "make_half_bank_swizzled_layout")
    return get_function("MakeBankSwizzle")(shape, bits, 4)


def make_quarter_bank_swizzled_layout(buffer: tvm.ir.Var) -> Layout:
    """Rows swizzled in spans of 32 bytes; wants columns % 2W == 0 and rows % 8 == 0 (or 4 rows),
    else ValueError.

    Example
    -------
    ``T.annotate_layout({A_shared: make_quarter_bank_swizzled_layout(A_shared)})``
    """
    shape, bits = _tile(buffer, "make_quarter_bank_swizzled_layout")
    return get_function("MakeBankSwizzle")(shape, bits, 2)


def make_padded_layout(buffer: tvm.ir.Var) -> Layout:
    """Row-major, the row stride raised by W elements when it is a multiple of 32 bytes.

    Example
    -------
    ``T.annotate_layout({A_shared: make_padded_layout(A_shared)})``
    """
    return get_function("MakePaddedLayout")(*_tile(buffer, "make_padded_layout"))


def make_swizzled_layout(
    buffer: tvm.ir.Var, k_major: bool = True, allow_pad: bool = True
) -> Layout:
    """Layout of a shared tile without bank conflicts for ldmatrix and 16-byte accesses.

    The widest of the 128, 64 and 32-byte swizzles that divides the columns (rows must be a multiple
    of 8, or 4); other shapes are padded.

    Parameters
    ----------
    k_major
        Whether K is the contiguous dimension of the operand. 8-bit tiles that are not K-major are
        padded.
    allow_pad
        False: what wgmma reads, see :func:`make_wgmma_swizzled_layout`.

    Raises
    ------
    ValueError
        If ``allow_pad`` is False and no unpadded layout fits the shape.

    Example
    -------
    ``T.annotate_layout({A_shared: tilelang.layout.make_swizzled_layout(A_shared)})``
    """
    shape, bits = _tile(buffer, "make_swizzled_layout")
    if not allow_pad:
        return get_function("MakeUnpaddedSwizzle")(shape, bits, shape[-1])
    return get_function("MakeSwizzledLayout")(shape, bits, k_major)


def make_wgmma_swizzled_layout(
    buffer: tvm.ir.Var, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """Layout of a wgmma operand: the widest swizzle whose span divides ``continuity``, else
    row-major.

    Parameters
    ----------
    continuity
        Number of elements that lie side by side; by default the columns.
    k_major
        Whether K is the contiguous dimension; only 16-bit operands need not be (PTX ISA,
        "Asynchronous Warpgroup Level Matrix Multiply-Accumulate").

    Raises
    ------
    ValueError
        If rows are not a multiple of 8, ``continuity`` not one of W, or the operand not K-major
        though it must be.

    Example
    -------
    ``T.annotate_layout({A_shared: make_wgmma_swizzled_layout(A_shared)})``
    """
    buffer = as_buffer(buffer, "make_wgmma_swizzled_layout")
    if not k_major and tvm.DataType(buffer.dtype).bits != 16:
        raise ValueError(
            f"make_wgmma_swizzled_layout: found a {buffer.dtype} tile that is not K-major, wanted "
            "16-bit elements; store the operand K-major"
        )
    return make_tcgen05mma_swizzled_layout(buffer, continuity)


def make_tcgen05mma_swizzled_layout(
    buffer: tvm.ir.Var, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """Layout of a tcgen05.mma operand; as :func:`make_wgmma_swizzled_layout`, but every dtype may
    be of either major order: ``k_major`` changes nothing.

    Example
    -------
    ``T.annotate_layout({A_shared: make_tcgen05mma_swizzled_layout(A_shared)})``
    """
    shape, bits = _tile(buffer, "make_tcgen05mma_swizzled_layout")
    span = shape[-1] if continuity is None else positive(continuity, "continuity")
    return get_function("MakeUnpaddedSwizzle")(shape, bits, span)


def make_volta_swizzled_layout(
    buffer: tvm.ir.Var, is_a: bool = True, k_inner: bool = True
) -> Layout:
    """Layout of an operand of Volta's mma.m8n8k4, 16-bit elements.

    Source: CUTLASS, layout/tensor_op_multiplicand_sm70.h.

    Raises
    ------
    ValueError
        If elements are not of 16 bits; for ``k_inner`` if rows % 32 or columns % 4, else if
        rows % 4 or columns % 64.

    Example
    -------
    ``T.annotate_layout({A_shared: make_volta_swizzled_layout(A_shared)})``
    """
    shape, bits = _tile(buffer, "make_volta_swizzled_layout")
    if bits != 16:
        raise ValueError(f"make_volta_swizzled_layout: found {buffer.dtype}, wanted 16 bits")
    return get_function("MakeVoltaSwizzle")(shape, is_a, k_inner)


def make_linear_layout(buffer: tvm.ir.Var) -> Layout:
    """Row-major, as one number.

    Example
    -------
    ``T.annotate_layout({A_shared: make_linear_layout(A_shared)})``
    """
    return get_function("MakeRowMajorLayout")(_tile(buffer, "make_linear_layout")[0])


class SwizzleMode(IntEnum):
    """Bytes of a swizzle's span, as TMA and wgmma descriptors name it; NONE is row-major memory."""

    NONE = 0
    SWIZZLE_32B = 32
    SWIZZLE_64B = 64
    SWIZZLE_128B = 128


def detect_swizzle_mode(layout: Layout, buffer: tvm.ir.Var) -> SwizzleMode | None:
    """Return the swizzle that a layout of ``buffer`` is, found by comparing tables; None if it is
    neither row-major nor one of the three.

    Raises
    ------
    ValueError, TypeError
        If the layout has another shape than the buffer; if ``layout`` is none.

    Example
    -------
    ``detect_swizzle_mode(make_full_bank_swizzled_layout(A_shared), A_shared)``
    """
    of_class(
        layout, Layout, "layout of detect_swizzle_mode", "pass what make_swizzled_layout gives"
    )
    shape, bits = _tile(buffer, "detect_swizzle_mode")
    if layout.get_input_shape() != shape:
        raise ValueError(
            f"detect_swizzle_mode: found a layout of {tuple(layout.get_input_shape())} for "
            f"{buffer.name} of {tuple(shape)}, wanted the buffer's shape"
        )
    found = int(get_function("LayoutSwizzleBytes")(layout, bits))
    return None if found < 0 else SwizzleMode(found)
