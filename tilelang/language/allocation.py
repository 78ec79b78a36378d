"""Buffers of a kernel: shared memory, fragments, per-thread arrays and mutable scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.dtypes import TensorFloat32
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.effects import reads_memory
from tilelang.language.regions import store
from tilelang.language.scalars import as_int, describe, is_scalar_expr
from tilelang.language.tensors import Tensor
from tilelang.language.tracer import current_tracer
from tilelang.language.warp_groups import running_instances

_EXTENT_DTYPES = ("int32", "int64", "uint32", "int16", "uint16", "int8", "uint8")


def allocate(name: str, shape: Any, dtype: Any, scope: str, scopes: str) -> ir.Var:
    """Allocate for the function ``name``; ``scope`` has to be ``scopes`` or start with it."""
    tracer = current_tracer(name)
    kernel = tracer.kernel_scope(name)
    if scopes.startswith("shared") and running_instances() > 1:
        raise ValueError(
            f"{name} is in T.ws(.., each=True), whose warp groups would share what it allocates; "
            "allocate in front of it, with a place for each group"
        )
    if not isinstance(scope, str) or not (scope == scopes or scope.startswith(f"{scopes}.")):
        raise ValueError(
            f"scope of {name} is {scope!r}, wanted {scopes!r} or one that starts with it"
        )
    is_one = as_int(shape) is not None or is_scalar_expr(shape)
    if not is_one and not isinstance(shape, Sequence | ir.Array):
        raise TypeError(f"the shape of {name} is {describe(shape)}, wanted an int or several")
    extents = [shape] if is_one else list(shape)
    sizes = [_extent(e) for e in extents]
    if scope == "shared.dyn" and sizes and all(s is not None for s in sizes):
        for size in sizes:
            _check_known_at_launch(name, size)
    elif not sizes or any(s is None for s in sizes) or not all(isinstance(s, int) for s in sizes):
        raise ValueError(
            f"the shape of {name} is ({', '.join(map(str, extents))}), wanted positive constants; "
            "allocate the largest tile and copy what exists of it"
        )
    buffer = tir_builder.sblock_alloc_buffer(sizes, data_type(dtype), scope=scope)
    if isinstance(data_type(dtype), TensorFloat32):
        tracer.tensor_floats.add(buffer)
    tracer.own(buffer, kernel)
    tracer.add_unnamed(buffer)
    return buffer


def _extent(extent: Any) -> Any:
    """A positive int, an integer expression, or None for what is neither."""
    size = as_int(extent)
    if size is not None:
        return size if size > 0 else None
    is_integer = is_scalar_expr(extent) and str(extent.ty.dtype) in _EXTENT_DTYPES
    return extent if is_integer else None


def _check_known_at_launch(name: str, size: Any) -> None:
    if isinstance(size, int):
        return
    tracer = current_tracer(name)
    if not reads_memory(size) and not any(tracer.is_owned(v) for v in undefined_vars(size)):
        return
    raise ValueError(
        f"an extent of {name} is {size}, which the kernel computes; wanted constants, sizes and "
        "scalars of the call, which decide how much shared memory a launch has: compute it in "
        "front of T.Kernel, or allocate the largest tile and copy what exists of it"
    )


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> ir.Var:
    """Allocate memory that the threads of a block share; its content is undefined.

    Parameters
    ----------
    shape
        Positive int or several. An extent in ``shared.dyn`` may be an expression over sizes and
        scalars of the call: the call then computes the bytes, and refuses more than a block may
        have. Such a tile lies by rows; T.copy, T.fill, T.transpose, atomic operations and loops
        take it.
    dtype
        Data type of the elements; bool is allocated statically where the extents are constants.
    scope
        ``shared.dyn``, sized at launch, or ``shared``, sized at compilation.

    Raises
    ------
    ValueError, TypeError
        Outside of a kernel; if the shape is none, or depends on what the kernel computes; if there
        is no such dtype.

    Example
    -------
    ``A_shared = T.alloc_shared((128, 32), T.float16)``
    """
    extents = shape if isinstance(shape, Sequence | ir.Array) else [shape]
    is_constant = all(as_int(e) is not None for e in extents)
    if data_type(dtype) == "bool" and scope == "shared.dyn" and is_constant:
        scope = "shared"
    return allocate("T.alloc_shared", shape, dtype, scope, "shared")


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> ir.Var:
    """Allocate a tile that is spread over the registers of a block's threads; the compiler chooses
    how.

    Parameters and errors are those of ``alloc_shared``. With ``scope`` ``local`` it is
    ``alloc_local``.

    Example
    -------
    ``C_local = T.alloc_fragment((128, 128), T.float32)``
    """
    scopes = "local" if scope == "local" else "local.fragment"
    return allocate("T.alloc_fragment", shape, dtype, scope, scopes)


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> ir.Var:
    """Allocate an array of each thread, in registers if its indices are constants after unrolling.

    Parameters and errors are those of ``alloc_shared``.

    Example
    -------
    ``partial = T.alloc_local((4,), T.float32)``
    """
    return allocate("T.alloc_local", shape, dtype, scope, "local")


def alloc_buffer(shape: Any, dtype: Any = "float32", scope: str | None = None) -> ir.Var:
    """Allocate a buffer in the memory ``scope``: ``shared.dyn``, ``shared``, ``local.fragment``,
    ``local``, ``local.var``, ``shared.barrier`` (mbarriers, uint64, that the program initialises:
    ``ptx_init_barrier_thread_count``) or ``global``, which is ``alloc_global``.

    It is ``local`` by default; ``global`` in front of a kernel, where there is no other memory.
    Other parameters are those of ``alloc_shared``.

    Raises
    ------
    ValueError, TypeError
        For another ``scope``, mbarriers of another dtype; as ``alloc_shared``.

    Example
    -------
    ``T.alloc_buffer((128,), T.float16, scope="shared")``
    """
    scopes = [str(s) for s in get_function("target.UserScopes")() if s != "global"]
    if scope is None:
        scope = "local" if current_tracer("T.alloc_buffer").kernels else "global"
    if scope == "global":
        return alloc_global(shape, dtype)
    if scope not in scopes:
        raise ValueError(
            f"scope of T.alloc_buffer is {scope!r}, wanted one of {', '.join(scopes)} or global"
        )
    if scope == "shared.barrier" and data_type(dtype) != "uint64":
        raise ValueError(
            f"dtype of T.alloc_buffer is {dtype} in memory 'shared.barrier', wanted uint64, which "
            "mbarriers are"
        )
    return allocate("T.alloc_buffer", shape, dtype, scope, scope)


def alloc_global(shape: Any, dtype: Any, scope: str = "global") -> ir.Var:
    """Allocate a workspace in global memory that all blocks share, and all kernels that follow in
    the function.

    Each call of the compiled function allocates it on the device and frees it after its kernels;
    its content is undefined.

    Parameters
    ----------
    shape
        One dimension or several: ints, or expressions over sizes and scalars of the call.
    dtype
        Data type of the elements.
    scope
        ``global``.

    Raises
    ------
    ValueError, TypeError
        If the shape depends on the kernel's run, or is none; if there is no such dtype; for another
        scope.

    Example
    -------
    ``workspace = T.alloc_global((blocks, 128), T.float32)``
    """
    tracer = current_tracer("T.alloc_global")
    if scope != "global":
        raise ValueError(f"scope of T.alloc_global is {scope!r}, wanted 'global'")
    kind = Tensor(shape, dtype)
    for extent in kind.shape:
        inner = undefined_vars(extent) if isinstance(extent, ir.Expr) else ()
        if any(tracer.is_owned(var) for var in inner):
            raise ValueError(
                f"a dimension of T.alloc_global is {extent}, which the kernel computes; wanted "
                "sizes of the call: every block has the same workspace"
            )
    workspace = tracer.header.add_workspace(kind)
    tracer.add_unnamed(workspace)
    return workspace


def alloc_var(dtype: Any, *args: Any, init: Any = None, scope: str | None = None) -> ir.Var:
    """Allocate a mutable scalar of each thread: assigning to its name stores, reading the name
    loads.

    Takes ``(dtype)``, ``(dtype, init)``, ``(dtype, scope)`` where scope is a string, or ``(dtype,
    init, scope)``. ``init`` is stored at this point of the program.

    Raises
    ------
    TypeError
        If init or scope is given twice, there are more arguments, or the scope is not a string.

    Example
    -------
    ``count = T.alloc_var(T.int32, 0)``, then ``count += 1``
    """
    if len(args) > 2:
        raise TypeError(f"T.alloc_var found {1 + len(args)} positional arguments, wanted at most 3")
    positional: dict[str, Any] = {}
    if len(args) == 2:
        positional = {"init": args[0], "scope": args[1]}
    elif args:
        positional = {"scope" if isinstance(args[0], str) else "init": args[0]}
    for name, keyword in (("init", init), ("scope", scope)):
        if name in positional and keyword is not None:
            raise TypeError(
                f"T.alloc_var found {name} twice, by position and by keyword; give it once"
            )
    init = positional.get("init", init)
    scope = positional.get("scope", scope)
    if scope is not None and not isinstance(scope, str):
        raise TypeError(f"scope of T.alloc_var is {scope!r}, wanted a string such as 'local.var'")
    buffer = allocate("T.alloc_var", [1], dtype, scope or "local.var", "local.var")
    current_tracer("T.alloc_var").add_scalar(buffer)
    if init is not None:
        store(buffer, 0, init)
    return buffer
