"""Loads and stores of a chosen width, bits of words, and products of bytes."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype
from tilelang.language.intrinsics import address_of
from tilelang.language.ops import intrinsic_call
from tilelang.language.regions import region_of, starts
from tilelang.language.scalars import as_dtype, as_expr, describe, is_buffer, is_scalar_expr
from tilelang.language.tracer import current_tracer

_INTEGERS = ("int32", "uint32", "int64", "uint64")


def _place(name: str, value: Any, scope: str) -> ir.TensorLoad:
    """Return the first element of ``value``, which lies in memory of ``scope``."""
    current_tracer(name).kernel_scope(name)
    region = region_of(value, f"the operand of {name}")
    buffer = region.source
    if not buffer.scope().startswith(scope):
        raise ValueError(
            f"{name} found {buffer.name} in memory {buffer.scope()!r}, wanted {scope} memory"
        )
    return tirx.BufferLoad(buffer, starts(region))


def _words(bits: int) -> dtype:
    return dtype("uint32" if bits == 32 else f"uint32x{bits // 32}")


def _load(name: str, scope: str, bits: int, src: Any, pred: Any) -> ir.Call:
    place = _place(f"T.{name}", src, scope)
    arguments = [tirx.const(bits // 32, "int32"), address_of(place)]
    if pred is not None:
        arguments.append(as_dtype(pred, "bool"))
    return intrinsic_call("load_words", str(_words(bits)), arguments)


def _store(name: str, scope: str, bits: int, dst: Any, value: Any, pred: Any) -> None:
    place = _place(f"T.{name}", dst, scope)
    value, wanted = as_expr(value), _words(bits)
    if bits == 32 and isinstance(value, int):
        value = tirx.const(value, "uint32")
    if not is_scalar_expr(value) or value.ty.dtype != wanted:
        raise TypeError(
            f"T.{name} found the value {describe(value)}, wanted a {wanted}; T.reinterpret gives "
            "the bits of another type"
        )
    arguments = [address_of(place), value]
    if pred is not None:
        arguments.append(as_dtype(pred, "bool"))
    tir_builder.evaluate(intrinsic_call("store_words", "void", arguments))


def ldg32(src: Any, pred: Any = None) -> ir.Call:
    """Return 4 bytes of global memory as a uint32.

    ``T.ldg64``, ``T.ldg128`` and ``T.ldg256`` are like it and return ``uint32x2``, ``uint32x4`` and
    ``uint32x8``; ``T.lds32`` to ``T.lds128`` read shared memory. The address has to be a multiple
    of the width, of 16 bytes at most (PTX ISA, ld), and all bytes have to exist: nothing checks
    bounds here.

    Parameters
    ----------
    src
        An element, of any dtype, that the bytes begin with; or a buffer or region that does.
    pred
        Where it is false nothing is read and the result is 0.

    Raises
    ------
    ValueError, TypeError
        For other memory; if ``src`` is not one of these; outside of a kernel.

    Example
    -------
    ``bits = T.ldg32(A[i, 2 * j])`` reads two float16
    """
    return _load("ldg32", "global", 32, src, pred)


def ldg64(src: Any, pred: Any = None) -> ir.Call:
    """Return 8 bytes of global memory as a uint32x2 (see ``ldg32``).

    Example
    -------
    ``words = T.ldg64(A[i, 4 * j])`` reads four float16
    """
    return _load("ldg64", "global", 64, src, pred)


def ldg128(src: Any, pred: Any = None) -> ir.Call:
    """Return 16 bytes of global memory as a uint32x4 (see ``ldg32``).

    Example
    -------
    ``words = T.ldg128(A[i, 8 * j], pred=i < n)``
    """
    return _load("ldg128", "global", 128, src, pred)


def ldg256(src: Any, pred: Any = None) -> ir.Call:
    """Return 32 bytes of global memory as a uint32x8, in two accesses (see ``ldg32``).

    Example
    -------
    ``words = T.ldg256(A[i, 16 * j])``
    """
    return _load("ldg256", "global", 256, src, pred)


def stg32(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32 to 4 bytes of global memory.

    ``T.stg64``, ``T.stg128`` and ``T.stg256`` take ``uint32x2``, ``uint32x4`` and ``uint32x8``;
    ``T.sts32`` to ``T.sts128`` write shared memory. Addresses and errors are those of ``ldg32``;
    where ``pred`` is false nothing is written.

    Raises
    ------
    TypeError
        If the value has another type.

    Example
    -------
    ``T.stg32(B[i, 2 * j], bits)``
    """
    _store("stg32", "global", 32, dst, value, pred)


