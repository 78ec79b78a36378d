"""Functions of TVM's builder under its names, for what the language has under other ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.allocation import alloc_buffer
from tilelang.language.barriers import barrier_operand, mbarrier_arrive
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.element_address import as_element, constant, offset_element
from tilelang.language.intrinsics import address_of
from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.ops import device_call
from tilelang.language.scalars import as_int, describe
from tilelang.language.tracer import current_tracer
from tilelang.language.warps import TRACED_LANES, shfl_down, shfl_sync, shfl_up, shfl_xor

_MAX_ARRIVALS = 2**20 - 1


def type_annotation(dtype: Any) -> ir.Call:
    """Return a data type as an expression, the first argument of ``T.tvm_access_ptr``.

    Raises
    ------
    ValueError
        If there is no such type.

    Example
    -------
    ``T.type_annotation("float16")``
    """
    return tirx.type_annotation(str(data_type(dtype)))


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: int) -> ir.Call:
    """Return a pointer to pass to a function of the target's language, as ``T.access_ptr`` does.

    Parameters
    ----------
    ptype
        Data type of the elements, or ``T.type_annotation`` of it: that of the buffer.
    data
        A buffer, or its pointer (``A.data``).
    offset
        Elements, along the rows of the buffer.
    extent, rw_mask
        How many elements are accessed, and 1, 2 or 3 for reads, writes or both. No effect: what
        such a function does counts as all of the buffer.

    Raises
    ------
    TypeError, ValueError
        If ``data`` is no place in memory, or a fragment; for another type or mask.

    Example
    -------
    ``T.call_extern("void", "sort", T.tvm_access_ptr("float32", S.data, 0, 64, 3))``
    """
    name = "T.tvm_access_ptr"
    place = as_element(name, data, "a buffer or its pointer")
    wanted = ptype.ty if isinstance(ptype, ir.Call) else ptype
    constant(name, "rw_mask", rw_mask, (1, 2, 3))
    if str(data_type(wanted)) != str(place.source.dtype):
        raise ValueError(
            f"ptype of {name} is {data_type(wanted)}, wanted {place.source.dtype}, that of "
            f"{place.source.name}; T.view gives another name of another type"
        )
    if place.source.scope() == "local.fragment":
        raise ValueError(
            f"{name} found the fragment {place.source.name}, whose elements are in several "
            "threads; copy it to shared memory first with T.copy"
        )
    return address_of(offset_element(name, place, offset, 1))


def tvm_warp_shuffle(mask: Any, value: Any, warp_id: Any, width: int, warp_size: int) -> ir.Call:
    """Return the ``value`` of lane ``warp_id``: ``T.shfl_sync(value, warp_id, width, mask)``.

    Parameters
    ----------
    warp_size
        32.

    Raises
    ------
    TypeError, ValueError
        As ``T.shfl_sync``; for another ``warp_size``.

    Example
    -------
    ``first = T.tvm_warp_shuffle(0xFFFFFFFF, x, 0, 32, 32)``
    """
    constant("T.tvm_warp_shuffle", "warp_size", warp_size, (TRACED_LANES,))
    return shfl_sync(value, warp_id, width, mask)


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: int, warp_size: int) -> ir.Call:
    """Return the value of the lane ``offset`` below: ``T.shfl_up(value, offset, width, mask)``.

    Raises
    ------
    TypeError, ValueError
        As ``T.shfl_up``; for a ``warp_size`` other than 32.

    Example
    -------
    ``before = T.tvm_warp_shuffle_up(0xFFFFFFFF, x, 1, 32, 32)``
    """
    constant("T.tvm_warp_shuffle_up", "warp_size", warp_size, (TRACED_LANES,))
    return shfl_up(value, offset, width, mask)


def tvm_warp_shuffle_down(
    mask: Any, value: Any, offset: Any, width: int, warp_size: int
) -> ir.Call:
    """Return the value of the lane ``offset`` above: ``T.shfl_down(value, offset, width, mask)``.

    Raises
    ------
    TypeError, ValueError
        As ``T.shfl_down``; for a ``warp_size`` other than 32.

    Example
    -------
    ``after = T.tvm_warp_shuffle_down(0xFFFFFFFF, x, 1, 32, 32)``
    """
    constant("T.tvm_warp_shuffle_down", "warp_size", warp_size, (TRACED_LANES,))
    return shfl_down(value, offset, width, mask)


def tvm_warp_shuffle_xor(
    mask: Any, value: Any, lane_mask: Any, width: int, warp_size: int
) -> ir.Call:
    """Return the value of the lane whose number differs in the bits ``lane_mask``:
    ``T.shfl_xor(value, lane_mask, width, mask)``.

    Raises
    ------
    TypeError, ValueError
        As ``T.shfl_xor``; for a ``warp_size`` other than 32.

    Example
    -------
    ``other = T.tvm_warp_shuffle_xor(0xFFFFFFFF, x, 16, 32, 32)``
    """
    constant("T.tvm_warp_shuffle_xor", "warp_size", warp_size, (TRACED_LANES,))
    return shfl_xor(value, lane_mask, width, mask)


def ptx_init_barrier_thread_count(barrier: Any, thread_count: int) -> None:
    """Initialise an mbarrier, by the thread that gets here (PTX ISA, mbarrier.init).

    It is one of ``T.alloc_buffer((n,), T.uint64, scope="shared.barrier")``, which nobody
    initialises; ``T.ptx_fence_barrier_init`` and a barrier of the block come before others use it.

    Parameters
    ----------
    barrier
        A buffer of one mbarrier, or an element of a buffer of them.
    thread_count
        Arrivals that each phase needs, 1 to 2^20 - 1.

    Raises
    ------
    TypeError
        If ``barrier`` is no mbarrier.
    ValueError
        Outside of a kernel; for another count; for mbarriers of ``T.alloc_barrier``, which are
        initialised once already.

    Example
    -------
    ``if tx == 0: T.ptx_init_barrier_thread_count(bar[0], 128)``
    """
    name = "T.ptx_init_barrier_thread_count"
    current_tracer(name).kernel_scope(name)
    pointer = barrier_operand(name, barrier)
    kernel = KernelLaunchFrame.Current()
    assert kernel is not None
    buffer = pointer.args[0].source
    if buffer in kernel.barriers:
        raise ValueError(
            f"{name} found {buffer.name} of T.alloc_barrier, which is initialised when the kernel "
            "begins, wanted an mbarrier of T.alloc_buffer(.., scope='shared.barrier'); leave it out"
        )
    count = as_int(thread_count)
    if count is None or not 1 <= count <= _MAX_ARRIVALS:
        raise ValueError(
            f"thread_count of {name} is {thread_count!r}, wanted a constant 1 to {_MAX_ARRIVALS}"
        )
    tir_builder.evaluate(device_call("mbarrier_init", [pointer, count]))


def ptx_arrive_barrier(barrier: Any) -> None:
    """Arrive once at an mbarrier: ``T.mbarrier_arrive(barrier)``.

    Example
    -------
    ``T.ptx_arrive_barrier(bar[0])``
    """
    mbarrier_arrive(barrier)


def ptx_fence_barrier_init() -> None:
    """Order this thread's initialisations of mbarriers before what engines and other blocks of the
    cluster do with them (PTX ISA, fence.mbarrier_init).

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.ptx_fence_barrier_init(); T.sync_threads()``
    """
    name = "T.ptx_fence_barrier_init"
    current_tracer(name).kernel_scope(name)
    tir_builder.evaluate(device_call("fence_barrier_init", []))


def thread_return() -> None:
    """Let this thread leave the kernel.

    The others go on without it, so that they neither meet it at a barrier of the block nor share
    the work of an operator on tiles with it. Where all threads of a block leave together nothing
    is missing.

    Raises
    ------
    ValueError
        Outside of a kernel. When it is compiled: in a T.Parallel loop; before an operator on tiles,
        a barrier, or an access of shared memory that needs one, unless all threads of the block
        leave, or none of those that meet there.

    Example
    -------
    ``if tx >= n: T.thread_return()`` before code of single threads
    """
    current_tracer("T.thread_return").kernel_scope("T.thread_return")
    tir_builder.evaluate(tirx.op.thread_return())


def sblock_attr(attributes: Mapping[str, Any]) -> None:
    """Annotate the innermost ``T.sblock``, or the kernel's own block: what passes over the program
    find there.

    Raises
    ------
    TypeError
        If it is no mapping from names.
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.sblock_attr({"note": "update"})`` in ``with T.sblock("update"):``
    """
    current_tracer("T.sblock_attr").kernel_scope("T.sblock_attr")
    if not isinstance(attributes, Mapping) or not all(isinstance(k, str) for k in attributes):
        raise TypeError(f"T.sblock_attr found {describe(attributes)}, wanted a dict from names")
    tir_builder.sblock_attr(dict(attributes))


def sblock_alloc_buffer(shape: Any, dtype: Any = "float32", scope: str = "local") -> ir.Var:
    """Allocate a buffer in the memory ``scope``: ``T.alloc_buffer``.

    Raises
    ------
    ValueError, TypeError
        As ``T.alloc_buffer``.

    Example
    -------
    ``T.sblock_alloc_buffer((128,), dtype=T.float16, scope="shared.dyn")``
    """
    return alloc_buffer(shape, dtype, scope)


def target(kind: Any) -> tvm.target.Target:
    """Return a target of TVM, for ``T.func_attr({"target": ..})``.

    Parameters
    ----------
    kind
        A dict such as ``{"kind": "cuda", "arch": "sm_90a"}``, or a name.

    Raises
    ------
    ValueError
        If TVM has no such target.

    Example
    -------
    ``T.target({"kind": "cuda", "arch": "sm_90a"})``
    """
    return tvm.target.Target(kind)


__all__ = [
    "ptx_arrive_barrier",
    "ptx_fence_barrier_init",
    "ptx_init_barrier_thread_count",
    "sblock_alloc_buffer",
    "sblock_attr",
    "target",
    "thread_return",
    "tvm_access_ptr",
    "tvm_warp_shuffle",
    "tvm_warp_shuffle_down",
    "tvm_warp_shuffle_up",
    "tvm_warp_shuffle_xor",
    "type_annotation",
]
