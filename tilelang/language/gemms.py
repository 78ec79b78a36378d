"""``T.gemm`` and its like, and how their warps divide the tile."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NoReturn

import tvm
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
    """As square as possible. Warp groups (wgmma) take rows where they read less of shared memory
    that way, and no second block of a multiprocessor would lose its registers."""
    FullRow = 1
    """Each warp has whole rows: all warps along M."""
    FullCol = 2
    """Each warp has whole columns: all warps along N."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        names = ", ".join(f"T.GemmWarpPolicy.{policy.name}" for policy in cls)
        raise ValueError(f"policy is {describe(value)}, wanted {names}")


# Of each part any two are the operands of one matrix instruction (PTX ISA, mma and wgmma: .e4m3 and
# .e5m2; CDNA3 and CDNA4 ISA, MFMA: FP8 and BF8).
_FLOAT8 = (
    ("float8_e4m3", "float8_e4m3fn", "float8_e5m2"),
    ("float8_e4m3fnuz", "float8_e5m2fnuz"),
)


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
    wg_wait: int = 0,
) -> None:
    """Compute ``C += op(A) @ op(B)``; when it returns, the whole block may use ``C``.

    Parameters
    ----------
    A, B
        Buffers or regions, logically (M, K) and (K, N), in shared memory or fragments, of one
        dtype, or one of float8_e4m3fn and one of float8_e5m2. Leading dimensions have extent 1.
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
        Products along K for which a lane of an AMD GPU reads its elements at once. No effect: it
        reads 16 bytes at once wherever they lie together.
    mbar
        Barrier that asynchronous tensor cores (sm_100) arrive at: None.
    annotations
        ``{"allow_tf32": True}`` lets tensor cores round float32 operands to 10 bits of mantissa
        (those of sm_90a leave the other bits out); without it float32 is multiplied and added in
        full. Tiles that were allocated as ``T.tfloat32`` have it.
    wg_wait
        How many products may be in flight afterwards, -1 for any number. No effect: the compiler
        waits for each as late as what follows allows; `wgmma_gemm` leaves it to the program.

    Sizes, types and numbers of threads that no tensor-core instruction takes are multiplied and
    added one by one; the log says which instructions a gemm became. Operands of int4 and uint4 are
    for tensor cores only (PTX ISA, mma.m16n8k64; slow from sm_90 on, which has none of them).

    Raises
    ------
    AssertionError
        If M, N or K differ between the operands.
    TypeError, ValueError
        If an operand is not a tile, or lies in a memory that cannot hold it; if dtypes of ``A``
        and ``B`` differ; if ``k_pack`` is less than 1, or ``wg_wait`` less than -1.
    NotImplementedError
        If ``mbar`` is given, which no supported target arrives at.

    Example
    -------
    ``T.gemm(A_shared, B_shared, C_local, transpose_B=True)``
    """
    _check_hints("T.gemm", k_pack, wg_wait)
    if mbar is not None:
        raise NotImplementedError(
            f"T.gemm found mbar={describe(mbar)}, which tcgen05.mma (sm_100) arrives at, wanted "
            "none; leave it out, and the wait for it: T.gemm waits for its product itself"
        )
    arguments, attrs = _gemm(
        "T.gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum, annotations
    )
    emit_tile_op("gemm", arguments, attrs)


