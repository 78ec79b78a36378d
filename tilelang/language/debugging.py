"""What a kernel tells its author: values as lines of text, and conditions that have to hold."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.allocation import alloc_shared
from tilelang.language.copies import copy
from tilelang.language.dtypes import dtype_of
from tilelang.language.launch import KernelLaunchFrame, enclosing_kernel
from tilelang.language.ops import intrinsic_call
from tilelang.language.scalars import (
    as_dtype,
    as_expr,
    as_int,
    describe,
    is_buffer,
    is_number,
    is_scalar_expr,
    unwrap,
)
from tilelang.language.tracer import current_tracer
from tilelang.language.warp_groups import running_groups
from tilelang.language.warps import TRACED_LANES

_WARP_GROUP = 128
_OF_THREAD = ("local", "local.var", "global")


def print(
    obj: Any = None, msg: str = "", warp_group_id: int | None = None, warp_id: int = 0
) -> None:
    """Print a value while the kernel runs.

    A scalar is printed by every thread, and so are the elements of global memory and of memory of
    a thread. The elements of a fragment or of shared memory are printed by one thread, the first
    of a warp. A line is ``msg='..' BlockIdx=(x, y, z), ThreadIdx=(x, y, z): dtype=float32
    value=1.5``; for an element ``buffer=A, index=3,`` stands before the dtype, with the index in
    row-major order.

    Parameters
    ----------
    obj
        A buffer, a scalar, or None for the message alone.
    msg
        What the line begins with; ``buffer<name, dtype>`` or ``expr<..>`` if empty.
    warp_group_id, warp_id
        The warp whose first thread prints a fragment or shared memory: ``warp_group_id * 4 +
        warp_id`` of the block. By default the first group that runs the statement: 0, or that of
        ``T.ws``.

    Raises
    ------
    ValueError
        For other objects and memories; if the block has no such warp, or it does not run the
        statement because of ``T.ws``; outside of a kernel.
    AssertionError
        If there is neither an object nor a message.

    Example
    -------
    ``T.print(C_local, msg="accumulators")``
    """
    kernel = enclosing_kernel("T.print")
    obj = as_expr(obj)
    if obj is None:
        assert msg, "T.print found neither an object nor a message, wanted one of them"
        tir_builder.evaluate(_call("print_message", kernel, msg, []))
    elif is_buffer(obj):
        _print_buffer(
            kernel, obj, msg or f"buffer<{obj.name}, {obj.dtype}>", warp_group_id, warp_id
        )
    elif is_scalar_expr(obj) or is_number(obj):
        value = as_dtype(obj, dtype_of(obj))
        tail = [ir.StringImm(str(value.ty.dtype)), value]
        tir_builder.evaluate(_call("print_value", kernel, msg or f"expr<{obj}>", tail))
    else:
        raise ValueError(f"T.print found {describe(obj)}, wanted a buffer, a scalar or a message")


def _call(name: str, kernel: KernelLaunchFrame, msg: str, tail: list[Any]) -> ir.Call:
    return intrinsic_call(name, "void", [ir.StringImm(msg), *kernel.blocks, *tail])


def _print_buffer(
    kernel: KernelLaunchFrame, buffer: ir.Var, msg: str, warp_group: int | None, warp: int
) -> None:
    scope = buffer.scope()
    if scope in _OF_THREAD:
        _print_elements(kernel, buffer, buffer, msg)
        return
    if scope not in ("local.fragment", "shared", "shared.dyn"):
        raise ValueError(
            f"T.print found {buffer.name} in memory {scope!r}, wanted a fragment, shared or global "
            "memory, or memory of a thread"
        )
    groups = running_groups()
    group = as_int(warp_group)
    if group is None:
        group = groups[0] if groups else 0
    first = group * _WARP_GROUP + (as_int(warp) or 0) * TRACED_LANES
    if not 0 <= first < kernel.num_threads:
        raise ValueError(
            f"warp_group_id={warp_group} and warp_id={warp} of T.print are thread {first}, wanted "
            f"one of the {kernel.num_threads} threads of the block"
        )
    if groups and first // _WARP_GROUP not in groups:
        raise ValueError(
            f"warp_group_id={warp_group} and warp_id={warp} of T.print are thread {first}, which "
            f"does not run the statement in T.ws; wanted one of the groups {groups}"
        )
    source = buffer
    if scope == "local.fragment":
        source = alloc_shared([as_int(e) for e in buffer.shape], str(buffer.dtype))
        current_tracer("T.print").name(f"{buffer.name}_printed", source)
        copy(buffer, source)
    with tir_builder.If(kernel.linear_thread_index() == first), tir_builder.Then():
        _print_elements(kernel, source, buffer, msg)


def _print_elements(kernel: KernelLaunchFrame, source: ir.Var, buffer: ir.Var, msg: str) -> None:
    shape = list(source.shape)

    def of_dimension(indices: list[Any], place: Any) -> None:
        if len(indices) < len(shape):
            extent = shape[len(indices)]
            with tir_builder.serial(0, extent) as i:
                of_dimension([*indices, i], place * extent + i)
            return
        value = tirx.BufferLoad(source, indices)
        tail = [
            ir.StringImm(buffer.name),
            as_dtype(place, "int32"),
            ir.StringImm(str(buffer.dtype)),
        ]
        tir_builder.evaluate(_call("print_element", kernel, msg, [*tail, value]))

    of_dimension([], 0)


def device_assert(condition: Any, msg: str = "", no_stack_info: bool = False) -> None:
    """Stop the kernel if a condition does not hold in a thread.

    On the GPU the thread prints ``Device assert failed: <msg>``, with the kernel's file and line,
    and traps, which the next synchronisation of the host reports; the emulator raises
    `RuntimeError` from the call. Without a text and a place the thread traps only: a call that
    prints has a stack frame and registers for its arguments, which a trap does not need.

    Parameters
    ----------
    condition
        A scalar; a Python value is decided while tracing.
    msg
        Text of the report.
    no_stack_info
        Leave out the kernel's file and line.

    Raises
    ------
    AssertionError
        If the condition is a Python value that is false.
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.device_assert(i < n, "index out of range")``
    """
    tracer = current_tracer("T.device_assert")
    condition = unwrap(condition)
    if not isinstance(condition, ir.Expr):
        assert condition, f"Device assert failed: {msg}"
        return
    tracer.kernel_scope("T.device_assert")
    if not is_scalar_expr(condition):
        raise ValueError(f"T.device_assert found {describe(condition)}, wanted a condition")
    if condition.ty.dtype != "bool":
        condition = condition != tirx.const(0, condition.ty.dtype)
    arguments = [condition]
    if msg or not no_stack_info:
        arguments.append(ir.StringImm(msg))
    if not no_stack_info:
        arguments.append(ir.StringImm(f"{tracer.span.source_name.name}:{tracer.span.line}"))
    tir_builder.evaluate(intrinsic_call("device_assert", "void", arguments))
