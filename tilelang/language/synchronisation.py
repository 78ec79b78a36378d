"""Barriers, and which thread of its warp and block this one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.op import tvm_storage_sync
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.launch import enclosing_kernel
from tilelang.language.ops import device_call, emit_device_op
from tilelang.language.scalars import as_int
from tilelang.language.warp_groups import running_groups, running_instances
from tilelang.language.warps import TRACED_LANES

_WARPS_PER_GROUP = 4
_ALL_LANES = 0xFFFFFFFF
_BARRIERS = 16


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """Wait for the other threads of the block, and order the accesses of memory by all of them.

    The compiler places the barriers that shared memory needs by itself; this one is for what it
    cannot see, such as functions called with ``T.call_extern``.

    Parameters
    ----------
    barrier_id
        One of the block's barriers, 1 to 15 (PTX ISA, ``bar.sync``), for the threads that run the
        statement. Without it, or with 0, all threads of the block have to.
    arrive_count
        Number of threads that meet, a multiple of 32; by default all threads of the block, in
        ``T.ws`` those that run its body.

    Raises
    ------
    ValueError
        Outside of a kernel; for numbers that the hardware does not have.

    Example
    -------
    ``if tx < 64: T.sync_threads(4, 64)``
    """
    kernel = enclosing_kernel("T.sync_threads")
    barrier = 0 if barrier_id is None else as_int(barrier_id)
    threads = as_int(arrive_count)
    if arrive_count is None:
        groups = running_groups() if barrier else None
        threads = len(groups) * TRACED_LANES * _WARPS_PER_GROUP if groups else kernel.num_threads
    if barrier is None or not 0 <= barrier < _BARRIERS:
        raise ValueError(
            f"barrier_id of T.sync_threads is {barrier_id!r}, wanted an int from 0 to "
            f"{_BARRIERS - 1}"
        )
    if barrier == 0:
        if threads != kernel.num_threads:
            raise ValueError(
                f"arrive_count of T.sync_threads is {threads!r} at barrier 0, which is that of all "
                f"{kernel.num_threads} threads of the block; give a barrier_id from 1 to "
                f"{_BARRIERS - 1}"
            )
        tir_builder.evaluate(tvm_storage_sync("shared"))
        return
    if threads is None or threads % TRACED_LANES != 0 or not 0 < threads <= kernel.num_threads:
        raise ValueError(
            f"arrive_count of T.sync_threads is {threads!r}, wanted a multiple of "
            f"{TRACED_LANES}, at most the {kernel.num_threads} threads of the block"
        )
    _check_instances("T.sync_threads", barrier)
    tir_builder.evaluate(device_call("sync_threads_partial", [barrier, threads]))


def _check_instances(name: str, barrier: int) -> None:
    instances = running_instances()
    if barrier + instances > _BARRIERS:
        raise ValueError(
            f"barrier_id of {name} is {barrier} in T.ws(.., each=True) of {instances} warp groups, "
            f"whose barriers follow each other; wanted at most {_BARRIERS - instances}"
        )


def named_barrier_arrive(barrier_id: int, arrive_count: int) -> None:
    """Count this thread in at a barrier of the block, without waiting there.

    Others wait there with ``T.sync_threads(barrier_id, arrive_count)``; who waits and who arrives
    make up ``arrive_count`` (PTX ISA, ``bar.arrive``). Every thread of a warp arrives.

    Parameters
    ----------
    barrier_id
        1 to 15.
    arrive_count
        A multiple of 32, at most the threads of the block.

    Raises
    ------
    ValueError
        Outside of a kernel; for numbers that the hardware does not have.

    Example
    -------
    ``T.named_barrier_arrive(3, 128)`` in a producer warp
    """
    kernel = enclosing_kernel("T.named_barrier_arrive")
    barrier, threads = as_int(barrier_id), as_int(arrive_count)
    if barrier is None or not 1 <= barrier < _BARRIERS:
        raise ValueError(
            f"barrier_id of T.named_barrier_arrive is {barrier_id!r}, wanted an int from 1 to "
            f"{_BARRIERS - 1}"
        )
    if threads is None or threads % TRACED_LANES != 0 or not 0 < threads <= kernel.num_threads:
        raise ValueError(
            f"arrive_count of T.named_barrier_arrive is {arrive_count!r}, wanted a multiple of "
            f"{TRACED_LANES}, at most the {kernel.num_threads} threads of the block"
        )
    _check_instances("T.named_barrier_arrive", barrier)
    tir_builder.evaluate(device_call("named_barrier_arrive", [barrier, threads]))


def sync_warp(mask: int | None = None) -> None:
    """Wait for the lanes of this thread's warp whose bit is set in ``mask``, all by default.

    Raises
    ------
    ValueError
        Outside of a kernel; if ``mask`` is not an int from 1 to 0xFFFFFFFF.

    Example
    -------
    ``T.sync_warp()``
    """
    lanes = _ALL_LANES if mask is None else as_int(mask)
    if lanes is None or not 0 < lanes <= _ALL_LANES:
        raise ValueError(f"mask of T.sync_warp is {mask!r}, wanted an int from 1 to 0xFFFFFFFF")
    emit_device_op("sync_warp", [tirx.const(lanes, "uint32")])


def sync_grid() -> None:
    """Wait for all threads of all blocks, and order their accesses of memory; the launch is
    cooperative, so that all blocks run at the same time (CUDA C++ Programming Guide, "Grid
    Synchronization").

    Raises
    ------
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.sync_grid()`` between the partial sums of all blocks and their sum
    """
    emit_device_op("sync_grid", [])


def storage_sync(scope: str) -> None:
    """Wait for the threads that share ``scope``: ``shared`` or ``shared.dyn`` for the block
    (``sync_threads``), ``warp`` (``sync_warp``), ``global`` for the grid (``sync_grid``). TVM's
    name for it is ``T.tvm_storage_sync``.

    Raises
    ------
    ValueError
        Outside of a kernel; for another scope.

    Example
    -------
    ``T.tvm_storage_sync("shared")``
    """
    barriers: dict[str, Callable[[], None]] = {
        "shared": sync_threads,
        "shared.dyn": sync_threads,
        "warp": sync_warp,
        "global": sync_grid,
    }
    if scope not in barriers:
        raise ValueError(
            f"T.tvm_storage_sync found the scope {scope!r}, wanted one of {', '.join(barriers)}"
        )
    barriers[scope]()


def _thread_index(name: str) -> Any:
    return enclosing_kernel(name).linear_thread_index()


def _positive(name: str, value: Any, default: int) -> int:
    number = default if value is None else as_int(value)
    if number is None or number < 1:
        raise ValueError(f"{name} is {value!r}, wanted a positive int")
    return number


def get_lane_idx(warp_size: int | None = None) -> Any:
    """Return the index of this thread in its warp, 0 to ``warp_size`` - 1 (32 by default).

    Example
    -------
    ``lane = T.get_lane_idx()``
    """
    return _thread_index("T.get_lane_idx") % _positive("warp_size", warp_size, TRACED_LANES)


def get_warp_idx(warp_size: int | None = None) -> Any:
    """Return the index of this thread's warp in the block; ``warp_size`` is 32 by default.

    Example
    -------
    ``warp = T.get_warp_idx()``
    """
    return _thread_index("T.get_warp_idx") // _positive("warp_size", warp_size, TRACED_LANES)


def get_warp_idx_sync(warp_size: int | None = None) -> Any:
    """Return ``get_warp_idx(warp_size)``.

    Example
    -------
    ``warp = T.get_warp_idx_sync()``
    """
    return get_warp_idx(warp_size)


def get_warp_group_idx(warp_size: int | None = None, warps_per_group: int | None = None) -> Any:
    """Return the index of this thread's group of warps in the block, of 4 warps by default.

    Example
    -------
    ``if T.get_warp_group_idx() == 0: T.copy(A, A_shared)``
    """
    warp = _positive("warp_size", warp_size, TRACED_LANES)
    warps = _positive("warps_per_group", warps_per_group, _WARPS_PER_GROUP)
    return _thread_index("T.get_warp_group_idx") // (warp * warps)


def shuffle_elect(thread_extent: int) -> Any:
    """Return whether this thread is the first one of ``thread_extent`` threads that follow each
    other; with 0, the first one of the block.

    Raises
    ------
    ValueError
        Outside of a kernel; if ``thread_extent`` is negative or not an int.

    Example
    -------
    ``if T.shuffle_elect(128): ...``
    """
    extent = as_int(thread_extent)
    if extent is None or extent < 0:
        raise ValueError(
            f"thread_extent of T.shuffle_elect is {thread_extent!r}, wanted 0 or a positive int"
        )
    index = _thread_index("T.shuffle_elect")
    return index == 0 if extent == 0 else index % extent == 0


__all__ = [
    "get_lane_idx",
    "get_warp_group_idx",
    "get_warp_idx",
    "get_warp_idx_sync",
    "named_barrier_arrive",
    "shuffle_elect",
    "storage_sync",
    "sync_grid",
    "sync_threads",
    "sync_warp",
]
