"""`Layout`: from the indices of a tile to physical coordinates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, is_prim_expr

from tilelang._ffi import get_function
from tilelang._pickling import immutable
from tilelang.layout.arguments import as_int, found, of_class, positive, sequence

_MOST_INT32 = 2**31 - 1


def static_shape(shape: Sequence[Any]) -> list[int]:
    """Return the extents of a tile as ints.

    Raises
    ------
    TypeError, ValueError
        If there is no sequence; if one is not a positive constant: a layout is a finite function.
    """
    given = sequence(shape, "the shape of a layout")
    extents = [int(e.value) if isinstance(e, tirx.IntImm) else e for e in given]
    if not extents or any(not isinstance(e, int) or isinstance(e, bool) or e < 1 for e in extents):
        raise ValueError(
            f"the shape of a layout is ({', '.join(map(str, shape))}), wanted positive ints; make "
            "the tile's extents constants"
        )
    return extents


def tensor_shape(shape: Sequence[Any]) -> list[int | Expr]:
    """Return the extents of a tensor, as ints where they are constants.

    Raises
    ------
    TypeError, ValueError
        If there is no sequence; if one is neither a positive constant nor an integer expression.
    """
    given = sequence(shape, "the shape of a layout")
    extents = [int(e.value) if isinstance(e, tirx.IntImm) else e for e in given]
    if all(isinstance(e, int) for e in extents):
        return [*static_shape(extents)]
    for extent in extents:
        if not isinstance(extent, Expr) or not str(extent.ty.dtype).startswith("int"):
            static_shape([extent])
    return extents


def placeholders(rank: int) -> list[tvm.ir.Var]:
    """Return an index variable for each dimension."""
    return [tirx.Var(name, "int32") for name in _index_names(rank)]


def _index_names(rank: int) -> list[str]:
    return list("ijkl"[:rank]) if rank <= 4 else [f"i{d}" for d in range(rank)]


def _index_dtype(extent: int | Expr) -> str:
    if isinstance(extent, int):
        return "int32" if extent <= _MOST_INT32 else "int64"
    return "int64" if str(extent.ty.dtype) == "int64" else "int32"


def takes(fn: Any, count: int) -> bool:
    """Whether `fn` can be called with `count` arguments by position."""
    if not callable(fn):
        return False
    try:
        signature = inspect.signature(fn)
    except ValueError:  # a function of C, which does not say
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def as_index(value: Any, what: str) -> Expr:
    """Return an int or an integer expression as an expression; TypeError for anything else."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, Expr) and is_prim_expr(value):
        is_integer = str(value.ty.dtype).startswith(("int", "uint"))
    if not is_integer:
        raise TypeError(f"{what} is {found(value)}, wanted an integer expression of the indices")
    return tirx.const(value, "int32") if isinstance(value, int) else value


def indices_of(values: Any) -> list[Expr]:
    """Return the indices of an element as expressions."""
    given = sequence(values, "the index of an element")
    return [as_index(v, f"index {d}") for d, v in enumerate(given)]


