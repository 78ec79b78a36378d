"""Where a warp's matrices lie, in registers and in shared memory, as functions of numbers or
expressions: what `tilelang.intrinsics` names beside the emitter."""

from __future__ import annotations

from typing import Any

import tvm

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.mma import type_of
from tilelang.layout import Layout, make_linear_layout, make_swizzled_layout

WARP_SIZE = 32
MICRO_ROWS = 16
"""Rows, and columns, of a square of C that a warp makes by two products."""
_SWIZZLES = (128, 64, 32)


def get_mma_micro_size(dtype: Any) -> tuple[int, int, int]:
    """Return rows, columns and the extent along K of a step of a warp, for operands of ``dtype``:
    a row of 32 bytes.

    Raises `ValueError` if there is no such type.

    Example: ``get_mma_micro_size("int8") == (16, 16, 32)``
    """
    name = type_of("get_mma_micro_size", dtype)
    bits = 32 if name == "tfloat32" else data_type(name).bits
    return MICRO_ROWS, MICRO_ROWS, 256 // bits


def mma_store_index_map(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """Return row and column, in a square of 16 by 16 of C, of a lane's element: two ``mma`` of 8
    columns, one after the other (PTX ISA, "Matrix Fragments for mma").

    Example: ``mma_store_index_map(5, 2) == (9, 2)``
    """
    row = thread_id // 4 + local_id % 4 // 2 * 8
    return row, local_id // 4 * 8 + thread_id % 4 * 2 + local_id % 2


mma_store_32x8_to_shared_16x16_layout = mma_store_index_map


def ldmatrix_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """Return row and column in a tile of 16 by 16 of 16-bit elements of what a lane gives to
    ``ldmatrix`` of four matrices: its row's element ``local_id``, of 8.

    Example: ``ldmatrix_32x8_to_shared_16x16_layout(17, 0) == (1, 8)``
    """
    return thread_id % 16, thread_id // 16 * 8 + local_id


def ldmatrix_trans_32x8_to_shared_16x16_layout(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """The same for ``ldmatrix`` with matrices transposed.

    Example: ``ldmatrix_trans_32x8_to_shared_16x16_layout(17, 0) == (9, 0)``
    """
    return thread_id // 16 * 8 + thread_id % 8, thread_id % 16 // 8 * 8 + local_id


def get_swizzle_layout(
    row_idx: Any, col_idx: Any, row_size: int, dtype: Any, swizzle_bytes: int | None = None
) -> tuple[Any, Any]:
    """Return row and column at which an element of a tile lies that is swizzled in spans of
    ``swizzle_bytes``, by default the widest of 128, 64 and 32 that divides a row of ``row_size``
    elements.

    Raises `ValueError` for other spans, and rows that none divides.

    Example: ``get_swizzle_layout(1, 0, 64, "float16") == (1, 8)``
    """
    bits = data_type(dtype).bits
    fitting = [s for s in _SWIZZLES if row_size * bits // 8 % s == 0]
    span = swizzle_bytes if swizzle_bytes is not None else next(iter(fitting), None)
    if span not in fitting:
        raise ValueError(
            f"get_swizzle_layout found swizzle_bytes={swizzle_bytes} for rows of {row_size} "
            f"elements of {dtype}, wanted one of {', '.join(map(str, _SWIZZLES))} that divides them"
        )
    assert span is not None
    piece, pieces = 128 // bits, span // 16
    number = col_idx // piece
    # The exchange repeats after 8 rows of 128 bytes, or as many narrower ones as lie in them.
    moved = number % pieces ^ row_idx // (8 // pieces) % pieces
    return row_idx, (number // pieces * pieces + moved) * piece + col_idx % piece


def make_mma_swizzle_layout(shared_buf: tvm.ir.Var, is_smooth: bool = False) -> Layout:
    """Return the layout in which ``ldmatrix`` finds a tile of shared memory without conflicts of
    banks; with ``is_smooth`` the row-major one.

    Example: ``T.annotate_layout({A_shared: make_mma_swizzle_layout(A_shared)})``
    """
    return make_linear_layout(shared_buf) if is_smooth else make_swizzled_layout(shared_buf)


__all__ = [
    "get_mma_micro_size",
    "get_swizzle_layout",
    "ldmatrix_32x8_to_shared_16x16_layout",
    "ldmatrix_trans_32x8_to_shared_16x16_layout",
    "make_mma_swizzle_layout",
    "mma_store_32x8_to_shared_16x16_layout",
    "mma_store_index_map",
]
