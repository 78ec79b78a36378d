"""Instructions of a warp's matrices by hand: ``mma``, ``mma.sp``, ``ldmatrix``, ``stmatrix``.

The lists of arguments are those of TVM's functions of these names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, overload

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.element_address import (
    as_element,
    check_scope,
    constant,
    flag,
    offset_element,
)
from tilelang.language.intrinsics import address_of
from tilelang.language.ops import device_call
from tilelang.language.tracer import current_tracer

_LANES = "a tile of a thread; allocate it with T.alloc_local"
PTX_TYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "tf32": "tfloat32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
    "s4": "int4",
    "u4": "uint4",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}
"""Data types by the words of PTX."""


class Instruction(NamedTuple):
    """A row of the table of instructions: types and shape, and what a lane holds of it."""

    shape: str
    sparse: bool
    operand: str
    accumulator: str
    operand_name: str
    accumulator_name: str
    a: int
    b: int
    c: int

    @property
    def types(self) -> tuple[str, str]:
        """Operands and accumulator as a program names them."""
        tensor_float = self.operand_name == "tfloat32_t"
        return "tfloat32" if tensor_float else self.operand, self.accumulator

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        m, _, nk = self.shape[1:].partition("n")
        n, _, k = nk.partition("k")
        return int(m), int(n), int(k)


@functools.cache
def _rows() -> list[Instruction]:
    return [Instruction(*row) for row in get_function("target.MmaRows")()]


def type_of(name: str, word: Any) -> str:
    """Return the data type that an argument of the function ``name`` names.

    Raises
    ------
    ValueError
        If there is no such type.
    """
    text = str(word)
    known = PTX_TYPES.get(text, text)
    return known if known == "tfloat32" else str(data_type(known))


def mma_row(name: str, shape: str, types: tuple[Any, Any, Any]) -> Instruction:
    """Return the instruction for A, B and C of ``types``, in the name of the function ``name``.

    Raises
    ------
    ValueError
        If there is none.
    """
    return _row(name, shape, False, types)


def _row(name: str, shape: str, sparse: bool, types: tuple[Any, Any, Any]) -> Instruction:
    a, b, c = (type_of(name, t) for t in types)
    found = [r for r in _rows() if r.sparse == sparse and r.shape == shape and r.types == (a, c)]
    if a == b and found:
        return found[0]
    same = [r for r in _rows() if r.sparse == sparse]
    known = ", ".join(sorted({f"{r.shape} {' x '.join(r.types)}" for r in same}))
    raise ValueError(
        f"{name} found {shape!r} of {a} and {b} into {c}, wanted A and B of one type, and one of "
        f"{known}; T.gemm chooses one"
    )


def with_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function take its first argument, ``dtype``, as a keyword beside positional ones, as in
    TVM's script."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        if arguments and "dtype" in keywords:
            arguments = (keywords.pop("dtype"), *arguments)
        return function(*arguments, **keywords)

    return wrapper


def _registers(name: str, pointer: Any, index: Any, wanted: str, elements: int) -> ir.Call:
    place = as_element(name, pointer, _LANES)
    check_scope(name, place, ("local",), "allocate it with T.alloc_local")
    found = str(place.source.dtype)
    stored = "float32" if wanted == "tfloat32" else wanted
    if found != stored and not (stored == "float8_e4m3fn" and found == "float8_e4m3"):
        raise TypeError(
            f"{name} found {place.source.name} of {found}, wanted {stored}; T.view gives another "
            "name of another type"
        )
    return address_of(offset_element(name, place, index, elements))


def _emit(name: str, call: ir.Call) -> None:
    current_tracer(name).kernel_scope(name)
    tir_builder.evaluate(call)


def _words(row: Instruction) -> list[Any]:
    return [*row.sizes, row.operand_name, row.operand_name, row.accumulator_name]


@with_dtype
def ptx_mma(
    dtype: Any,
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: Any,
    B_dtype: Any,
    C_dtype: Any,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
    saturate: Any,
    operator: Any = None,
) -> None:
    """Multiply and add on the matrices that a warp holds, ``c += a @ b``: one instruction (PTX ISA,
    mma). All lanes of the warp get here; which elements a lane holds the PTX ISA's tables say,
    "Matrix Fragments for mma".

    Parameters
    ----------
    dtype
        Type of the accumulator; may also be given as a keyword.
    shape
        ``m16n8k16`` and the like.
    A_layout, B_layout
        ``row`` and ``col``.
    A_dtype, B_dtype, C_dtype
        Words of PTX (``fp16``, ``bf16``, ``tf32``, ``e4m3``, ``s8``, ``fp32``) or data types; A and
        B have one. ``tf32`` is made of float32.
    multiplicand_a, multiplicand_b, accumulator
        Memory of the thread (``T.alloc_local``) of these types, or a pointer to it (``a.data``).
    a_index, b_index, c_index
        Where in it the matrix begins, in elements.
    saturate
        False.
    operator
        None.

    Raises
    ------
    ValueError
        If there is no such instruction; for other memory, layouts, ``saturate`` and ``operator``;
        outside of a kernel; when it is compiled for a chip that does not have it.
    TypeError
        If memory has another type.
    IndexError
        If it does not hold the matrix.

    Example
    -------
    ``T.ptx_mma("float32", "m16n8k16", "row", "col", "fp16", "fp16", "fp32", a, 0, b, 0, c, 0, 0)``
    """
    name = "T.ptx_mma"
    row = _row(name, shape, False, (A_dtype, B_dtype, C_dtype))
    _check_form(name, row, dtype, A_layout, B_layout, saturate)
    if operator is not None:
        raise ValueError(
            f"operator of {name} is {operator!r}, wanted None: no matrices of bits are supported"
        )
    pointers = [
        _registers(name, accumulator, c_index, row.types[1], row.c),
        _registers(name, multiplicand_a, a_index, row.types[0], row.a),
        _registers(name, multiplicand_b, b_index, row.types[0], row.b),
    ]
    _emit(name, device_call("mma_sync", [*_words(row), *pointers]))


def _check_form(
    name: str, row: Instruction, dtype: Any, A_layout: str, B_layout: str, saturate: Any
) -> None:
    constant(name, "A_layout", A_layout, ("row",))
    constant(name, "B_layout", B_layout, ("col",))
    if type_of(name, dtype) != row.accumulator:
        raise ValueError(f"dtype of {name} is {dtype}, wanted {row.accumulator}, that of C")
    if flag(name, "saturate", saturate):
        raise ValueError(
            f"saturate of {name} is {saturate}, wanted False: sums wrap, as those of T.gemm"
        )


@with_dtype
def ptx_mma_sp(
    dtype: Any,
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: Any,
    B_dtype: Any,
    C_dtype: Any,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
    metadata: Any,
    meta_index: Any,
    sparse_selector: int,
    saturate: Any,
) -> None:
    """``ptx_mma`` where half of the elements of A are zeros and not stored (PTX ISA, mma.sp with
    ordered metadata). Parameters but these are those of ``ptx_mma``.

    Parameters
    ----------
    metadata, meta_index
        Memory of the thread of 32-bit integers, and which of them tells this lane's share of which
        elements are stored.
    sparse_selector
        0: which lanes hold the metadata.

    Raises
    ------
    ValueError, TypeError, IndexError
        As ``ptx_mma``; for another ``sparse_selector``.

    Example
    -------
    ``T.ptx_mma_sp("float32", "m16n8k32", "row", "col", "fp16", "fp16", "fp32", a, 0, b, 0, c, 0,
    e, 0, 0, False)``
    """
    name = "T.ptx_mma_sp"
    row = _row(name, shape, True, (A_dtype, B_dtype, C_dtype))
    _check_form(name, row, dtype, A_layout, B_layout, saturate)
    word = metadata_word(name, metadata, meta_index, sparse_selector)
    pointers = [
        _registers(name, accumulator, c_index, row.types[1], row.c),
        _registers(name, multiplicand_a, a_index, row.types[0], row.a),
        _registers(name, multiplicand_b, b_index, row.types[0], row.b),
    ]
    _emit(name, device_call("mma_sp_sync", [*_words(row), *pointers, word]))


def metadata_word(name: str, metadata: Any, index: Any, selector: Any) -> ir.Expr:
    """Return a lane's metadata of a sparse operand of the function ``name``.

    Raises
    ------
    ValueError, TypeError, IndexError
        For other memory; for a selector other than 0.
    """
    constant(name, "sparse_selector", selector, (0,))
    place = as_element(name, metadata, _LANES)
    check_scope(name, place, ("local",), "allocate it with T.alloc_local")
    if str(place.source.dtype) not in ("uint32", "int32"):
        raise TypeError(
            f"metadata of {name} is {place.source.name} of {place.source.dtype}, wanted uint32"
        )
    word = offset_element(name, place, index, 1)
    return word if str(place.source.dtype) == "uint32" else tirx.reinterpret("uint32", word)


def _matrix_copy(name: str, op: str, trans: Any, num: Any, shared: Any, registers: Any) -> None:
    transposed = flag(name, "trans", trans)
    matrices = constant(name, "num", num, (1, 2, 4))
    rows = as_element(name, shared, "an element of shared memory")
    check_scope(name, rows, ("shared.dyn", "shared"), "allocate it with T.alloc_shared")
    held = as_element(name, registers, _LANES)
    check_scope(name, held, ("local",), "allocate it with T.alloc_local")
    bits = data_type(str(held.source.dtype)).bits
    held = offset_element(name, held, 0, matrices * 32 // bits)
    pointers = [address_of(rows), address_of(held)]
    form = f"{op}_x{matrices}" + ("_trans" if transposed else "")
    _emit(name, device_call(form, pointers))


@overload
def ptx_ldmatrix(trans: Any, num: int, smem: Any, registers: Any, /) -> None: ...
@overload
def ptx_ldmatrix(
    dtype: Any,
    trans: Any,
    num: int,
    type: str,
    local_ptr: Any,
    local_offset: Any,
    smem_ptr: Any,
    smem_offset: Any,
    /,
) -> None: ...


def ptx_ldmatrix(*arguments: Any, dtype: Any = None) -> None:
    """Load one, two or four 8 by 8 matrices of 16-bit elements from shared memory into the
    registers of a warp (PTX ISA, ldmatrix, sm_75). All lanes of the warp get here.

    Takes ``(trans, num, smem, registers)``, or TVM's ``(dtype, trans, num, type, local_ptr,
    local_offset, smem_ptr, smem_offset)`` with offsets in elements; ``dtype`` may be a keyword.

    Parameters
    ----------
    trans
        Whether each matrix is transposed.
    num
        1, 2 or 4 matrices.
    smem
        An element of shared memory, or a pointer: lane ``8 * m + r`` gives that at which row ``r``
        of matrix ``m`` begins, 16 bytes at a multiple of 16. Its buffer is row-major unless a
        layout is given to it (``T.annotate_layout``) or ``T.gemm`` places it.
    registers
        Memory of the thread (``T.alloc_local``), 32 bits for each matrix.
    type
        ``.b16``.

    Raises
    ------
    ValueError
        For other memory, ``trans``, ``num`` and ``type``; outside of a kernel.
    TypeError
        For another number of arguments; if one is no place in memory.
    IndexError
        If ``registers`` does not hold the matrices.

    Example
    -------
    ``T.ptx_ldmatrix(False, 4, A_shared[tx % 16, tx // 16 * 8], a)``
    """
    name = "T.ptx_ldmatrix"
    if dtype is not None:
        arguments = (dtype, *arguments)
    if len(arguments) == 4:
        trans, num, shared, registers = arguments
    elif len(arguments) == 8:
        _, trans, num, kind, local, local_offset, smem, smem_offset = arguments
        constant(name, "type", kind, (".b16", "b16"))
        rows = as_element(name, smem, "an element of shared memory")
        shared = offset_element(name, rows, smem_offset, 1)
        registers = offset_element(name, as_element(name, local, _LANES), local_offset, 1)
    else:
        raise TypeError(
            f"{name} found {len(arguments)} arguments, wanted (trans, num, smem, registers) or "
            "(dtype, trans, num, type, local_ptr, local_offset, smem_ptr, smem_offset)"
        )
    _matrix_copy(name, "ptx_ldmatrix", trans, num, shared, registers)


def ptx_stmatrix(trans: Any, num: int, smem: Any, registers: Any) -> None:
    """Store one, two or four 8 by 8 matrices of 16-bit elements from the registers of a warp to
    shared memory (PTX ISA, stmatrix, sm_90); parameters and errors are those of ``ptx_ldmatrix``.

    Example
    -------
    ``T.ptx_stmatrix(False, 4, C_shared[tx % 16, tx // 16 * 8], c)``
    """
    _matrix_copy("T.ptx_stmatrix", "ptx_stmatrix", trans, num, smem, registers)


__all__ = ["ptx_ldmatrix", "ptx_mma", "ptx_mma_sp", "ptx_stmatrix"]
