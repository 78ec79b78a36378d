"""Layouts as finite functions: where an element of a tile lives.

A `Layout` maps indices to physical coordinates, a `Fragment` maps them to a thread and a register.
Every question is answered from the table of the function (src/layout/layout.h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr

from tilelang._ffi import get_function


def _vars(rank: int) -> list[tvm.ir.Var]:
    return [tirx.Var(f"i{d}", "int32") for d in range(rank)]


@tvm_ffi.register_object("tl.Layout")
class Layout(tvm_ffi.Object):
    """``Layout(shape, forward_fn)``: `forward_fn` takes an index variable for each dimension and
    returns a physical coordinate or several.

    Example: ``Layout((4, 4), lambda i, j: i * 4 + (j ^ i))``
    """

    def __init__(self, shape: Sequence[int], forward_fn: Callable[..., Any]):
        variables = _vars(len(shape))
        index = forward_fn(*variables)
        coordinates = list(index) if isinstance(index, (list, tuple)) else [index]
        self.__init_handle_by_constructor__(
            get_function("Layout"), variables, list(shape), coordinates
        )

    def get_input_shape(self) -> list[int]:
        """Extents of the indices."""
        return [int(extent) for extent in self.shape]

    def get_output_shape(self) -> list[int]:
        """Exact extents of the physical coordinates: the largest value of each plus one."""
        return list(get_function("LayoutOutputShape")(self))

    def get_forward_index(self) -> list[Expr]:
        """The physical coordinates as expressions of `get_forward_vars`."""
        return list(self.index)

    def get_forward_vars(self) -> list[tvm.ir.Var]:
        """The placeholder variables of the indices."""
        return list(self.vars)

    def map_forward_index(self, indices: Sequence[Any]) -> list[Expr]:
        """The physical coordinates of one element. Raises `ValueError` for a wrong rank."""
        return list(get_function("LayoutMapIndex")(self, [tirx.convert(i) for i in indices]))

    def table(self) -> list[tuple[int, ...]]:
        """The physical coordinates of every element, in row-major order of the indices."""
        flat, width = list(get_function("LayoutTable")(self)), len(self.index)
        return [tuple(flat[k : k + width]) for k in range(0, len(flat), width)]

    def is_equal(self, other: Layout) -> bool:
        """Whether both are the same function."""
        return bool(get_function("LayoutIsEqual")(self, other))


@tvm_ffi.register_object("tl.Fragment")
class Fragment(Layout):
    """``Fragment(shape, forward_fn, replicate=1)``: `forward_fn` takes an index variable for each
    dimension, and the replica's number if `replicate` is above 1, and returns (thread, register).

    Each element is held by `replicate` threads.

    Example: ``Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))``
    """

    def __init__(self, shape: Sequence[int], forward_fn: Callable[..., Any], replicate: int = 1):
        variables, replica = _vars(len(shape)), tirx.Var("rep", "int32")
        arguments = [*variables, replica] if replicate > 1 else variables
        thread, register = forward_fn(*arguments)
        self.__init_handle_by_constructor__(
            get_function("Fragment"), variables, list(shape), register, thread, replica, replicate
        )

    def thread_table(self) -> list[int]:
        """The thread of every (element, replica), the replica fastest."""
        return list(get_function("FragmentThreadTable")(self))


def make_swizzled_layout(buffer: tvm.ir.Var) -> Layout:
    """Layout of a shared tile without bank conflicts for ldmatrix and 16-byte accesses.

    Rows are swizzled in spans of 128, 64 or 32 bytes, the widest that divides the columns (rows
    must be a multiple of 8); other shapes are padded.
    """
    bits = tvm.DataType(buffer.dtype).bits
    return get_function("MakeSwizzledLayout")([int(extent) for extent in buffer.shape], bits)


def make_gemm_fragment_8x8() -> Fragment:
    """The 8x8 tile that one register pair of a warp holds: thread 4 i + j / 2, register j % 2."""
    return get_function("MakeGemmFragment8x8")()


__all__ = ["Fragment", "Layout", "make_gemm_fragment_8x8", "make_swizzled_layout"]
