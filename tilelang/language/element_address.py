"""Operands of instructions by hand: where in a buffer they begin."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.language.regions import simplify, starts
from tilelang.language.scalars import as_expr, as_int, describe, is_buffer, is_scalar_expr


def as_element(name: str, value: Any, wanted: str) -> ir.TensorLoad:
    """Return the element that a buffer, an element, a region or a pointer to one of them begins
    with; the function ``name`` wants ``wanted``.

    Raises
    ------
    TypeError
        If ``value`` is none of them.
    """
    if isinstance(value, ir.Call) and value.args and value.op.name in _POINTERS:
        value = value.args[0]
    if is_buffer(value):
        return tirx.BufferLoad(value, [0] * len(value.shape))
    if isinstance(value, ir.TensorRegion | ir.TensorLoad):
        return tirx.BufferLoad(value.source, starts(value))
    raise TypeError(f"{name} found {describe(value)}, wanted {wanted}")


_POINTERS = ("tirx.address_of", "tirx.buffer_data")


def check_scope(name: str, place: ir.TensorLoad, scopes: tuple[str, ...], repair: str) -> None:
    """Refuse memory other than ``scopes``.

    Raises
    ------
    ValueError
        In the name of the function ``name``.
    """
    scope = place.source.scope()
    if scope not in scopes:
        raise ValueError(
            f"{name} found {place.source.name} in memory {scope!r}, wanted "
            f"{' or '.join(repr(s) for s in scopes)}; {repair}"
        )


def offset_element(name: str, place: ir.TensorLoad, offset: Any, elements: int) -> ir.TensorLoad:
    """Return the element ``offset`` elements behind ``place``, counted along the rows of its
    buffer; the function ``name`` touches ``elements`` from there on.

    Raises
    ------
    TypeError
        If ``offset`` is no integer.
    IndexError
        If the last element is surely outside of the buffer.
    """
    offset = as_expr(offset)
    if as_int(offset) is None and not (
        is_scalar_expr(offset) and offset.ty.dtype.startswith(("int", "uint"))
    ):
        raise TypeError(f"an offset of {name} is {describe(offset)}, wanted an integer")
    shape, buffer = list(place.source.shape), place.source
    first: Any = 0
    for index, extent in zip(place.indices, shape, strict=True):
        first = first * extent + index
    first = simplify(first + offset)
    size: Any = 1
    for extent in shape:
        size *= extent
    begin, end = as_int(first), as_int(simplify(size))
    if begin is not None and end is not None and not 0 <= begin <= end - elements:
        raise IndexError(
            f"{name} touches elements {begin} to {begin + elements - 1} of {buffer.name}, which "
            f"has {end}; wanted them inside"
        )
    if as_int(offset) == 0:
        return place
    indices: list[Any] = []
    for extent in reversed(shape[1:]):
        indices.append(simplify(tirx.floormod(as_index(first), extent)))
        first = simplify(tirx.floordiv(as_index(first), extent))
    return tirx.BufferLoad(buffer, [first, *reversed(indices)])


def as_index(value: Any) -> ir.Expr:
    """Return an int as an expression."""
    return tirx.const(value, "int32") if isinstance(value, int) else value


def constant(name: str, word: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return an argument that has to be one of the constants ``allowed``.

    Raises
    ------
    ValueError
        In the name of the function ``name``, whose argument ``word`` it is.
    """
    found = value if isinstance(value, str) else as_int(value)
    if found not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise ValueError(
            f"{word} of {name} is {value!r}, wanted {'one of ' * (len(allowed) > 1)}{choices}"
        )
    return found


def flag(name: str, word: str, value: Any) -> bool:
    """Return the argument ``word`` of the function ``name`` as True or False: a bool, 0 or 1.

    Raises
    ------
    ValueError
        If it is neither.
    """
    found = value if isinstance(value, bool) else as_int(value)
    if found not in (0, 1):
        raise ValueError(f"{word} of {name} is {value!r}, wanted True or False")
    return bool(found)


__all__ = ["as_element", "check_scope", "constant", "flag", "offset_element"]
