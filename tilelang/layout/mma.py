"""Fragments of tensor-core operands, and of values that every thread holds."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from tilelang._ffi import get_function
from tilelang.layout.arguments import as_buffer, bits_of, positive, positives
from tilelang.layout.fragment import Fragment
from tilelang.layout.layout import static_shape


def make_gemm_fragment_8x8() -> Fragment:
    """The 8x8 tile that one register pair of a warp holds: thread 4 i + j / 2, register j % 2.

    Example
    -------
    ``make_gemm_fragment_8x8().repeat([2, 1])``
    """
    return get_function("MakeGemmFragment8x8")()


def make_gemm_fragment_8x8_transposed() -> Fragment:
    """The transposed 8x8 tile: thread 4 j + i / 2, register i % 2.

    Example
    -------
    ``make_gemm_fragment_8x8_transposed().repeat([1, 2])``
    """
    return get_function("MakeGemmFragment8x8Transposed")()


def make_gemm_fragment(
    operand: str,
    shape: Sequence[int],
    warps: Sequence[int],
    dtype: str,
    instruction: Sequence[int] = (16, 8, 16),
    transposed: bool = False,
) -> Fragment:
    """The registers of an operand of mma.sync in a block's tile (PTX ISA, "Matrix Fragments").

    Warp w of a block works on row group w % warps[0] and column group w // warps[0]; the
    instructions of warps interleave. A is held by the warps of a row group, B by those of a column
    group.

    Parameters
    ----------
    operand
        ``"A"`` of shape (M, K), ``"B"`` of shape (N, K) or ``"C"`` of shape (M, N).
    shape
        Extents of the tile; swapped, as is the fragment, if ``transposed``.
    warps
        Warps along M and along N.
    dtype
        Elements of the operand: 4, 8, 16, 32 or 64 bits.
    instruction
        m, n and k of the instruction: (16, 8, 16) for 16 bits, (16, 8, 32) for 8, (16, 8, 8) for
        tf32, (16, 8, 64) for int4, (8, 8, 4) for float64, ...

    Raises
    ------
    ValueError, TypeError
        If the operand is none of the three; if instructions and warps do not divide the tile; if a
        number is missing or is no positive int.

    Example
    -------
    ``make_gemm_fragment("A", (128, 32), (2, 2), "float16")``
    """
    if operand not in ("A", "B", "C"):
        raise ValueError(f"operand of make_gemm_fragment is {operand!r}, wanted 'A', 'B' or 'C'")
    return get_function("MakeGemmOperand")(
        operand,
        positives(shape, "shape of make_gemm_fragment", 2),
        positives(warps, "warps of make_gemm_fragment", 2),
        bits_of(dtype, "dtype of make_gemm_fragment"),
        positives(instruction, "instruction of make_gemm_fragment", 3),
        transposed,
    )


def make_fully_replicated_layout_fragment(buffer: tvm.ir.Var, threads: int) -> Fragment:
    """Each of ``threads`` threads holds every element, in row-major order of registers.

    Example
    -------
    ``T.annotate_layout({scale: make_fully_replicated_layout_fragment(scale, 128)})``
    """
    tile = as_buffer(buffer, "make_fully_replicated_layout_fragment")
    count = positive(threads, "threads of make_fully_replicated_layout_fragment")
    return get_function("MakeReplicatedFragment")(static_shape(tile.shape), count)
