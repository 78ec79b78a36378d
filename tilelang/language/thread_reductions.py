"""``T.tvm_thread_allreduce``: TVM's reduction over threads of a block, with any operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.allocation import alloc_local, alloc_shared
from tilelang.language.launch import KernelLaunchFrame, enclosing_kernel
from tilelang.language.regions import store, store_element
from tilelang.language.scalars import as_dtype, as_int, describe
from tilelang.language.tracer import Frame, Tracer, current_tracer
from tilelang.language.warps import TRACED_LANES, shfl_xor


class Reducer:
    """What ``comm_reducer`` returns: an operation and its identity."""

    def __init__(self, combine: Callable[[Any, Any], Any], identity: Any):
        self.combine = combine
        self.identity = identity


class ReduceScope(Frame):
    """The statements in which ``tvm_thread_allreduce`` combines with ``reducer``."""

    def __init__(self, reducer: Any):
        if not isinstance(reducer, Reducer):
            raise TypeError(
                f"T.attr of reduce_scope found {describe(reducer)}, wanted T.comm_reducer(..)"
            )
        self.reducer = reducer

    def open(self, tracer: Tracer) -> None:
        """Enter; the frame is in the trace's scopes."""

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return none: nothing of it is in the program."""
        return []


def comm_reducer(combine: Callable[[Any, Any], Any], identity: Sequence[Any]) -> Reducer:
    """Return an operation for ``tvm_thread_allreduce``.

    Parameters
    ----------
    combine
        An associative and commutative function of two scalars.
    identity
        A list of one scalar, with which ``combine`` gives the other one.

    Raises
    ------
    ValueError
        If there is more than one: a reduction of several values at once.

    Example
    -------
    ``T.comm_reducer(lambda x, y: x + y, [T.float32(0)])``
    """
    values = list(identity) if isinstance(identity, list | tuple) else [identity]
    if len(values) != 1:
        raise ValueError(
            f"T.comm_reducer found {len(values)} identities, wanted one; reduce values one by one"
        )
    return Reducer(combine, values[0])


def tvm_thread_allreduce(size: Any, *arguments: Any, dtype: str = "handle") -> int:
    """Combine a value of each thread over threads of the block; all threads have to call it.

    It stands in ``with T.attr(T.comm_reducer(..), "reduce_scope", ..)``, which says how. In warps
    it takes shuffles, else shared memory.

    Parameters
    ----------
    size
        1: how many values are combined.
    arguments
        The value; a condition, without which the identity takes its place; the element that gets
        the result, in each thread; and the thread indices that are combined over, such as
        ``T.get_thread_binding(0)``.
    dtype
        ``handle``.

    Returns
    -------
    0, for ``T.evaluate``.

    Raises
    ------
    ValueError
        Outside of a kernel or of a ``reduce_scope``; for other arguments.

    Example
    -------
    ``T.evaluate(T.tvm_thread_allreduce(T.uint32(1), x, True, total[0], tx, dtype="handle"))``
    """
    name = "T.tvm_thread_allreduce"
    tracer = current_tracer(name)
    kernel = enclosing_kernel(name)
    scopes = [s.frame for s in tracer.scopes if isinstance(s.frame, ReduceScope)]
    if not scopes:
        raise ValueError(
            f'{name} is outside of `with T.attr(T.comm_reducer(..), "reduce_scope", ..)`, which '
            "says how values are combined; put it there"
        )
    if as_int(size) != 1 or len(arguments) < 4 or not isinstance(arguments[2], ir.TensorLoad):
        raise ValueError(
            f"{name} found {len(arguments)} arguments for {size} values, wanted 1 value, a "
            "condition, an element for the result, and thread indices; reduce values one by one"
        )
    value, condition, result, *threads = arguments
    dims = [d for d in range(3) if any(kernel.threads[d].same_as(t) for t in threads)]
    if len(dims) != len(threads):
        raise ValueError(
            f"{name} found {', '.join(map(str, threads))}, wanted indices of threads; "
            "T.get_thread_binding(0) is one"
        )
    kind = str(result.source.dtype)
    reducer = scopes[-1].reducer
    own = tirx.if_then_else(
        as_dtype(condition, "bool"), as_dtype(value, kind), as_dtype(reducer.identity, kind)
    )
    extent = kernel.get_thread_extent(0)
    fits = extent <= TRACED_LANES and extent & (extent - 1) == 0
    in_warp = fits and kernel.num_threads % TRACED_LANES == 0
    reduce = _by_shuffles if dims == [0] and in_warp else _in_shared_memory
    store_element(result, reduce(kernel, dims, own, reducer.combine, kind))
    return 0


def _by_shuffles(
    kernel: KernelLaunchFrame, dims: list[int], own: Any, combine: Any, kind: str
) -> Any:
    total = alloc_local((1,), kind)
    IRBuilder.name("partial", total)
    store(total, 0, own)
    extent = kernel.get_thread_extent(0)
    distance = extent // 2
    while distance:
        mine = tirx.BufferLoad(total, [0])
        store(total, 0, as_dtype(combine(mine, shfl_xor(mine, distance, extent)), kind))
        distance //= 2
    return tirx.BufferLoad(total, [0])


def _in_shared_memory(
    kernel: KernelLaunchFrame, dims: list[int], own: Any, combine: Any, kind: str
) -> Any:
    """The values of the threads that are combined are halved until one is left."""
    values = alloc_shared((kernel.num_threads,), kind)
    IRBuilder.name("partials", values)
    rank: Any = 0  # among the threads that are combined
    left: Any = 0  # of the thread among the others
    count = 1
    for dim in (2, 1, 0):
        extent, index = kernel.get_thread_extent(dim), kernel.threads[dim]
        if dim in dims:
            rank, count = rank * extent + index, count * extent
        else:
            left = left * extent + index
    first = left * count
    store(values, first + rank, own)
    while count > 1:
        half = (count + 1) // 2
        with tir_builder.If(rank + half < count), tir_builder.Then():
            mine, other = (tirx.BufferLoad(values, [first + rank + d]) for d in (0, half))
            store(values, first + rank, as_dtype(combine(mine, other), kind))
        count = half
    return tirx.BufferLoad(values, [first])


__all__ = ["comm_reducer", "tvm_thread_allreduce"]
