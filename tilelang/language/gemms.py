"""``T.gemm`` and how its warps divide the tile."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from tvm import ir

from tilelang.language.ops import emit_tile_op
from tilelang.language.regions import region_of, simplify
from tilelang.language.scalars import as_dtype, as_int, describe, is_buffer, unwrap
from tilelang.language.tracer import current_tracer


class GemmWarpPolicy(IntEnum):
    """How the warps of a block divide the M by N tile of ``T.gemm``.

    Example
    -------
    ``T.gemm(A_shared, B_shared, C_local, policy=T.GemmWarpPolicy.FullRow)``
    """

    Square = 0
    """As square as possible."""
    FullRow = 1
    """Each warp has whole rows: all warps along M."""
    FullCol = 2
    """Each warp has whole columns: all warps along N."""


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy | int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    mbar: Any = None,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Compute ``C += op(A) @ op(B)``; when it returns, the whole block may use ``C``.

    Parameters
    ----------
    A, B
        Buffers or regions, logically (M, K) and (K, N), of one dtype, in shared memory or
        fragments. Leading dimensions have extent 1.
    C
        Fragment (M, N), its leading dimensions of extent 1. Sums have its type, or float32 where
        that is narrower and no tensor core forms them.
    transpose_A, transpose_B
        Whether ``A`` is stored as (K, M), ``B`` as (N, K).
    policy
        How warps divide the tile.
    clear_accum
        Whether ``C`` is overwritten instead; may be an expression such as ``k == 0``.
    k_pack
        1 on NVIDIA GPUs.
    mbar
        Barrier of asynchronous tensor cores (sm_100).
    annotations
        ``{"allow_tf32": True}`` lets tensor cores round float32 operands to 10 bits of mantissa;
        without it float32 is multiplied and added in full. Tiles that were allocated as
        ``T.tfloat32`` have it.

    Sizes, types and numbers of threads that no tensor-core instruction takes are multiplied and
    added one by one; the log says which instructions a gemm became.

    Raises
    ------
    AssertionError
        If M, N or K differ between the operands.
    TypeError, ValueError
        If an operand is not a tile, or lies in a memory that cannot hold it; if dtypes of ``A``
        and ``B`` differ.
    NotImplementedError
        If ``k_pack`` or ``mbar`` is given, which no supported target uses.

    Example
    -------
    ``T.gemm(A_shared, B_shared, C_local, transpose_B=True)``
    """
    tracer = current_tracer("T.gemm")
    a = _operand(A, "A", ("shared", "local.fragment"))
    b = _operand(B, "B", ("shared", "local.fragment"))
    c = _operand(C, "C", ("local.fragment", "shared.tmem"))
    transposed = [_flag(transpose_A, "transpose_A"), _flag(transpose_B, "transpose_B")]
    _check_shapes(a, b, c, *transposed)
    dtypes = [
        "tfloat32" if r.source in tracer.tensor_floats else str(r.source.dtype) for r in (a, b)
    ]
    if dtypes[0] != dtypes[1]:
        raise TypeError(
            f"T.gemm found A of dtype {dtypes[0]} and B of dtype {dtypes[1]}, wanted one dtype; "
            "cast one while copying it"
        )
    if k_pack != 1 or mbar is not None:
        raise NotImplementedError(
            f"T.gemm found k_pack={k_pack}, mbar={mbar}; no supported target uses them, leave "
            "them out"
        )
    arguments = [a, b, c, *transposed, int(GemmWarpPolicy(policy)), _predicate(clear_accum)]
    attrs = dict(annotations or {})
    if dtypes[0] == "tfloat32":
        attrs.setdefault("allow_tf32", True)
    emit_tile_op("gemm", arguments, attrs)


def _flag(value: Any, name: str) -> bool:
    value = unwrap(value)
    if not isinstance(value, bool | int):
        raise TypeError(f"{name} of T.gemm is {describe(value)}, wanted True or False")
    return bool(value)


def _predicate(value: Any) -> Any:
    value = unwrap(value)
    if value is None or isinstance(value, bool | int):
        return bool(value)
    if is_buffer(value):
        raise TypeError(f"clear_accum of T.gemm is {describe(value)}, wanted a scalar condition")
    return as_dtype(value, "bool")


def _operand(value: Any, name: str, scopes: tuple[str, ...]) -> ir.TensorRegion:
    if isinstance(value, ir.TensorLoad):
        raise TypeError(
            f"{name} of T.gemm is {describe(value)}, wanted a buffer or a region; slice it, A[i, "
            ":, :]"
        )
    region = region_of(value, f"{name} of T.gemm")
    scope = region.source.scope()
    if not any(scope == s or (s == "shared" and scope == "shared.dyn") for s in scopes):
        raise ValueError(
            f"{name} of T.gemm is {region.source.name} in memory {scope!r}, wanted "
            f"{' or '.join(scopes)}; copy it there first with T.copy"
        )
    extents = [simplify(r.extent) for r in region.region]
    if len(extents) < 2 or any(e != 1 for e in extents[:-2]):
        raise ValueError(
            f"{name} of T.gemm has shape {tuple(extents)}, wanted a matrix; index leading "
            "dimensions"
        )
    return region


def _check_shapes(
    a: ir.TensorRegion, b: ir.TensorRegion, c: ir.TensorRegion, transpose_a: bool, transpose_b: bool
) -> None:
    tiles = [[simplify(r.extent) for r in region.region[-2:]] for region in (a, b, c)]
    (a_m, a_k), (b_k, b_n), (c_m, c_n) = (
        tile[::-1] if transposed else tile
        for tile, transposed in zip(tiles, (transpose_a, transpose_b, False), strict=True)
    )
    for name, first, x, second, y in (
        ("M", "A", a_m, "C", c_m),
        ("N", "B", b_n, "C", c_n),
        ("K", "A", a_k, "B", b_k),
    ):
        if as_int(x) is None or as_int(y) is None:
            raise ValueError(
                f"{name} of T.gemm is {x} in {first} and {y} in {second}, wanted constants"
            )
        if x != y:
            stored = ", ".join(f"{n} {tuple(t)}" for n, t in zip("ABC", tiles, strict=True))
            raise AssertionError(
                f"T.gemm {name} shape check failed: {name} is {x} in {first} and {y} in {second} "
                f"(stored: {stored}; transpose_A={transpose_a}, transpose_B={transpose_b}); make "
                "the tiles agree or set the transpose that the layout needs"
            )
