"""Between threads and engines that copy: the fence, and groups of an engine's copies (sm_90)."""

from __future__ import annotations

from tilelang.language.ops import emit_device_op
from tilelang.language.scalars import as_int


def fence_proxy_async(tensors: bool = False) -> None:
    """Order this thread's accesses of shared memory before what engines (TMA, wgmma) do there after
    its next signal (PTX ISA, fence.proxy.async).

    The compiler places such fences itself. A program that knows a better place, as in a branch that
    is seldom taken, writes one there, and the compiler's is left out. Chips without such engines
    have nothing to order, and get none.

    Parameters
    ----------
    tensors
        True: accesses of tensors in global memory, too. On Hopper that waits until all writes of
        the thread have reached L2 (MEMBAR.ALL.GPU).

    Raises
    ------
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.fence_proxy_async(); T.mbarrier_arrive(full)``
    """
    emit_device_op("fence_proxy_async_all" if tensors else "fence_proxy_async", [])


def tma_store_arrive() -> None:
    """Make this thread's copies by TMA from shared memory since the last call a group (PTX ISA,
    cp.async.bulk.commit_group).

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.tma_store_arrive(); T.tma_store_wait(0)``
    """
    emit_device_op("tma_store_arrive", [])


def tma_store_wait(count: int = 0, read: bool = True) -> None:
    """Wait until at most ``count`` of this thread's groups of copies from shared memory are in
    flight (PTX ISA, cp.async.bulk.wait_group).

    Parameters
    ----------
    count
        Constant, 0 or more.
    read
        True: a copy whose source has been read counts as done, so that shared memory may be written
        again. False: global memory has to be written too.

    Raises
    ------
    ValueError
        Outside of a kernel; for another ``count``; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.tma_store_wait(1, read=True)``
    """
    groups = as_int(count)
    if groups is None or groups < 0:
        raise ValueError(f"count of T.tma_store_wait is {count!r}, wanted a constant, 0 or more")
    word = "true" if read else "false"
    emit_device_op("tma_store_wait", [groups, word])


__all__ = ["fence_proxy_async", "tma_store_arrive", "tma_store_wait"]