def _gemm(
    op: str,
    A: Any,
    B: Any,
    C: Any,
    transpose_A: Any,
    transpose_B: Any,
    policy: Any,
    clear_accum: Any,
    annotations: Mapping[str, Any] | None,
    mixed: tuple[tuple[str, ...], ...] = _FLOAT8,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the checked arguments and attributes of a product's operator; its operands have one
    dtype, or any two of one part of ``mixed``."""
    current_tracer(op)
    a = _operand(A, "A", ("shared", "local.fragment"), op)
    b = _operand(B, "B", ("shared", "local.fragment"), op)
    c = _operand(C, "C", ("local.fragment", "shared.tmem"), op)
    transposed = _flag(transpose_A, "transpose_A", op), _flag(transpose_B, "transpose_B", op)
    _check_shapes(a, b, c, *transposed, op=op)
    dtype = _operand_dtype(a, b, op, mixed)
    arguments = [a, b, c, *transposed, int(GemmWarpPolicy(policy)), _predicate(clear_accum, op)]
    attrs = _options(op, annotations)
    if dtype == "tfloat32":
        attrs.setdefault("allow_tf32", True)
    return arguments, attrs


def gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA: Any,
    SFB: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy | int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    *,
    sf_a_granularity_k: int = 32,
    sf_b_granularity_k: int = 32,
) -> None:
    """Compute ``C += (op(A) * SFA) @ (op(B) * SFB)``: each 32 elements along K have a scale.

    Parameters
    ----------
    A, B, transpose_A, transpose_B
        As in `gemm`, of dtype float8_e4m3fn, float8_e5m2, float6_e2m3fn, float6_e3m2fn or
        float4_e2m1fn (OCP Microscaling Formats: MXFP8, MXFP6, MXFP4). Those of 6 bits have their
        elements along K side by side.
    C
        As in `gemm`, of dtype float32.
    SFA, SFB
        The scales, of dtype float8_e8m0fnu: buffers or regions (M, K / 32) and (N, K / 32) in
        shared memory. Element ``[i, k]`` is that of row i of op(A), column i of op(B), and of
        elements 32 k to 32 k + 31 along K.
    policy, clear_accum
        As in `gemm`.
    sf_a_granularity_k, sf_b_granularity_k
        Elements along K of a scale: 32.

    Only matrix instructions of gfx950 multiply so (CDNA4 ISA, V_MFMA_SCALE_F32_16X16X128_F8F6F4).

    Raises
    ------
    AssertionError, TypeError
        As `gemm`, and for scales of another shape or dtype.
    ValueError
        As `gemm`; if a scale is not of 32 elements; if no tile of 32 x 32 x 64 or 16 x 16 x 128
        divides the product, or the chip has no such instruction.

    Example
    -------
    ``T.gemm_blockscaled(A_shared, B_shared, C_local, SFA_shared, SFB_shared, transpose_B=True)``
    """
    op = "T.gemm_blockscaled"
    for name, given in (("a", sf_a_granularity_k), ("b", sf_b_granularity_k)):
        if as_int(unwrap(given)) != _SCALE_K:
            raise ValueError(
                f"sf_{name}_granularity_k of {op} is {describe(given)}, wanted {_SCALE_K}"
            )
    (a, b, *rest), attrs = _gemm(
        op, A, B, C, transpose_A, transpose_B, policy, clear_accum, None, mixed=()
    )
    scales = []
    for name, value, operand, k_is_last in (
        ("SFA", SFA, a, not transpose_A),
        ("SFB", SFB, b, transpose_B),
    ):
        region = _operand(value, name, ("shared",), op)
        _check_scales(op, name, region, operand, bool(k_is_last))
        scales.append(region)
    emit_tile_op("gemm_blockscaled", [a, scales[0], b, scales[1], *rest], attrs)


_SCALE_K = 32


def _check_scales(
    op: str, name: str, scales: ir.TensorRegion, operand: ir.TensorRegion, k_is_last: bool
) -> None:
    """A scale for each row, or column, of `operand` and each 32 elements along K."""
    if str(scales.source.dtype) != "float8_e8m0fnu":
        raise TypeError(
            f"{name} of {op} is of dtype {scales.source.dtype}, wanted float8_e8m0fnu; view it "
            "with T.view, or cast it while copying it"
        )
    found = [simplify(r.extent) for r in scales.region[-2:]]
    rows, depth = (int(simplify(r.extent)) for r in operand.region[-2:])
    if not k_is_last:
        rows, depth = depth, rows
    wanted = [rows, depth // _SCALE_K]
    if depth % _SCALE_K or [as_int(x) for x in found] != wanted:
        raise AssertionError(
            f"{name} of {op} is {tuple(found)}, wanted {tuple(wanted)}: a scale for each of {rows} "
            f"rows and each {_SCALE_K} of {depth} elements along K"
        )


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy | int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Issue ``C += op(A) @ op(B)`` on the tensor cores of warp groups, without waiting for it.

    The product is a group of its own, which `wait_wgmma` waits for. Until then nobody reads or
    writes ``C``, nor writes ``A`` and ``B``, except for further products into the same ``C``.

    Parameters
    ----------
    A, B, C, transpose_A, transpose_B, policy, clear_accum, annotations
        As in `gemm`. ``B`` is in shared memory, ``A`` there or in a fragment; M is a multiple of
        64, N of 8, K of 32 bytes of elements, the number of threads of 128. Operands in shared
        memory other than of 16 bits have their elements along K side by side.

    Raises
    ------
    AssertionError, TypeError
        As `gemm`.
    ValueError
        As `gemm`, and if the product is no wgmma: on chips other than sm_90a, for other types
        (PTX ISA, wgmma.mma_async), sizes, memories and layouts.

    Example
    -------
    ``T.wgmma_gemm(A_shared, B_shared, C_local); T.wait_wgmma(0)``
    """
    arguments, attrs = _gemm(
        "T.wgmma_gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum, annotations
    )
    emit_tile_op("gemm", arguments, attrs | {"wg_wait": -1})


wgmma_mma = wgmma_gemm


def wait_wgmma(id: int) -> None:
    """Wait until at most ``id`` of the groups that `wgmma_gemm` made are in flight.

    The others are complete, the oldest first: their ``C`` may be used, their operands written.

    Raises
    ------
    ValueError
        If ``id`` is not in 0 to 7 (PTX ISA, wgmma.wait_group).

    Example
    -------
    ``T.wait_wgmma(0)``
    """
    current_tracer("T.wait_wgmma")
    groups = as_int(unwrap(id))
    if groups is None or not 0 <= groups <= 7:
        raise ValueError(f"T.wait_wgmma found {describe(id)}, wanted a constant from 0 to 7")
    emit_tile_op("wgmma_wait", [groups], {})


def gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy | int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Compute ``C += op(A) @ op(B)`` where two of every four elements along K of A are zeros.

    Parameters
    ----------
    A_sparse
        The other two, in ascending order: a buffer or region (M, K / 2) in shared memory or a
        fragment, of dtype float16, bfloat16, int8, uint8 or an 8-bit float (sm_89), or float32 as
        tf32, of which one of every two is kept.
    E
        Which elements these are, in shared memory: row m is a string of 4 bits for each group, two
        for the place of each element kept (float32: 4 for the first, 14 for the second), the
        lowest bits first in elements of an integer dtype of 8, 16 or 32 bits; (M, K / bits), for
        float32 (M, 2 K / bits). ``tilelang.utils.sparse.compress`` makes both.
    B, C
        As in ``T.gemm``; K is that of B.
    transpose_A, transpose_E, transpose_B
        Whether ``A_sparse`` is stored as (K / 2, M), ``E`` with M last, ``B`` as (N, K).
    policy, clear_accum, annotations
        As in ``T.gemm``; float32 needs ``{"allow_tf32": True}``.
    k_pack, wg_wait
        As in ``T.gemm``. No effect.

    Raises
    ------
    AssertionError, TypeError
        As ``T.gemm``.
    ValueError
        If M, N or K is no multiple of 16, 8 and 64 bytes of elements, or the chip has no such
        instruction (PTX ISA, mma.sp); as ``T.gemm``.

    Example
    -------
    ``T.gemm_sp(A_shared, E_shared, B_shared, C_local, transpose_B=True)``
    """
    _check_hints("T.gemm_sp", k_pack, wg_wait)
    transposed = transpose_A, transpose_E, transpose_B
    arguments, attrs = _gemm_sp(
        "T.gemm_sp", A_sparse, E, B, C, transposed, policy, clear_accum, annotations
    )
    emit_tile_op("gemm_sp", arguments, attrs)


def _gemm_sp(
    op: str,
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose: tuple[Any, Any, Any],
    policy: Any,
    clear_accum: Any,
    annotations: Mapping[str, Any] | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the checked arguments and attributes of the operator of a sparse product."""
    current_tracer(op)
    a = _operand(A_sparse, "A_sparse", ("shared", "local.fragment"), op)
    e = _operand(E, "E", ("shared",), op)
    b = _operand(B, "B", ("shared", "local.fragment"), op)
    c = _operand(C, "C", ("local.fragment",), op)
    names = ("transpose_A", "transpose_E", "transpose_B")
    transposed = [_flag(t, name, op) for t, name in zip(transpose, names, strict=True)]
    _check_shapes(a, b, c, transposed[0], transposed[2], op=op, stored=2)
    dtype = _operand_dtype(a, b, op)
    _check_metadata(op, e, a, transposed[1], transposed[0])
    arguments = [a, e, b, c, *transposed]
    arguments += [int(GemmWarpPolicy(policy)), _predicate(clear_accum, op)]
    attrs = _options(op, annotations)
    if dtype == "tfloat32":
        attrs.setdefault("allow_tf32", True)
    return arguments, attrs


def wgmma_gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy | int = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Issue ``C += op(A) @ op(B)`` with half of A stored on the tensor cores of warp groups,
    without waiting for it; `wait_wgmma` does, as for `wgmma_gemm`. ``E`` has been read when it
    returns.

    Parameters
    ----------
    A_sparse, E, B, C, transpose_A, transpose_E, transpose_B, policy, clear_accum, annotations
        As in `gemm_sp`. ``A_sparse`` is in shared memory and not transposed, ``B`` in shared
        memory, of float16, bfloat16, int8, uint8 or an 8-bit float; M is a multiple of 64, N of 8,
        K of 64 bytes of elements, the number of threads of 128. A ``B`` other than of 16 bits has
        its elements along K side by side.

    Raises
    ------
    AssertionError, TypeError
        As `gemm_sp`.
    ValueError
        As `gemm_sp`, and if the product is no wgmma: on chips other than sm_90a, for other types
        (PTX ISA, wgmma.mma_async.sp), sizes, memories and layouts.

    Example
    -------
    ``T.wgmma_gemm_sp(A_shared, E_shared, B_shared, C_local); T.wait_wgmma(0)``
    """
    transposed = transpose_A, transpose_E, transpose_B
    arguments, attrs = _gemm_sp(
        "T.wgmma_gemm_sp", A_sparse, E, B, C, transposed, policy, clear_accum, annotations
    )
    emit_tile_op("gemm_sp", arguments, attrs | {"wg_wait": -1})


def _check_hints(op: str, k_pack: Any, wg_wait: Any) -> None:
    for name, value, least in (("k_pack", k_pack, 1), ("wg_wait", wg_wait, -1)):
        constant = as_int(unwrap(value))
        if constant is None or constant < least:
            raise ValueError(f"{name} of {op} is {value!r}, wanted an int of {least} or more")


def _options(op: str, annotations: Mapping[str, Any] | None) -> dict[str, Any]:
    """Annotations of a gemm: a choice of the instruction, and notes on it."""
    notes = dict(annotations or {})
    if "wg_wait" in notes:
        raise ValueError(
            f"{op} found annotation 'wg_wait', wanted it as a keyword, or T.wgmma_gemm, whose "
            "product the program waits for"
        )
    if "allow_tf32" in notes:
        notes["allow_tf32"] = _flag(notes["allow_tf32"], "allow_tf32", op)
    return notes


def _operand_dtype(
    a: ir.TensorRegion, b: ir.TensorRegion, op: str, mixed: tuple[tuple[str, ...], ...] = ()
) -> str:
    """Return A's dtype, which is B's unless both are of one part of ``mixed``; ``tfloat32`` where
    the operands were allocated with it."""
    tensor_floats = current_tracer(op).tensor_floats
    dtypes = ["tfloat32" if r.source in tensor_floats else str(r.source.dtype) for r in (a, b)]
    if dtypes[0] != dtypes[1] and not any(set(dtypes) <= set(x) for x in mixed):
        raise TypeError(
            f"{op} found A of dtype {dtypes[0]} and B of dtype {dtypes[1]}, wanted one dtype; "
            "cast one while copying it"
        )
    return dtypes[0]


def _check_metadata(
    op: str, e: ir.TensorRegion, a: ir.TensorRegion, transposed: bool, transposed_a: bool
) -> None:
    dtype = tvm.DataType(e.source.dtype)
    if not str(dtype).startswith(("int", "uint")) or dtype.bits not in (8, 16, 32):
        raise TypeError(
            f"E of {op} is of dtype {e.source.dtype}, wanted an integer of 8, 16 or 32 bits"
        )
    found = [simplify(r.extent) for r in e.region[-2:]]
    m, half_k = (simplify(r.extent) for r in a.region[-2:])
    if transposed_a:
        m, half_k = half_k, m
    if transposed:
        found = found[::-1]
    bits = int(half_k) * (4 if tvm.DataType(a.source.dtype).bits == 32 else 2)
    wanted = [int(m), bits // dtype.bits]
    if bits % dtype.bits or [as_int(x) for x in found] != wanted:
        raise AssertionError(
            f"E of {op} is {tuple(found)} of {e.source.dtype} (rows, entries), wanted "
            f"{bits} bits for each of {m} rows: {tuple(wanted)}"
        )


def _flag(value: Any, name: str, op: str = "T.gemm") -> bool:
    value = unwrap(value)
    if not isinstance(value, bool | int):
        raise TypeError(f"{name} of {op} is {describe(value)}, wanted True or False")
    return bool(value)


def _predicate(value: Any, op: str) -> Any:
    value = unwrap(value)
    if value is None or isinstance(value, bool | int):
        return bool(value)
    if is_buffer(value):
        raise TypeError(f"clear_accum of {op} is {describe(value)}, wanted a scalar condition")
    return as_dtype(value, "bool")


def _operand(value: Any, name: str, scopes: tuple[str, ...], op: str = "T.gemm") -> ir.TensorRegion:
    if isinstance(value, ir.TensorLoad):
        raise TypeError(
            f"{name} of {op} is {describe(value)}, wanted a buffer or a region; slice it, A[i, "
            ":, :]"
        )
    region = region_of(value, f"{name} of {op}")
    scope = region.source.scope()
    if not any(scope == s or (s == "shared" and scope == "shared.dyn") for s in scopes):
        raise ValueError(
            f"{name} of {op} is {region.source.name} in memory {scope!r}, wanted "
            f"{' or '.join(scopes)}; copy it there first with T.copy"
        )
    extents = [simplify(r.extent) for r in region.region]
    if len(extents) < 2 or any(e != 1 for e in extents[:-2]):
        raise ValueError(
            f"{name} of {op} has shape {tuple(extents)}, wanted a matrix; index leading dimensions"
        )
    return region


def _check_shapes(
    a: ir.TensorRegion,
    b: ir.TensorRegion,
    c: ir.TensorRegion,
    transpose_a: bool,
    transpose_b: bool,
    op: str = "T.gemm",
    stored: int = 1,
) -> None:
    """M, N and K agree; `stored` elements along K have one that A keeps."""
    tiles = [[simplify(r.extent) for r in region.region[-2:]] for region in (a, b, c)]
    (a_m, a_k), (b_k, b_n), (c_m, c_n) = (
        tile[::-1] if transposed else tile
        for tile, transposed in zip(tiles, (transpose_a, transpose_b, False), strict=True)
    )
    a_k *= stored
    for name, first, x, second, y in (
        ("M", "A", a_m, "C", c_m),
        ("N", "B", b_n, "C", c_n),
        ("K", "A", a_k, "B", b_k),
    ):
        if as_int(x) is None or as_int(y) is None:
            raise ValueError(
                f"{name} of {op} is {x} in {first} and {y} in {second}, wanted constants"
            )
        if x != y:
            shapes = ", ".join(f"{n} {tuple(t)}" for n, t in zip("ABC", tiles, strict=True))
            raise AssertionError(
                f"{op} {name} shape check failed: {name} is {x} in {first} and {y} in {second} "
                f"(stored: {shapes}; transpose_A={transpose_a}, transpose_B={transpose_b}); make "
                "the tiles agree or set the transpose that the layout needs"
            )
