"""Layout of the metadata of 2:4 sparse operands."""

from __future__ import annotations

from typing import Any

import tvm

from tilelang.layout.arguments import as_buffer, bits_of, found, positive
from tilelang.layout.layout import Layout, static_shape


def make_cutlass_metadata_layout(
    buffer: tvm.ir.Var,
    mma_dtype: str = "float16",
    arch: str = "8.0",
    block_k: int | None = None,
) -> Layout:
    """The order in which CUTLASS keeps the metadata of a sparse operand, so that a thread reads
    what it needs at once.

    Parameters
    ----------
    buffer
        Metadata (M, K / elements that one entry describes): int16 or int32 for ``arch`` 8.x, uint8
        for 9.x.
    mma_dtype
        Elements of the operand: float16, bfloat16, float32 (tf32), int8, uint8 or an 8-bit float.
    arch
        ``"8.x"`` for mma.sp, ``"9.x"`` for sparse wgmma.
    block_k
        For 9.x, logical extent of the block's tile along K; by default the whole of the buffer's.

    Returns
    -------
    A layout with one coordinate. Sources: CUTLASS, util/host_reorder.h with
    ColumnMajorInterleaved<2> (8.x); gemm/collective/builders/sm90_sparse_config.inl (9.x).

    Raises
    ------
    ValueError, TypeError
        If the buffer's dtype or shape does not fit, or there is no such architecture; if there is
        no buffer.

    Example
    -------
    ``make_cutlass_metadata_layout(E_shared, mma_dtype="float16", arch="8.0")``
    """
    buffer = as_buffer(buffer, "make_cutlass_metadata_layout")
    shape = static_shape(buffer.shape)
    if len(shape) != 2:
        raise ValueError(f"metadata {buffer.name} has {len(shape)} dimensions, wanted 2: (M, K)")
    major = arch.partition(".")[0] if isinstance(arch, str) else ""
    if major == "8":
        return _sm80(buffer, shape)
    if major == "9":
        return _sm90(buffer, shape, bits_of(mma_dtype, "mma_dtype of metadata"), block_k)
    raise ValueError(f"arch of metadata is {found(arch)}, wanted '8.x' or '9.x'")


def _require(buffer: tvm.ir.Var, what: str, found: int, unit: int) -> None:
    if found % unit:
        raise ValueError(f"metadata {buffer.name} has {found} {what}, wanted a multiple of {unit}")


def _sm80(buffer: tvm.ir.Var, shape: list[int]) -> Layout:
    bits = tvm.DataType(buffer.dtype).bits
    if bits not in (16, 32):
        raise ValueError(f"metadata {buffer.name} is {buffer.dtype}, wanted int16 or int32 for 8.x")
    group, interleave = (32, 4) if bits == 16 else (16, 2)
    _require(buffer, "rows", shape[0], group)
    _require(buffer, "columns", shape[1], 2)

    def forward(m: Any, k: Any) -> Any:
        row = m // group * group + m % 8 * interleave + m % group // 8
        # Blocks of 2x2 are transposed, then pairs of columns are interleaved.
        return k // 2 * (2 * shape[0]) + row // 2 * 4 + k % 2 * 2 + row % 2

    return Layout(shape, forward)


def _sm90(buffer: tvm.ir.Var, shape: list[int], bits: int, block_k: int | None) -> Layout:
    if tvm.DataType(buffer.dtype).bits != 8:
        raise ValueError(f"metadata {buffer.name} is {buffer.dtype}, wanted uint8 for 9.x")
    per_byte = 4 if bits == 32 else 8
    tile = shape[1]
    if block_k is not None:
        tile = positive(block_k, "block_k of metadata") // per_byte
        _require(buffer, "elements along K in a block_k", block_k, per_byte)
    _require(buffer, "rows", shape[0], 64)
    _require(buffer, "columns", shape[1], tile)
    _require(buffer, "columns of a block's tile", tile, 8 if bits == 8 else 4)

    def forward(m: Any, k: Any) -> Any:
        atom = (k // tile * (shape[0] // 64) + m // 64) * 64 * tile
        if bits == 8:
            return atom + m % 64 * tile + k % tile
        # Innermost first: two bytes, rows 8 apart, blocks of 4 bytes, rows, halves of a block.
        block = m // 8 % 2 + 2 * (k % tile // 4 + tile // 4 * (m % 8))
        return atom + k % 2 + 2 * (block + 4 * tile * (k // 2 % 2 + 2 * (m % 64 // 16)))

    return Layout(shape, forward)
