"""Other names of a buffer's memory: ``T.reshape`` and ``T.view``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import TensorFloat32
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.element_address import as_element
from tilelang.language.regions import simplify
from tilelang.language.scalars import as_int, describe, is_buffer
from tilelang.language.tracer import current_tracer


def reshape(buf: Any, shape: Any) -> ir.Var:
    """Return the elements of ``buf``, in row-major order, under another shape.

    Nothing is copied: both names stand for the same memory, whatever layout it has.

    Parameters
    ----------
    buf
        A whole buffer of any memory; a global one is contiguous.
    shape
        One extent or several, with as many elements.

    Raises
    ------
    AssertionError
        If the number of bits differs.
    ValueError
        Outside of a kernel; if ``buf`` has strides of its own; if an extent of on-chip memory is
        not constant, or an extent is a value of the kernel.
    TypeError
        If ``buf`` is not a buffer.

    Example
    -------
    ``rows = T.reshape(A_shared, (64, 2, 32))``
    """
    return _view("T.reshape", buf, shape, None)


def view(
    buf: Any, shape: Any = None, dtype: Any = None, strides: Sequence[Any] | None = None
) -> ir.Var:
    """Return the bits of ``buf``, in row-major order, under another shape, dtype or both.

    Without ``shape``, the last dimension changes with the size of the elements. Otherwise as
    ``reshape``; where the layout of a shared buffer or fragment scatters the elements that make up
    a wider one, compilation fails with ``ValueError``.

    With ``strides``, the distance in elements of the view between neighbours in each of its
    dimensions, ``buf`` is global, and the view may leave elements out; ``ValueError`` where it is
    not certain to stay in ``buf``.

    Example
    -------
    ``words = T.view(A_shared, dtype=T.uint32)``; ``At = T.view(A, (K, M), strides=(1, K))``
    """
    return _view("T.view", buf, shape, dtype, strides)


def tensor_at(data: Any, shape: Any, dtype: Any) -> ir.Var:
    """Return the tensor of ``shape`` and ``dtype`` at the memory that ``data`` points to, for
    ``T.Tensor``.

    Raises
    ------
    TypeError
        If ``data`` is not the pointer of a buffer.
    ValueError
        If it is surely larger than the buffer; as ``view``.
    """
    name = "T.Tensor"
    if not isinstance(data, ir.Expr) or as_int(data) is not None:
        raise TypeError(
            f"data of {name} is {describe(data)}, wanted the pointer of a tensor, A.data"
        )
    place = as_element(name, data, "the pointer of a tensor, A.data")
    if any(as_int(index) != 0 for index in place.indices):
        raise TypeError(f"data of {name} is {describe(data)}, wanted a whole tensor, A.data")
    return _view(name, place.source, shape, dtype, exact=place.source.scope() == "local.fragment")


def _view(
    name: str,
    buf: Any,
    shape: Any,
    dtype: Any,
    strides: Sequence[Any] | None = None,
    exact: bool = True,
) -> ir.Var:
    tracer = current_tracer(name)
    kernel = tracer.kernel_scope(name)
    if not is_buffer(buf) or tracer.is_scalar_buffer(buf):
        raise TypeError(f"{name} found {describe(buf)}, wanted a whole buffer")
    source, target = data_type(buf.dtype), data_type(buf.dtype if dtype is None else dtype)
    narrow, wide = (t.bits * t.lanes for t in (source, target))
    if shape is None:
        last = buf.shape[-1] * narrow
        shape = [*buf.shape[:-1], simplify(tirx.floordiv(last, wide))]
    extents = list(shape) if isinstance(shape, Sequence | ir.Array) else [shape]
    found, wanted = _Size.of(extents, wide), _Size.of(buf.shape, narrow)
    if strides is not None:
        _check_strides(name, buf, extents, strides, wanted, wide)
    elif not exact:
        beyond = as_int(found.minus(wanted))
        if beyond is not None and beyond > 0:
            raise ValueError(
                f"{name} found {found} bits as {target} of shape ({', '.join(map(str, extents))}), "
                f"wanted at most {wanted}, as many as {describe(buf)} has"
            )
    elif found.minus(wanted) != 0:
        raise AssertionError(
            f"T.reshape/view shape check failed: found {found} bits as {target} of shape "
            f"({', '.join(map(str, extents))}), wanted {wanted}, as many as {describe(buf)} has"
        )
    _check_extents(name, tracer, buf, extents)
    _check_contiguous(name, buf)
    alias = tir_builder.decl_buffer(
        [simplify(e) for e in extents],
        target,
        data=tirx.buffer_data(buf),
        strides=None if strides is None else list(strides),
        scope=buf.scope(),
    )
    if isinstance(target, TensorFloat32) or (dtype is None and buf in tracer.tensor_floats):
        tracer.tensor_floats.add(alias)
    tracer.own(alias, kernel)
    tracer.add_unnamed(alias)
    tracer.memory[alias] = tracer.memory.get(buf, buf)
    return alias


def _check_strides(
    name: str,
    buf: ir.Var,
    extents: Sequence[Any],
    strides: Sequence[Any],
    size: _Size,
    element: int,
) -> None:
    """Refuse strides with which a view is not certain to stay in ``buf``, which has ``size``."""
    if buf.scope() != "global":
        raise ValueError(
            f"{name} with strides found {describe(buf)} in {buf.scope()}, wanted global memory"
        )
    if len(strides) != len(extents):
        raise ValueError(
            f"{name} found {len(strides)} strides for {len(extents)} dimensions, wanted one for "
            "each"
        )
    last: Any = 0
    for extent, stride in zip(extents, strides, strict=True):
        last = last + (_plain(extent) - 1) * _plain(stride)
    left = size.minus(_Size.of([last + 1], element))
    positive = all(not isinstance(s, int) or s > 0 for s in map(simplify, strides))
    if not (isinstance(left, int) and left >= 0 and positive):
        raise ValueError(
            f"{name} found the shape ({', '.join(map(str, extents))}) with strides "
            f"({', '.join(map(str, strides))}), which is not certain to stay in {describe(buf)}; "
            "wanted positive strides with which the last element is known to be in it"
        )


@dataclass(frozen=True)
class _Size:
    """So many bits: a number times what the call decides. A tensor whose elements 32 bits count may
    have more bits than that, so the number is one of Python's."""

    number: int
    rest: Any

    @classmethod
    def of(cls, extents: Sequence[Any], element: int) -> _Size:
        constants = [as_int(extent) for extent in extents]
        number = element * math.prod(c for c in constants if c is not None)
        rest = [e for e, c in zip(extents, constants, strict=True) if c is None]
        return cls(number, simplify(math.prod(rest)) if rest else 1)

    def minus(self, other: _Size) -> Any:
        """The difference in units that divide both: a number, or an expression if the call decides
        about it."""
        unit = math.gcd(self.number, other.number) or 1
        a, b = self.number // unit, other.number // unit
        if isinstance(self.rest, int) and isinstance(other.rest, int):
            return a * self.rest - b * other.rest
        return simplify(a * self.rest - b * other.rest)

    def __str__(self) -> str:
        return str(self.number) if isinstance(self.rest, int) else f"{self.number} * ({self.rest})"


def _plain(value: Any) -> Any:
    constant = as_int(value)
    return value if constant is None else constant


def _check_extents(name: str, tracer: Any, buf: ir.Var, extents: Sequence[Any]) -> None:
    for extent in extents:
        value = simplify(extent)
        if isinstance(value, int):
            continue
        if buf.scope() != "global":
            raise ValueError(
                f"an extent of {name} is {extent}, wanted constants for memory of the chip"
            )
        for variable in undefined_vars(value):
            if tracer.is_owned(variable):
                raise ValueError(
                    f"an extent of {name} is {extent}, which {variable.name} makes a value of the "
                    "kernel's run; wanted constants and symbolic dimensions"
                )


def _check_contiguous(name: str, buf: ir.Var) -> None:
    stride: Any = 1
    for extent, found in zip(reversed(buf.shape), reversed(buf.strides), strict=False):
        if simplify(found - stride) != 0:
            raise ValueError(
                f"{name} found {describe(buf)} with strides "
                f"({', '.join(map(str, buf.strides))}), wanted a contiguous row-major tensor"
            )
        stride = _plain(stride) * _plain(extent)
