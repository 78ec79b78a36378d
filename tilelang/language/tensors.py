"""Annotations of parameters: tensors and symbolic dimensions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.scalars import as_expr, as_int, describe, is_scalar_expr


class Tensor:
    """A parameter that is a contiguous row-major tensor in global memory.

    ``T.Tensor(shape, dtype)`` or ``T.Tensor[shape, dtype]``.

    Parameters
    ----------
    shape
        One dimension or several: positive ints, ``T.dynamic`` variables or integer expressions of
        them.
    dtype
        Data type of the elements.

    Raises
    ------
    TypeError, ValueError
        If a dimension is not an integer or not positive; if there is no such dtype; if the last
        dimension of a dtype of 4 bits is odd, since two elements share a byte.

    Example
    -------
    ``A: T.Tensor((M, K), T.float16)``
    """

    def __init__(self, shape: Any, dtype: Any = "float32", scope: str | None = None):
        dims = list(shape) if isinstance(shape, Sequence | ir.Array) else [shape]
        if isinstance(shape, str) or not dims:
            raise TypeError(f"the shape of T.Tensor is {shape!r}, wanted one dimension or several")
        self.shape = tuple(_dimension(d) for d in dims)
        self.dtype = data_type(dtype)
        last = self.shape[-1]
        if self.dtype.bits == 4 and isinstance(last, int) and last % 2:
            raise ValueError(
                f"the last dimension of a T.Tensor of {self.dtype} is {last}, wanted an even "
                "number: two elements share a byte; pad it"
            )
        self.scope = scope or "global"

    def __class_getitem__(cls, item: Any) -> Tensor:
        if not isinstance(item, tuple) or len(item) != 2:
            raise TypeError(f"T.Tensor[...] found {item!r}, wanted T.Tensor[shape, dtype]")
        return cls(*item)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Distance in elements between neighbours in each dimension."""
        strides: list[Any] = [1]
        for extent in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * extent)
        return tuple(strides)

    def __repr__(self) -> str:
        return f"T.Tensor(({', '.join(map(str, self.shape))}), {str(self.dtype)!r})"

    def as_buffer(self) -> ir.Var:
        """Return a new buffer of this type."""
        return tir_builder.buffer(
            self.shape, self.dtype, strides=list(self.strides), scope=self.scope
        )


class StridedTensor(Tensor):
    """A parameter that is a tensor in global memory with strides of its own.

    Parameters
    ----------
    shape, dtype
        As for ``Tensor``.
    strides
        Distance in elements between neighbours, one for each dimension: positive ints,
        ``T.dynamic`` variables or integer expressions of them.

    Raises
    ------
    ValueError
        If there is not one stride for each dimension.

    Example
    -------
    ``A: T.StridedTensor((M, N), (lda, 1), T.float16)``
    """

    def __init__(self, shape: Any, strides: Any, dtype: Any = "float32", scope: str | None = None):
        super().__init__(shape, dtype, scope)
        given = list(strides) if isinstance(strides, Sequence | ir.Array) else [strides]
        if len(given) != len(self.shape):
            raise ValueError(
                f"T.StridedTensor found {len(given)} strides for {len(self.shape)} dimensions, "
                "wanted one for each"
            )
        self._strides = tuple(_dimension(s) for s in given)

    def __class_getitem__(cls, item: Any) -> Tensor:
        if not isinstance(item, tuple) or len(item) != 3:
            raise TypeError(
                f"T.StridedTensor[...] found {item!r}, wanted T.StridedTensor[shape, strides, "
                "dtype]"
            )
        return cls(*item)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Distance in elements between neighbours in each dimension."""
        return self._strides


class Buffer(Tensor):
    """Deprecated name of ``T.Tensor``.

    Example
    -------
    ``A: T.Buffer((M, K), T.float16)``
    """

    def __init__(self, shape: Any, dtype: Any = "float32", scope: str | None = None):
        warnings.warn("T.Buffer is deprecated, use T.Tensor", DeprecationWarning, stacklevel=2)
        super().__init__(shape, dtype, scope)


def _dimension(value: Any) -> Any:
    constant = as_int(value)
    if constant is not None:
        if constant < 1:
            raise ValueError(f"a dimension of T.Tensor is {constant}, wanted a positive int")
        return constant
    value = as_expr(value)
    if is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint")):
        return value
    raise TypeError(
        f"a dimension of T.Tensor is {describe(value)}, wanted an int or a T.dynamic variable"
    )


def dynamic(name: str, dtype: Any = "int32") -> Any:
    """Return a symbolic dimension, or a tuple of them if ``name`` has several names.

    The same variable in several shapes is one size, which is checked at the call.

    Raises
    ------
    ValueError
        If a name is not an identifier.

    Example
    -------
    ``M, N = T.dynamic("M, N")``
    """
    names = [n for n in re.split(r"[,\s]+", name) if n]
    if not names or not all(n.isidentifier() for n in names):
        raise ValueError(f"T.dynamic found the name {name!r}, wanted one identifier or several")
    variables = tuple(tirx.Var(n, str(data_type(dtype))) for n in names)
    return variables[0] if len(variables) == 1 else variables
