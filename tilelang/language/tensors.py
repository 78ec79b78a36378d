"""Annotations of parameters: tensors and symbolic dimensions.

In the signature of a function in eager style, a dimension or a stride may be left to the call:
``int`` is a compile-time constant, ``T.dyn`` a size of the run; ``typing.Any`` leaves the dtype.
Until `Tensor.resolve` has given it a value, such a place is *open*.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
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
        One dimension or several: ints of 0 or more, ``T.dynamic`` variables or integer expressions
        of them, which the sizes of a call determine: ``n * 2`` alone makes ``n`` half of what it
        is; in the signature of a function in eager style also ``int`` and ``T.dyn``.
    dtype
        Data type of the elements. ``T.ptr`` is a table of addresses (int64). In the signature of a
        function in eager style, ``typing.Any`` is that of the argument.
    data
        In a kernel, the pointer of another tensor, ``A.data``: the result is no parameter but a
        tensor at that memory, at most as large.
    scope
        Memory that holds it.

    Raises
    ------
    TypeError, ValueError
        If a dimension is not an integer or is negative; if there is no such dtype; if the last
        dimension of a dtype of 4 bits is odd, since two elements share a byte.

    Example
    -------
    ``A: T.Tensor((M, K), T.float16)``
    """

    def __new__(cls, *args: Any, **keywords: Any) -> Any:
        """Return the annotation, or the tensor at ``data``."""
        data = args[2] if len(args) > 2 else keywords.get("data")
        if cls is not Tensor or data is None:
            return super().__new__(cls)
        # Imported here because views are of tensors.
        from tilelang.language.views import tensor_at

        shape = args[0] if args else keywords["shape"]
        return tensor_at(
            data, shape, args[1] if len(args) > 1 else keywords.get("dtype", "float32")
        )

    def __init__(
        self, shape: Any, dtype: Any = "float32", data: Any = None, scope: str | None = None
    ):
        dims = list(shape) if isinstance(shape, Sequence | ir.Array) else [shape]
        if isinstance(shape, str) or not dims:
            raise TypeError(f"the shape of T.Tensor is {shape!r}, wanted one dimension or several")
        self.shape = tuple(_dimension(d) for d in dims)
        self.dtype: Any = dtype
        self.scope = scope or "global"
        if dtype is Any:
            return
        self.dtype = data_type(dtype)
        last = self.shape[-1]
        if self.dtype.bits == 4 and isinstance(last, int) and last % 2:
            raise ValueError(
                f"the last dimension of a T.Tensor of {self.dtype} is {last}, wanted an even "
                "number: two elements share a byte; pad it"
            )

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
        return self.describe("?")

    def describe(self, name: str) -> str:
        """Return the annotation as text for a parameter called ``name``: ``A_shape_0$`` is a
        dimension that is constant at compile time, ``K$dyn`` one of the run."""
        shape = [_place_text(d, f"{name}_shape_{i}") for i, d in enumerate(self.shape)]
        return f"T.Tensor(({', '.join(shape)}), {_dtype_text(self.dtype)})"

    def resolve(self, name: str, constants: Mapping[str, Any]) -> Tensor:
        """Return the type of the parameter called ``name`` with the open places that
        ``constants`` has, by the names of `open_places`; sizes of the run become variables."""
        shape = [_resolved(d, f"{name}_shape_{i}", constants) for i, d in enumerate(self.shape)]
        return Tensor(shape, self._resolved_dtype(name, constants), scope=self.scope)

    def _resolved_dtype(self, name: str, constants: Mapping[str, Any]) -> Any:
        return self.dtype if self.dtype is not Any else constants.get(f"{name}_dtype", Any)

    def open_places(self, name: str) -> dict[str, tuple[str, int]]:
        """Return the constants that an argument gives to the parameter ``name``: for each name the
        kind of place (``shape``, ``stride``, ``dtype``) and its dimension."""
        found = {f"{name}_shape_{i}": ("shape", i) for i, d in enumerate(self.shape) if d is int}
        return found | ({f"{name}_dtype": ("dtype", 0)} if self.dtype is Any else {})

    def variable_places(self) -> Iterator[tuple[Any, tuple[str, int]]]:
        """Yield each dimension or stride that is a variable, with its kind and dimension."""
        for kind, dims in (("shape", self.shape), ("stride", self.explicit_strides)):
            for i, value in enumerate(dims):
                if isinstance(value, ir.Var):
                    yield value, (kind, i)

    @property
    def explicit_strides(self) -> tuple[Any, ...]:
        """The strides that were given; none for a contiguous tensor."""
        return ()

    @classmethod
    def from_ptr(cls, ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> ir.Var:
        """Return the tensor at a pointer, as ``T.make_tensor`` does."""
        from tilelang.language.pointers import make_tensor

        return make_tensor(ptr, shape, dtype, strides)

    def as_buffer(self) -> ir.Var:
        """Return a new buffer of this type.

        Raises
        ------
        TypeError
            If a place is open.
        """
        if self.dtype is Any or any(
            d is int or d is dyn for d in (*self.shape, *self.explicit_strides)
        ):
            raise TypeError(
                f"{self!r} leaves a dimension or the dtype to the call, which only a parameter of "
                "a function under @tilelang.jit can; write a number, or T.dynamic('n')"
            )
        return tir_builder.buffer(
            self.shape, self.dtype, strides=list(self.strides), scope=self.scope, layout=None
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
        super().__init__(shape, dtype, scope=scope)
        given = list(strides) if isinstance(strides, Sequence | ir.Array) else [strides]
        if len(given) != len(self.shape):
            raise ValueError(
                f"T.StridedTensor found {len(given)} strides for {len(self.shape)} dimensions, "
                "wanted one for each"
            )
        self._strides = tuple(_dimension(s) for s in given)

    def describe(self, name: str) -> str:
        """Return the annotation as text, as `Tensor.describe` does."""
        shape, strides = (
            [_place_text(d, f"{name}_{kind}_{i}") for i, d in enumerate(dims)]
            for kind, dims in (("shape", self.shape), ("stride", self._strides))
        )
        return (
            f"T.StridedTensor(({', '.join(shape)}), ({', '.join(strides)}), "
            f"{_dtype_text(self.dtype)})"
        )

    def resolve(self, name: str, constants: Mapping[str, Any]) -> Tensor:
        """Return the type without open places, as `Tensor.resolve` does."""
        shape, strides = (
            [_resolved(d, f"{name}_{kind}_{i}", constants) for i, d in enumerate(dims)]
            for kind, dims in (("shape", self.shape), ("stride", self._strides))
        )
        return StridedTensor(shape, strides, self._resolved_dtype(name, constants), self.scope)

    def open_places(self, name: str) -> dict[str, tuple[str, int]]:
        """Return the constants that an argument gives, as `Tensor.open_places` does."""
        return super().open_places(name) | {
            f"{name}_stride_{i}": ("stride", i) for i, d in enumerate(self._strides) if d is int
        }

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

    @property
    def explicit_strides(self) -> tuple[Any, ...]:
        """The strides that were given."""
        return self._strides


class SymmetricTensor(Tensor):
    """A parameter that is a contiguous tensor of which each rank has one.

    Parameters
    ----------
    shape, dtype
        As for ``T.Tensor``; the same on all ranks, which the first call checks. A call passes what
        ``tilelang.distributed.empty`` or ``zeros`` has allocated.

    Raises
    ------
    TypeError, ValueError
        As for ``T.Tensor``; for elements of 4 bits.

    Example
    -------
    ``X: T.SymmetricTensor((M, N), T.float16)``
    """

    def __init__(self, shape: Any, dtype: Any = "float32"):
        super().__init__(shape, dtype)
        if dtype is not Any and self.dtype.bits < 8:
            raise ValueError(
                f"T.SymmetricTensor found {self.dtype}, wanted elements of whole bytes; pass them "
                "as uint8"
            )

    def describe(self, name: str) -> str:
        """Return the annotation as text, as `Tensor.describe` does."""
        return super().describe(name).replace("T.Tensor", "T.SymmetricTensor", 1)

    def resolve(self, name: str, constants: Any) -> Tensor:
        """Return the type without open places, as `Tensor.resolve` does."""
        resolved = super().resolve(name, constants)
        return SymmetricTensor(resolved.shape, resolved.dtype)


class SharedBuffer(Tensor):
    """Annotation of a macro's parameter that is a buffer of ``T.alloc_shared``.

    It is for readers and type checkers; a macro takes any argument.

    Example
    -------
    ``def load(A_shared: T.SharedBuffer((128, 32), T.float16)): ...``
    """

    def __init__(self, shape: Any, dtype: Any = "float32"):
        super().__init__(shape, dtype, scope="shared.dyn")


class FragmentBuffer(Tensor):
    """Annotation of a macro's parameter that is a buffer of ``T.alloc_fragment``; as
    ``SharedBuffer``.

    Example
    -------
    ``def scale(C_local: T.FragmentBuffer((128, 128), T.float32)): ...``
    """

    def __init__(self, shape: Any, dtype: Any = "float32"):
        super().__init__(shape, dtype, scope="local.fragment")


class LocalBuffer(Tensor):
    """Annotation of a macro's parameter that is a buffer of ``T.alloc_local``; as
    ``SharedBuffer``.

    Example
    -------
    ``def push(stack: T.LocalBuffer((8,), T.int32)): ...``
    """

    def __init__(self, shape: Any, dtype: Any = "float32"):
        super().__init__(shape, dtype, scope="local")


class Buffer(Tensor):
    """Deprecated name of ``T.Tensor``.

    Example
    -------
    ``A: T.Buffer((M, K), T.float16)``
    """

    def __init__(self, shape: Any, dtype: Any = "float32", scope: str | None = None):
        warnings.warn("T.Buffer is deprecated, use T.Tensor", DeprecationWarning, stacklevel=2)
        super().__init__(shape, dtype, scope=scope)


_TAKES_SIZES = "; a function that returns its program takes sizes, and its kernel takes tensors"


def _dimension(value: Any) -> Any:
    if value is int or value is dyn:
        return value
    constant = as_int(value)
    if constant is not None:
        if constant < 0:
            raise ValueError(f"a dimension of T.Tensor is {constant}, wanted an int of 0 or more")
        return constant
    value = as_expr(value)
    if is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint")):
        return value
    raise TypeError(
        f"a dimension of T.Tensor is {describe(value)}, wanted an int or a T.dynamic variable"
        + _TAKES_SIZES * hasattr(value, "shape")
    )


def _resolved(value: Any, name: str, constants: Mapping[str, Any]) -> Any:
    if value is int:
        return constants.get(name, int)
    return tirx.Var(name, "int32") if value is dyn else value


def _place_text(value: Any, name: str) -> str:
    if value is int:
        return f"{name}$"
    if value is dyn:
        return f"{name}$dyn"
    return f"{value.name}$dyn" if isinstance(value, ir.Var) else str(value)


def _dtype_text(value: Any) -> str:
    return "Any" if value is Any else repr(str(value))


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
    variables = tuple(tirx.Var(n, str(data_type(dtype))) for n in identifiers("T.dynamic", name))
    return variables[0] if len(variables) == 1 else variables


def identifiers(what: str, names: Any) -> list[str]:
    """Return the names in ``"M, N"`` or ``"M N"``, which ``what`` is given; ValueError where they
    are none."""
    found = [n for n in re.split(r"[,\s]+", names) if n] if isinstance(names, str) else []
    if not found or not all(n.isidentifier() for n in found):
        raise ValueError(f"{what} found the name {names!r}, wanted one identifier or several")
    return found


def symbolic(name: str, dtype: Any = "int32") -> Any:
    """Deprecated name of ``T.dynamic``.

    Example
    -------
    ``M = T.symbolic("M")``
    """
    warnings.warn("T.symbolic is deprecated, use T.dynamic", DeprecationWarning, stacklevel=2)
    return dynamic(name, dtype)


class _Dyn:
    """Sizes of the run, in annotations of functions in eager style.

    ``T.dyn`` is one that has no name, ``T.dyn["K"]`` one that is the same wherever it is named,
    ``T.dyn("K")`` is ``T.dynamic("K")``.

    Raises
    ------
    ValueError
        If a name is not an identifier.

    Example
    -------
    ``def gemm(A: T.Tensor[[int, T.dyn["K"]], T.float16]): ...``
    """

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def __call__(self, name: str, dtype: Any = "int32") -> Any:
        """Return a new symbolic dimension, or a tuple of them."""
        return dynamic(name, dtype)

    def __getitem__(self, name: str) -> Any:
        """Return the symbolic dimension of this name."""
        found = tuple(
            self._named.setdefault(n, tirx.Var(n, "int32")) for n in identifiers("T.dyn", name)
        )
        return found[0] if len(found) == 1 else found

    def __repr__(self) -> str:
        return "T.dyn"


dyn = _Dyn()
