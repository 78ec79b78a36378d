"""Products of warp groups by hand (sm_90a): ``wgmma.mma_async`` and what goes with it."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.descriptors import bytes_of, descriptor_of
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.element_address import (
    as_element,
    check_scope,
    constant,
    flag,
    offset_element,
)
from tilelang.language.intrinsics import address_of
from tilelang.language.mma import metadata_word, type_of
from tilelang.language.ops import device_call
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import current_tracer

_ROWS = 64


def _emit(name: str, call: ir.Call) -> None:
    current_tracer(name).kernel_scope(name)
    tir_builder.evaluate(call)


def warpgroup_arrive() -> None:
    """Order this warp's accesses of registers before the products that it issues next; all lanes of
    the four warps get here (PTX ISA, wgmma.fence).

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.warpgroup_arrive()`` before the first ``T.ptx_wgmma_ss``
    """
    _emit("T.warpgroup_arrive", device_call("warpgroup_arrive", []))


def warpgroup_commit_batch() -> None:
    """Make the products that this warp has issued since the last call a group (PTX ISA,
    wgmma.commit_group).

    Raises
    ------
    ValueError
        As ``warpgroup_arrive``.

    Example
    -------
    ``T.warpgroup_commit_batch(); T.warpgroup_wait(0)``
    """
    _emit("T.warpgroup_commit_batch", device_call("warpgroup_commit_batch", []))


def warpgroup_wait(n: int) -> None:
    """Wait until at most ``n`` groups of this warp's products are in flight, 0 to 7 (PTX ISA,
    wgmma.wait_group). The operands of the others may be written, their accumulators used.

    Raises
    ------
    ValueError
        For another ``n``; as ``warpgroup_arrive``.

    Example
    -------
    ``T.warpgroup_wait(0)``
    """
    groups = as_int(n)
    if groups is None or not 0 <= groups <= 7:
        raise ValueError(f"n of T.warpgroup_wait is {n!r}, wanted a constant from 0 to 7")
    _emit("T.warpgroup_wait", device_call("warpgroup_wait", [groups]))


def warpgroup_fence_operand(
    buf: Any, offset: Any = 0, num_regs: int | None = None, dtype: Any = None
) -> None:
    """Keep the compiler from moving accesses of accumulators across this point: before the first
    product into them and behind the wait.

    Parameters
    ----------
    buf
        Memory of the thread (``T.alloc_local``) that products accumulate in.
    offset
        The first element.
    num_regs
        How many registers of 32 bits; by default all up to the buffer's end.
    dtype
        That of the buffer.

    Raises
    ------
    ValueError, TypeError, IndexError
        For other memory or another ``dtype``; outside of a kernel; if the buffer ends before.

    Example
    -------
    ``T.warpgroup_fence_operand(C_local, num_regs=64)``
    """
    name = "T.warpgroup_fence_operand"
    place = as_element(name, buf, "memory of the thread")
    check_scope(
        name,
        place,
        ("local",),
        "accumulators of T.wgmma_gemm are fenced by T.wait_wgmma",
    )
    found = str(place.source.dtype)
    if found not in ("float32", "float16", "int32", "uint32"):
        raise ValueError(
            f"{name} found {place.source.name} of {found}, wanted accumulators of float32, "
            "float16 or int32"
        )
    if dtype is not None and str(data_type(dtype)) != found:
        raise ValueError(f"dtype of {name} is {dtype}, wanted {found}, that of the buffer")
    size = 1
    for extent in place.source.shape:
        size *= int(extent)
    packed = 32 // data_type(found).bits
    whole = None if as_int(offset) is None else (size - int(offset)) // packed
    registers = whole if num_regs is None else as_int(num_regs)
    if registers is None or registers < 1:
        raise ValueError(f"num_regs of {name} is {num_regs!r}, wanted a positive constant")
    count = registers * packed
    first = offset_element(name, place, offset, count)
    _emit(name, device_call("warpgroup_fence_operand", [count, address_of(first)]))


class _Product(NamedTuple):
    """A row of the table of products."""

    k: int
    operand: str
    accumulator: str
    operand_name: str
    accumulator_name: str
    any_order: bool
    sparse: bool
    columns: list[int]

    @property
    def types(self) -> tuple[str, str]:
        """Operands and accumulator as a program names them."""
        tensor_float = self.operand_name == "tfloat32_t"
        return "tfloat32" if tensor_float else self.operand, self.accumulator

    def __str__(self) -> str:
        columns = f"{self.columns[0]} to {self.columns[-1]}"
        return f"m64n<{columns}>k{self.k} {' x '.join(self.types)}"


@functools.cache
def _rows() -> list[_Product]:
    return [_Product(*row) for row in get_function("target.WgmmaRows")()]


def _product(
    name: str, prefix: str, types: tuple[Any, Any, Any], sparse: bool = False
) -> tuple[_Product, int]:
    """Return the row of a product and its number of columns."""
    a, b, c = (type_of(name, t) for t in types)
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", str(prefix))
    rows = [row for row in _rows() if row.sparse == sparse]
    found = [row for row in rows if row.types == (a, c)]
    if a == b and found and shape and int(shape[2]) == found[0].k:
        columns = int(shape[1])
        if columns in found[0].columns:
            return found[0], columns
    known = "; ".join(map(str, rows))
    raise ValueError(
        f"{name} found {prefix!r} of {a} and {b} into {c}, wanted A and B of one type, and one of "
        f"{known}; T.gemm chooses one"
    )


def _operand(name: str, word: str, desc: Any, offset: Any) -> ir.Expr:
    """Return the value of a descriptor ``offset`` bytes further on."""
    load = descriptor_of(name, desc)
    moved_by = bytes_of(name, f"{word}_offset", offset)
    if as_int(moved_by) == 0:
        return load
    call = ir.Op.get("tl.wgmma_descriptor_advance")
    return ir.Call(call, [load, moved_by], ret_ty=ir.PrimType("uint64"))


def _k_major(name: str, word: str, row: _Product, value: Any) -> str:
    major = flag(name, word, value)
    if not major and not row.any_order:
        raise ValueError(
            f"{word} of {name} is False, wanted True: operands of {row.types[0]} have their "
            "elements along K side by side"
        )
    return "true" if major else "false"


def _accumulator(name: str, row: _Product, columns: int, C: Any, offset: Any) -> ir.Call:
    place = as_element(name, C, "memory of the thread")
    check_scope(name, place, ("local",), "allocate it with T.alloc_local")
    if str(place.source.dtype) != row.accumulator:
        raise TypeError(
            f"{name} found {place.source.name} of {place.source.dtype}, wanted {row.accumulator}"
        )
    return address_of(offset_element(name, place, offset, columns // 2))


def _signs(name: str, row: _Product, scale_in_a: Any, scale_in_b: Any) -> list[str]:
    """Return the template arguments of the signs, none where both are positive."""
    signs = [
        constant(name, word, value, (1, -1))
        for word, value in (("scale_in_a", scale_in_a), ("scale_in_b", scale_in_b))
    ]
    if -1 in signs and row.accumulator == "int32":
        raise ValueError(f"{name} found a sign of integers, wanted scale_in_a and scale_in_b of 1")
    return ["true" if sign < 0 else "false" for sign in signs] if -1 in signs else []


def _check_dtype(name: str, row: _Product, dtype: Any) -> None:
    if type_of(name, dtype) != row.accumulator:
        raise ValueError(f"dtype of {name} is {dtype}, wanted {row.accumulator}, that of C")


def ptx_wgmma_ss(
    dtype: Any,
    wgmma_prefix: str,
    a_is_k_major: Any,
    b_is_k_major: Any,
    a_dtype: Any,
    b_dtype: Any,
    accum_dtype: Any,
    A_desc: Any,
    A_offset: Any,
    B_desc: Any,
    B_offset: Any,
    C: Any,
    C_offset: Any,
    scale_out: Any,
    scale_in_a: int = 1,
    scale_in_b: int = 1,
) -> None:
    """Issue one product of a warp group, ``C = A @ B + (C if scale_out else 0)``, with both
    operands from shared memory (PTX ISA, wgmma.mma_async; sm_90a). All lanes of the four warps get
    here; lane ``l`` of warp ``w`` holds elements ``(16 * w + l / 4 + 8 * (i / 2 % 2), 8 * (i / 4)
    + 2 * (l % 4) + i % 2)`` of C.

    ``T.warpgroup_arrive`` comes before, ``T.warpgroup_commit_batch`` and ``T.warpgroup_wait``
    behind; until then nobody touches C or writes the operands. What threads have written to the
    operands the compiler orders before, by a barrier and a fence; what engines load, the program.

    Parameters
    ----------
    dtype
        Type of the accumulator.
    wgmma_prefix
        ``m64n128k16`` and the like.
    a_is_k_major, b_is_k_major
        Whether the operand's elements along K lie side by side.
    a_dtype, b_dtype, accum_dtype
        Words of PTX (``fp16``, ``bf16``, ``tf32``, ``e4m3``, ``e5m2``, ``s8``, ``u8``, ``fp32``) or
        data types; A and B have one.
    A_desc, B_desc
        Descriptors (``T.alloc_wgmma_desc``).
    A_offset, B_offset
        Bytes behind what they describe, multiples of 16.
    C
        Memory of the thread (``T.alloc_local``), or a pointer to it.
    C_offset
        The first element of it.
    scale_out
        Whether the product is added to C.
    scale_in_a, scale_in_b
        1 or -1, the sign of an operand of floats.

    Raises
    ------
    ValueError
        If there is no such product; for other memory and signs; if a descriptor is never
        initialised; outside of a kernel; when it is compiled for another chip.
    TypeError
        If C has another type, or an operand is no descriptor.
    IndexError
        If C does not hold the product.

    Example
    -------
    ``T.ptx_wgmma_ss("float32", "m64n64k16", True, True, "fp16", "fp16", "fp32", desc_a, 0, desc_b,
    0, C_local, 0, k > 0)``
    """
    name = "T.ptx_wgmma_ss"
    row, columns = _product(name, wgmma_prefix, (a_dtype, b_dtype, accum_dtype))
    _check_dtype(name, row, dtype)
    majors = [
        _k_major(name, "a_is_k_major", row, a_is_k_major),
        _k_major(name, "b_is_k_major", row, b_is_k_major),
    ]
    operands = [
        _accumulator(name, row, columns, C, C_offset),
        _operand(name, "A", A_desc, A_offset),
        _operand(name, "B", B_desc, B_offset),
    ]
    _issue(name, "wgmma_ss", row, columns, majors, operands, scale_out, scale_in_a, scale_in_b)


def ptx_wgmma_rs(
    dtype: Any,
    wgmma_prefix: str,
    b_is_k_major: Any,
    a_dtype: Any,
    b_dtype: Any,
    accum_dtype: Any,
    A: Any,
    A_offset: Any,
    B_desc: Any,
    B_offset: Any,
    C: Any,
    C_offset: Any,
    scale_out: Any,
    scale_in_a: int = 1,
    scale_in_b: int = 1,
) -> None:
    """``ptx_wgmma_ss`` with A from registers: each warp holds its 16 rows as ``ptx_mma`` of this
    type, and nobody writes them before ``T.warpgroup_wait``. Parameters but these are those of
    ``ptx_wgmma_ss``.

    Parameters
    ----------
    A
        Memory of the thread (``T.alloc_local``) of ``a_dtype``, or a pointer to it: 16 bytes.
    A_offset
        The first element of it.

    Raises
    ------
    ValueError, TypeError, IndexError
        As ``ptx_wgmma_ss``.

    Example
    -------
    ``T.ptx_wgmma_rs("float32", "m64n64k16", True, "fp16", "fp16", "fp32", A_local, 0, desc_b, 0,
    C_local, 0, True)``
    """
    name = "T.ptx_wgmma_rs"
    row, columns = _product(name, wgmma_prefix, (a_dtype, b_dtype, accum_dtype))
    _check_dtype(name, row, dtype)
    place = as_element(name, A, "memory of the thread")
    check_scope(name, place, ("local",), "allocate it with T.alloc_local")
    stored = "float32" if row.types[0] == "tfloat32" else row.types[0]
    found = str(place.source.dtype)
    if found.replace("e4m3fn", "e4m3") != stored.replace("e4m3fn", "e4m3"):
        raise TypeError(f"{name} found {place.source.name} of {found}, wanted {stored}")
    elements = 128 // data_type(found).bits
    operands = [
        _accumulator(name, row, columns, C, C_offset),
        address_of(offset_element(name, place, A_offset, elements)),
        _operand(name, "B", B_desc, B_offset),
    ]
    majors = [_k_major(name, "b_is_k_major", row, b_is_k_major)]
    _issue(name, "wgmma_rs", row, columns, majors, operands, scale_out, scale_in_a, scale_in_b)


def ptx_wgmma_sp(
    dtype: Any,
    wgmma_prefix: str,
    b_is_k_major: Any,
    a_dtype: Any,
    b_dtype: Any,
    accum_dtype: Any,
    A_desc: Any,
    A_offset: Any,
    B_desc: Any,
    B_offset: Any,
    C: Any,
    C_offset: Any,
    metadata: Any,
    meta_index: Any,
    sparse_selector: int,
    scale_out: Any,
) -> None:
    """``ptx_wgmma_ss`` where half of the elements of A are zeros and not stored; A has its elements
    along K side by side (PTX ISA, wgmma.mma_async.sp). Parameters but these are those of
    ``ptx_wgmma_ss``.

    Parameters
    ----------
    wgmma_prefix
        ``m64n128k32`` and the like: K is that of B, 64 bytes of elements.
    metadata, meta_index
        Memory of the thread of 32-bit integers, and which of them tells this lane's share of which
        elements are stored, for the 16 rows of its warp as for ``ptx_mma_sp``.
    sparse_selector
        0: which lanes hold the metadata.

    Raises
    ------
    ValueError, TypeError, IndexError
        As ``ptx_wgmma_ss``; for another ``sparse_selector``.

    Example
    -------
    ``T.ptx_wgmma_sp("float32", "m64n64k32", True, "fp16", "fp16", "fp32", desc_a, 0, desc_b, 0,
    C_local, 0, e, 0, 0, True)``
    """
    name = "T.ptx_wgmma_sp"
    row, columns = _product(name, wgmma_prefix, (a_dtype, b_dtype, accum_dtype), sparse=True)
    _check_dtype(name, row, dtype)
    operands = [
        _accumulator(name, row, columns, C, C_offset),
        _operand(name, "A", A_desc, A_offset),
        _operand(name, "B", B_desc, B_offset),
        metadata_word(name, metadata, meta_index, sparse_selector),
    ]
    majors = [_k_major(name, "b_is_k_major", row, b_is_k_major)]
    _issue(name, "wgmma_sp_ss", row, columns, majors, operands, scale_out, 1, 1)


def _issue(
    name: str,
    op: str,
    row: _Product,
    columns: int,
    majors: list[str],
    operands: list[ir.Expr],
    scale_out: Any,
    scale_in_a: Any,
    scale_in_b: Any,
) -> None:
    words = [row.operand_name, row.operand_name, row.accumulator_name, *majors]
    signs = _signs(name, row, scale_in_a, scale_in_b)
    adds = as_expr(scale_out)
    if not isinstance(adds, bool | int) and not is_scalar_expr(adds):
        raise TypeError(f"scale_out of {name} is {describe(adds)}, wanted a scalar condition")
    if is_scalar_expr(adds) and adds.ty.dtype != "bool":
        adds = adds != tirx.const(0, adds.ty.dtype)
    arguments = [_ROWS, columns, row.k, *words, *signs, *operands, as_dtype(adds, "bool")]
    _emit(name, device_call(op + "_signed" * bool(signs), arguments))


__all__ = [
    "ptx_wgmma_rs",
    "ptx_wgmma_sp",
    "ptx_wgmma_ss",
    "warpgroup_arrive",
    "warpgroup_commit_batch",
    "warpgroup_fence_operand",
    "warpgroup_wait",
]