def stg64(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32x2 to 8 bytes of global memory (see ``stg32``).

    Example
    -------
    ``T.stg64(B[i, 4 * j], words)``
    """
    _store("stg64", "global", 64, dst, value, pred)


def stg128(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32x4 to 16 bytes of global memory (see ``stg32``).

    Example
    -------
    ``T.stg128(B[i, 8 * j], words, pred=i < n)``
    """
    _store("stg128", "global", 128, dst, value, pred)


def stg256(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32x8 to 32 bytes of global memory, in two accesses (see ``stg32``).

    Example
    -------
    ``T.stg256(B[i, 16 * j], words)``
    """
    _store("stg256", "global", 256, dst, value, pred)


def lds32(src: Any, pred: Any = None) -> ir.Call:
    """Return 4 bytes of shared memory as a uint32 (see ``ldg32``).

    Example
    -------
    ``bits = T.lds32(A_shared[i, 2 * j])``
    """
    return _load("lds32", "shared", 32, src, pred)


def lds64(src: Any, pred: Any = None) -> ir.Call:
    """Return 8 bytes of shared memory as a uint32x2 (see ``ldg32``).

    Example
    -------
    ``words = T.lds64(A_shared[i, 4 * j])``
    """
    return _load("lds64", "shared", 64, src, pred)


def lds128(src: Any, pred: Any = None) -> ir.Call:
    """Return 16 bytes of shared memory as a uint32x4 (see ``ldg32``).

    Example
    -------
    ``words = T.lds128(A_shared[i, 8 * j])``
    """
    return _load("lds128", "shared", 128, src, pred)


def sts32(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32 to 4 bytes of shared memory (see ``stg32``).

    Example
    -------
    ``T.sts32(A_shared[i, 2 * j], bits)``
    """
    _store("sts32", "shared", 32, dst, value, pred)


def sts64(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32x2 to 8 bytes of shared memory (see ``stg32``).

    Example
    -------
    ``T.sts64(A_shared[i, 4 * j], words)``
    """
    _store("sts64", "shared", 64, dst, value, pred)


def sts128(dst: Any, value: Any, pred: Any = None) -> None:
    """Write a uint32x4 to 16 bytes of shared memory (see ``stg32``).

    Example
    -------
    ``T.sts128(A_shared[i, 8 * j], words)``
    """
    _store("sts128", "shared", 128, dst, value, pred)


def __ldg(load_or_buf: Any, index: Any = None) -> ir.Call:
    """Return an element of global memory that nothing writes while the kernel runs.

    It comes through the read-only cache (PTX ISA, ld.global.nc). Out of bounds it is what an
    ordinary read would give.

    Parameters
    ----------
    load_or_buf
        An element ``A[i, j]``, or a buffer.
    index
        The index of the element of a buffer: one, or one for each dimension.

    Raises
    ------
    ValueError, TypeError
        For other memory; if there is no such element; outside of a kernel.

    Example
    -------
    ``x = T.__ldg(A[i, j])``
    """
    if is_buffer(load_or_buf):
        if index is None:
            raise TypeError(
                f"T.__ldg found {describe(load_or_buf)} without an index, wanted an element; write "
                "T.__ldg(A[i, j]) or T.__ldg(A, (i, j))"
            )
        load_or_buf = load_or_buf[tuple(index) if isinstance(index, list | tuple) else index]
    elif index is not None:
        raise TypeError("T.__ldg found an index beside an element, wanted one of them")
    place = _place("T.__ldg", load_or_buf, "global")
    return intrinsic_call("load_read_only", str(place.source.dtype), [address_of(place)])


def prefetch_l2(src: Any, size: Any) -> None:
    """Ask for ``size`` bytes of global memory in the L2 cache, from an element on, and go on.

    A block that computes something before it reads a row finds the row in L2 then. Each thread
    that calls it asks; let one do so. Bytes in front of the first multiple of 16, and behind the
    last one, are left out; all bytes have to exist. Without effect on AMD's chips and in the
    emulator (PTX ISA, cp.async.bulk.prefetch; before sm_90 prefetch, a line of 128 bytes at a
    time).

    Parameters
    ----------
    src
        An element, of any dtype, that the bytes begin with; or a buffer or region that does.
    size
        How many; an int32.

    Raises
    ------
    ValueError, TypeError
        For other memory; if ``src`` is not one of these; outside of a kernel.

    Example
    -------
    ``if T.get_thread_binding() == 0: T.prefetch_l2(A[i, 0], 2 * K)``
    """
    place = _place("T.prefetch_l2", src, "global")
    arguments = [address_of(place), as_dtype(size, "int32")]
    tir_builder.evaluate(intrinsic_call("prefetch_l2", "void", arguments))


def __ffs(value: Any) -> ir.Call:
    """Return, as int32, one more than the position of the lowest set bit of an integer, 0 for 0.

    Raises
    ------
    TypeError
        If ``value`` is not a scalar of int32, uint32, int64 or uint64.

    Example
    -------
    ``first = T.__ffs(mask) - 1``
    """
    value = as_expr(value)
    value = tirx.const(value, "int32") if isinstance(value, int) else value
    if not is_scalar_expr(value) or value.ty.dtype not in _INTEGERS:
        raise TypeError(f"T.__ffs found {describe(value)}, wanted one of {', '.join(_INTEGERS)}")
    return intrinsic_call("find_first_set", "int32", [value])


def __fns(mask: Any, base: Any, offset: Any) -> ir.Call:
    """Return, as uint32, the position of a set bit of a 32-bit mask, 0xFFFFFFFF if there is none.

    Parameters
    ----------
    base
        Position to begin at, 0 to 31.
    offset
        Which set bit, counted from there: 1 is the first one upwards, -1 the first one downwards,
        0 the bit at ``base`` itself (PTX ISA, fns).

    Example
    -------
    ``second = T.__fns(mask, 0, 2)``
    """
    arguments = [as_dtype(mask, "uint32"), as_dtype(base, "uint32"), as_dtype(offset, "int32")]
    return intrinsic_call("find_nth_set", "uint32", arguments)


def dp4a(A: Any, B: Any, C: Any) -> None:
    """Add to the int32 ``C`` the products of four int8 of ``A`` with four of ``B``.

    Parameters
    ----------
    A, B
        The first of four adjacent elements of int8, at a multiple of 4 bytes; or a buffer or region
        that begins with them.
    C
        An element of int32, or what begins with it.

    Raises
    ------
    ValueError, TypeError
        For other dtypes; if an operand is not memory.

    Example
    -------
    ``T.dp4a(A_local[4 * k], B_local[4 * k], C_local[0])`` (PTX ISA, dp4a)
    """
    places = [_place("T.dp4a", operand, "") for operand in (A, B, C)]
    for place, wanted in zip(places, ("int8", "int8", "int32"), strict=True):
        if place.source.scope() == "local.fragment":
            raise ValueError(
                f"T.dp4a found the fragment {place.source.name}, whose elements are in several "
                "threads, wanted memory of this thread, shared or global memory"
            )
        if str(place.source.dtype) != wanted:
            raise ValueError(
                f"T.dp4a found {place.source.name} of dtype {place.source.dtype}, wanted {wanted}"
            )
    tir_builder.evaluate(intrinsic_call("dp4a", "void", [address_of(p) for p in places]))
