"""Calls of functions that are not tile operators."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.regions import region_of, starts
from tilelang.language.scalars import as_expr, describe, is_buffer
from tilelang.language.tracer import current_tracer


def evaluate(value: Any) -> None:
    """Add an expression to the program as a statement, for its effect.

    Raises
    ------
    TypeError
        If ``value`` is not an expression.

    Example
    -------
    ``T.evaluate(T.call_extern("void", "trace", x))``
    """
    current_tracer("T.evaluate")
    value = as_expr(value)
    if not isinstance(value, ir.Expr | int) or is_buffer(value):
        raise TypeError(f"T.evaluate found {describe(value)}, wanted a call or another expression")
    tir_builder.evaluate(value)


def call_extern(return_type: Any, *args: Any, dtype: Any = None) -> ir.Call:
    """Return a call of a function of the target's language: ``T.call_extern(return_type, name,
    *args)`` or ``T.call_extern(name, *args, dtype=return_type)``.

    Parameters
    ----------
    return_type, dtype
        Data type of the result, ``"void"`` or ``"handle"``.

    Raises
    ------
    TypeError
        If the name of the function, or the type of its result, is missing or no text.
    ValueError
        If there is no such data type.

    Example
    -------
    ``T.call_extern("float32", "__expf", x)``
    """
    if dtype is not None:
        name, rest = return_type, args
    elif args:
        dtype, name, rest = return_type, args[0], args[1:]
    else:
        raise TypeError(
            f"T.call_extern found {describe(return_type)} alone, wanted the type of the result and "
            "the name of a function: T.call_extern('void', name, *args)"
        )
    if not isinstance(name, str | ir.StringImm):
        raise TypeError(
            f"T.call_extern found {describe(name)} for the name of a function, wanted a string: "
            "T.call_extern(return_type, name, *args) or T.call_extern(name, *args, dtype=..)"
        )
    return tirx.call_extern(_result(dtype), name, *rest)


def call_intrin(return_type: Any, name: str, *args: Any) -> ir.Call:
    """Return a call of the operator ``name`` of TVM's registry.

    Example
    -------
    ``T.call_intrin("float32", "tirx.exp2", x)``
    """
    return tirx.call_intrin(_result(return_type), name, *args)


def _result(return_type: Any) -> Any:
    return return_type if return_type in ("void", "handle") else str(data_type(return_type))


def address_of(value: Any) -> ir.Call:
    """Return a pointer to an element, or to the first element of a buffer.

    Raises
    ------
    TypeError
        If ``value`` is neither.

    Example
    -------
    ``T.call_extern("void", "prefetch", T.address_of(A[i, 0]))``
    """
    if is_buffer(value):
        value = tirx.BufferLoad(value, [0] * len(value.shape))
    if not isinstance(value, ir.TensorLoad):
        raise TypeError(
            f"T.address_of found {describe(value)}, wanted a buffer or an element of one"
        )
    return tirx.address_of(value)


_ACCESS = {"r": 1, "w": 2, "rw": 3}


def access_ptr(
    base: Any,
    access_type: str | int = "r",
    *extents: Any,
    offset: Any = 0,
    extent: Any = None,
    ignore_last_ndim: int = 0,
) -> ir.Call:
    """Return a pointer to pass to a function of the target's language.

    The compiler takes what such a function does to be all of the buffer, whatever the access type
    and the extents say; they are for compatibility.

    Parameters
    ----------
    base
        A buffer, a region or an element: the pointer is to its first element.
    access_type
        ``r``, ``w``, ``rw``, or 1, 2, 3.
    extents, extent
        How much is accessed, in each dimension or in elements. No effect.
    offset
        Elements to add to the pointer.
    ignore_last_ndim
        How many of the last dimensions start at 0, whatever the region says.

    Raises
    ------
    ValueError, TypeError
        If there is no such access type or number of dimensions; if ``base`` is not memory, or a
        fragment.

    Example
    -------
    ``T.call_extern("void", "sort", T.access_ptr(S[i, 0], "rw", 64))``
    """
    if access_type not in _ACCESS and access_type not in _ACCESS.values():
        raise ValueError(f"access_type of T.access_ptr is {access_type!r}, wanted 'r', 'w' or 'rw'")
    region = region_of(base, "the base of T.access_ptr")
    buffer, first = region.source, starts(region)
    if buffer.scope() == "local.fragment":
        raise ValueError(
            f"T.access_ptr found the fragment {buffer.name}, whose elements are in several "
            "threads; copy it to shared memory first with T.copy"
        )
    if not 0 <= ignore_last_ndim <= len(first):
        raise ValueError(
            f"ignore_last_ndim of T.access_ptr is {ignore_last_ndim!r}, wanted 0 to {len(first)}"
        )
    kept = len(first) - ignore_last_ndim
    first = [*first[:kept], *[0] * ignore_last_ndim]
    return address_of(tirx.BufferLoad(buffer, [*first[:-1], first[-1] + offset]))
