"""Parameters that are addresses, and the tensors at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.dtypes import dtype as data_type
from tilelang.language.scalars import as_dtype, as_expr, describe, is_scalar_expr
from tilelang.language.tensors import StridedTensor, Tensor
from tilelang.language.tracer import current_tracer

_SPLIT_LOOPS = ("parallel", "pipelined", "unrolled", "vectorized")


class ptr:
    """A parameter that is an address: a call passes an int or a tensor, of which nothing but the
    device is checked.

    The address is a multiple of 16 bytes. ``T.make_tensor`` or ``T.match_buffer`` say what is
    there. As the dtype of a ``T.Tensor`` it stands for a table of addresses.

    Parameters
    ----------
    dtype
        Data type of the elements there, if a tensor that is passed is to have it.
    storage_scope
        ``global``.
    is_size_var
        No effect: an address is no size.

    Raises
    ------
    ValueError
        If there is no such dtype or the memory is not global.

    Example
    -------
    ``def copy(src: T.ptr, n: T.int32): ...``
    """

    def __init__(
        self, dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False
    ):
        if storage_scope != "global":
            raise ValueError(
                f"storage_scope of T.ptr is {storage_scope!r}, wanted 'global': a call can pass no "
                "other memory"
            )
        self.dtype = None if dtype is None else data_type(dtype)

    def __repr__(self) -> str:
        return f"T.{self}"

    def __str__(self) -> str:
        return "ptr" if self.dtype is None else f"ptr({str(self.dtype)!r})"


handle = ptr


class Pointer:
    """A parameter of type ``T.ptr`` in a trace; the first tensor at it becomes the parameter."""

    def __init__(self, name: str, kind: ptr):
        self.name = name
        self.dtype = "handle" if kind.dtype is None else str(kind.dtype)
        self._tensor: ir.Var | None = None

    def __repr__(self) -> str:
        return f"the pointer {self.name}"

    def tensor(self, kind: Tensor) -> ir.Var:
        """Return a tensor at this address."""
        buffer = kind.as_buffer()
        if self._tensor is None:
            IRBuilder.name(self.name, buffer)
            self._tensor = buffer
            return buffer
        return declare(tirx.buffer_data(self._tensor), kind)

    def as_parameter(self) -> ir.Var:
        """Return the parameter of the program: a buffer, a handle if nothing is read or written
        there."""
        return tirx.Var(self.name, "handle") if self._tensor is None else self._tensor


def declare(data: ir.Expr, kind: Tensor, name: str | None = None) -> ir.Var:
    """Declare a buffer of ``kind`` at the address ``data`` in the kernel that is being traced.
    Without ``name`` it gets that of the variable that it is assigned to."""
    tracer = current_tracer("T.make_tensor")
    kernel = tracer.kernel_scope("a further tensor at a pointer")
    if kind.explicit_strides:
        buffer = tir_builder.decl_buffer(
            kind.shape, kind.dtype, data=data, strides=list(kind.explicit_strides)
        )
    else:
        buffer = tir_builder.decl_buffer(kind.shape, kind.dtype, data=data)
    tracer.own(buffer, kernel)
    if name is None:
        tracer.add_unnamed(buffer)
    else:
        IRBuilder.name(name, buffer)
    return buffer


def make_tensor(
    ptr: Any, shape: Any, dtype: Any = "float32", strides: Sequence[Any] | None = None
) -> ir.Var:
    """Return the tensor at an address.

    Parameters
    ----------
    ptr
        A parameter annotated ``T.ptr``, or an integer expression in a kernel: an address in global
        memory, a multiple of 16 bytes.
    shape, dtype, strides
        What is there, as for ``T.Tensor`` and ``T.StridedTensor``; contiguous without ``strides``.

    Raises
    ------
    TypeError
        If ``ptr`` is neither.
    ValueError
        If an address, or a second tensor at a pointer, is used outside of a kernel; if an address
        is used in a parallel, pipelined, unrolled or vectorised loop.

    Example
    -------
    ``A = T.make_tensor(A_ptr, (M, K), T.float16)``
    """
    kind = Tensor(shape, dtype) if strides is None else StridedTensor(shape, strides, dtype)
    current_tracer("T.make_tensor")
    if isinstance(ptr, Pointer):
        return ptr.tensor(kind)
    return at_address("T.make_tensor", ptr, kind)


def make_tensor_from_addr(
    addr: Any,
    shape: Any,
    dtype: Any = "float32",
    strides: Sequence[Any] | None = None,
    storage_scope: str = "global",
) -> ir.Var:
    """Return the tensor at an integer address, such as one read from a table of addresses.

    Parameters, except ``storage_scope``, which is ``global``, are those of ``make_tensor``.

    Raises
    ------
    ValueError, TypeError
        For another ``storage_scope``; as ``make_tensor``.

    Example
    -------
    ``A = T.make_tensor_from_addr(table[bx], (M, K), T.float16)``
    """
    if storage_scope != "global":
        raise ValueError(
            f"storage_scope of T.make_tensor_from_addr is {storage_scope!r}, wanted 'global'"
        )
    kind = Tensor(shape, dtype) if strides is None else StridedTensor(shape, strides, dtype)
    return at_address("T.make_tensor_from_addr", addr, kind)


def match_buffer(
    handle: Any,
    shape: Any,
    dtype: Any = "float32",
    strides: Sequence[Any] | None = None,
    scope: str = "global",
    align: int = -1,
) -> ir.Var:
    """Return the tensor at a parameter annotated ``T.ptr``, as ``make_tensor`` does.

    Parameters
    ----------
    align
        Bytes that the address is a multiple of: up to 16, which it always is; -1 says nothing.

    Raises
    ------
    TypeError
        If ``handle`` is something else.
    ValueError
        For another ``scope`` than ``global``, an ``align`` over 16; as ``make_tensor``.

    Example
    -------
    ``A = T.match_buffer(A_ptr, (M, K), T.float16, strides=(K, 1))``
    """
    if scope != "global":
        raise ValueError(f"scope of T.match_buffer is {scope!r}, wanted 'global'")
    if align not in (-1, 0, 1, 2, 4, 8, 16):
        raise ValueError(
            f"align of T.match_buffer is {align!r}, wanted a power of two up to 16 bytes; leave it "
            "out"
        )
    if not isinstance(handle, Pointer):
        raise TypeError(
            f"T.match_buffer found {describe(handle)}, wanted a parameter annotated T.ptr"
        )
    return make_tensor(handle, shape, dtype, strides)


def at_address(name: str, address: Any, kind: Tensor, label: str | None = None) -> ir.Var:
    """Return the tensor of ``kind`` at an integer address, for the function ``name``; ``label`` is
    what it is called."""
    tracer = current_tracer(name)
    address = as_expr(address)
    is_integer = is_scalar_expr(address) and address.ty.dtype.startswith(("int", "uint"))
    if not is_integer:
        raise TypeError(
            f"{name} found {describe(address)}, wanted a parameter annotated T.ptr or an integer "
            "expression"
        )
    scope = tracer.kernel_scope(name)
    inside = next((s for s in tracer.scopes[scope.depth :] if s.kind in _SPLIT_LOOPS), None)
    if inside is not None:
        raise ValueError(
            f"{name} is in the {inside.description}, which the compiler takes apart; put it before "
            "the loop, or make that a T.serial"
        )
    value = tracer.let(as_dtype(address, "int64"), "address")
    return declare(tirx.reinterpret("handle", value), kind, label)
