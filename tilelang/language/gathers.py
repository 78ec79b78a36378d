"""Copies that rearrange: ``T.transpose`` and ``T.im2col``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tvm import ir

from tilelang.language.copies import eviction_number
from tilelang.language.ops import emit_tile_op
from tilelang.language.regions import region_of, simplify
from tilelang.language.scalars import as_dtype, as_int, describe
from tilelang.language.tracer import current_tracer


def transpose(src: Any, dst: Any, annotations: Mapping[str, Any] | None = None) -> None:
    """Copy element ``[.., i, j]`` of a tile to element ``[.., j, i]`` of another, casting to its
    dtype.

    Parameters
    ----------
    src, dst
        Buffers or regions of shapes (.., M, N) and (.., N, M), in any memory; shared memory is what
        lets threads exchange elements. Dimensions of one element in front of the matrix, such as
        the version of a tile, do not count.
    annotations
        Notes on the operator in the program.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Example
    -------
    ``T.transpose(A_shared, At_shared)``
    """
    current_tracer("T.transpose")
    source = region_of(src, "the source of T.transpose")
    target = region_of(dst, "the destination of T.transpose")
    shapes = [[simplify(r.extent) for r in side.region] for side in (source, target)]
    # In front of the matrix one element may be chosen, such as a version of a tile.
    (*batch, m, n), (*batch_to, n_to, m_to) = [
        [None] * (2 - len(s)) + [e for e in s[:-2] if e != 1] + s[-2:] for s in shapes
    ]
    sizes = [*batch, m, n], [*batch_to, m_to, n_to]
    fits = len(sizes[0]) == len(sizes[1]) and all(
        a is not None and b is not None and simplify(a - b) == 0
        for a, b in zip(*sizes, strict=True)
    )
    if not fits:
        raise ValueError(
            f"T.transpose found {describe(src)} and {describe(dst)}, wanted shapes (.., M, N) and "
            "(.., N, M); slice the larger one"
        )
    emit_tile_op("transpose", [source, target], dict(annotations or {}))


def im2col(
    img: Any,
    col: Any,
    nhw_step: Any,
    c_step: Any,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    eviction_policy: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    whole_taps: bool = False,
) -> None:
    """Gather a tile of the matrix that turns a convolution into a matrix product.

    Row ``(n * OH + oh) * OW + ow`` of that matrix has the inputs of one output pixel, column
    ``(kh * kernel + kw) * C + c`` one of them: ``img[n, oh * stride + kh * dilation - pad, ow *
    stride + kw * dilation - pad, c]``, zero where that is outside of the image. ``OH = (H + 2 * pad
    - dilation * (kernel - 1) - 1) // stride + 1``, OW likewise. Elements outside of the matrix are
    zero. With ``whole_taps`` each (kh, kw) begins a tile: it has as many columns as whole tiles
    need for C channels, and those behind the channels are zero.

    In a pipelined loop on sm_90 TMA loads the tile where its width divides C or taps are whole,
    rows and strides are multiples of 16 bytes, the dtype is that of the image, and the
    numbers are within a tensor map's (PTX ISA, Tensors, "Im2col mode"); else threads gather it.
    ``kernel.explain()`` says which, and why.

    Parameters
    ----------
    img
        A global buffer of shape (N, H, W, C).
    col
        A tile of rank 2: rows are output pixels, columns are inputs; cast to its dtype.
    nhw_step, c_step
        Which tile: its first row is ``nhw_step`` times its height, its first column ``c_step``
        times its width.
    kernel, stride, dilation, pad
        Of the convolution, in pixels, the same in both directions.
    eviction_policy
        As for ``T.copy``.
    whole_taps
        Whether no tile has channels of two taps.

    Raises
    ------
    ValueError
        If a shape or a number does not fit.

    Example
    -------
    ``T.im2col(img, col_shared, by, k, 3, 1, 1, 1, whole_taps=True)``
    """
    current_tracer("T.im2col")
    image = region_of(img, "the image of T.im2col")
    tile = region_of(col, "the tile of T.im2col")
    if not isinstance(img, ir.Var) or len(image.region) != 4 or img.scope() != "global":
        raise ValueError(
            f"T.im2col found {describe(img)} as image, wanted a whole global buffer of shape "
            "(N, H, W, C)"
        )
    if len(tile.region) != 2:
        raise ValueError(f"T.im2col found {describe(col)} as tile, wanted rank 2; slice it")
    numbers = {"kernel": (kernel, 1), "stride": (stride, 1), "dilation": (dilation, 1)}
    for name, (value, least) in (numbers | {"pad": (pad, 0)}).items():
        constant = as_int(value)
        if constant is None or constant < least:
            raise ValueError(f"{name} of T.im2col is {value!r}, wanted an int of {least} or more")
    attrs: dict[str, Any] = {}
    if eviction_policy is not None:
        attrs["eviction_policy"] = eviction_number("T.im2col", eviction_policy)
    steps = [as_dtype(step, "int32") for step in (nhw_step, c_step)]
    geometry = [as_int(v) for v in (kernel, stride, dilation, pad)]
    operands = [image, tile, *steps, *geometry, int(whole_taps)]
    emit_tile_op("im2col", operands, attrs | dict(annotations or {}))


def c2d_im2col(*args: Any, **kwargs: Any) -> None:
    """Deprecated name of ``T.im2col``.

    Example
    -------
    ``T.c2d_im2col(image, A_shared, by, k, 3, 1, 1, 1)``
    """
    warnings.warn("T.c2d_im2col is deprecated, use T.im2col", DeprecationWarning, stacklevel=2)
    im2col(*args, **kwargs)