@immutable
@tvm_ffi.register_object("tl.Layout")
class Layout(tvm_ffi.Object):
    """``Layout(shape, forward_fn)``: a function from indices to physical coordinates.

    Parameters
    ----------
    shape
        Extents of the indices, positive ints; those of a tensor may be symbols. Such a layout has
        no table: what asks for one, as an inverse, the text of a grid or equality, is refused.
    forward_fn
        Takes an index variable for each dimension; returns a coordinate or several.

    Raises
    ------
    ValueError, TypeError
        If an extent is neither a positive constant nor an integer symbol; if ``forward_fn`` does
        not take an index for each dimension; if a coordinate is not an integer expression.

    Example
    -------
    ``Layout((4, 4), lambda i, j: i * 4 + (j ^ i))``
    """

    def __init__(self, shape: Sequence[int], forward_fn: Callable[..., Any]):
        extents = tensor_shape(shape)
        names = _index_names(len(extents))
        variables = [
            tirx.Var(name, _index_dtype(extent))
            for name, extent in zip(names, extents, strict=True)
        ]
        if not takes(forward_fn, len(variables)):
            raise TypeError(
                f"forward_fn of Layout is {found(forward_fn)}, wanted a function that takes "
                f"{len(variables)} indices, one for each dimension"
            )
        index = forward_fn(*variables)
        coordinates = list(index) if isinstance(index, (list, tuple)) else [index]
        if not coordinates:
            raise ValueError("forward_fn of Layout returns no coordinate, wanted one or several")
        coordinates = [as_index(c, f"coordinate {d}") for d, c in enumerate(coordinates)]
        shape = [tirx.const(e, _index_dtype(e)) if isinstance(e, int) else e for e in extents]
        self.__init_handle_by_constructor__(get_function("Layout"), variables, shape, coordinates)

    def __str__(self) -> str:
        """The expressions and, for small tiles, the grid of their values."""
        return str(tvm_ffi.get_global_func("ffi.ReprPrint")(self))

    def get_input_shape(self) -> list[int | Expr]:
        """Extents of the indices: ints, but for symbols."""
        return tensor_shape(self.shape)

    def get_output_shape(self) -> list[int]:
        """Exact extents of the physical coordinates: the largest value of each plus one."""
        return list(get_function("LayoutOutputShape")(self))

    def get_forward_index(self) -> list[Expr]:
        """The physical coordinates as expressions of `get_forward_vars`; also the field `index`."""
        return list(self.index)

    def get_forward_vars(self) -> list[tvm.ir.Var]:
        """The placeholder variables of the indices."""
        return list(self.vars)

    def get_linearized_forward_index(self) -> Expr:
        """The row-major number of the physical coordinates in `get_output_shape`."""
        flat: Any = 0
        for coordinate, extent in zip(self.index, self.get_output_shape(), strict=True):
            flat = flat * extent + coordinate
        return tvm.sym.Analyzer().simplify(flat)

    def map_forward_index(self, indices: Sequence[Any]) -> list[Expr]:
        """The physical coordinates of one element. Raises `ValueError` for a wrong rank, and
        `TypeError` for an index that is no integer."""
        return list(get_function("LayoutMapIndex")(self, indices_of(indices)))

    def __call__(self, *indices: Any) -> list[Expr]:
        """The same as `map_forward_index`: ``layout(3, 5)``."""
        return self.map_forward_index(indices)

    def table(self) -> list[tuple[int, ...]]:
        """The physical coordinates of every element, in row-major order of the indices."""
        flat, width = list(get_function("LayoutTable")(self)), len(self.index)
        return [tuple(flat[k : k + width]) for k in range(0, len(flat), width)]

    def addresses(self) -> list[int]:
        """The place of every element, in row-major order of the indices: the row-major number of
        its coordinates, in elements."""
        return list(get_function("LayoutAddresses")(self))

    def contiguous_elements(self) -> int:
        """The widest power of two such that aligned groups of so many elements of a row lie at
        consecutive addresses, the first a multiple of the width."""
        return int(get_function("LayoutContiguousElements")(self))

    def inverse(self) -> Layout:
        """The layout from places to elements: its input shape is this one's output shape.

        A fragment's is from (thread, register) to the indices and, if there are several replicas,
        the replica's number.

        Raises
        ------
        ValueError
            If a place holds no element or two; if the inverse is not of the form sums and xors of
            digits times strides, in which swizzles and mixed-radix layouts are.

        Example
        -------
        ``layout.inverse()(*layout(3, 5))`` is ``[3, 5]``.
        """
        return get_function("LayoutInverse")(self)

    def repeat(self, dim: int, factor: int) -> Layout:
        """Make dimension `dim` `factor` times as long; the number of the repetition, index //
        extent, becomes a new leading coordinate.

        Raises `ValueError` if there is no such dimension, or `factor` is not positive; `TypeError`
        if they are no ints.
        """
        rank = len(self.shape)
        dim, factor = as_int(dim, "dim of repeat"), as_int(factor, "factor of repeat")
        if not -rank <= dim < rank or factor < 1:
            raise ValueError(
                f"repeat found dim={dim}, factor={factor}, wanted a dimension of {rank} and a "
                "positive factor"
            )
        return get_function("LayoutRepeat")(self, dim % rank, factor)

    def expand(self, leading_shape: Sequence[int]) -> Layout:
        """Put dimensions before the others that are kept as they are, such as the stages of a
        pipeline."""
        return get_function("LayoutExpand")(self, static_shape(leading_shape))

    def reshape(self, shape: Sequence[int], rescale_num: int = 1, rescale_den: int = 1) -> Layout:
        """See the same memory with another shape.

        Parameters
        ----------
        shape
            New extents; element k in row-major order stays element k.
        rescale_num, rescale_den
            Bits of an element before and after: ``(32, 8)`` sees each element as four, ``(8, 32)``
            four that lie side by side as one.

        Raises
        ------
        ValueError, TypeError
            If the sizes differ; if the parts of a wider element do not lie side by side; if
            ``shape`` is no sequence of ints or a number of bits is no positive int.

        Example
        -------
        ``Layout((8, 64), ...).reshape((8, 256), 32, 8)``
        """
        before, after = (
            positive(rescale_num, "rescale_num of reshape"),
            positive(rescale_den, "rescale_den of reshape"),
        )
        return get_function("LayoutReshape")(self, static_shape(shape), before, after)

    def is_equal(self, other: Layout) -> bool:
        """Whether both are the same function: same shape and same table. Raises `TypeError` for
        what is no layout."""
        of_class(other, Layout, "other of is_equal", "make one by T.Layout(shape, function)")
        return bool(get_function("LayoutIsEqual")(self, other))
