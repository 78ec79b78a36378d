"""Clusters of blocks (sm_90): their barrier, and which block of its cluster this one is."""

from __future__ import annotations

from typing import Any

from tilelang.language.launch import axis_of, enclosing_kernel
from tilelang.language.ops import emit_device_op, intrinsic_call
from tilelang.language.tracer import current_tracer


def cluster_arrive() -> None:
    """Arrive at the barrier of the cluster, after this thread's accesses so far; all threads of its
    blocks do, and then wait (PTX ISA, barrier.cluster).

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.cluster_arrive(); T.cluster_wait()``
    """
    emit_device_op("cluster_arrive", [])


def cluster_arrive_relaxed() -> None:
    """``cluster_arrive`` that orders no accesses of memory.

    Example
    -------
    ``T.cluster_arrive_relaxed(); T.cluster_wait()``
    """
    emit_device_op("cluster_arrive_relaxed", [])


def cluster_wait() -> None:
    """Wait until all threads of the cluster have arrived at its barrier; errors are those of
    ``cluster_arrive``.

    Example
    -------
    ``T.cluster_arrive(); T.cluster_wait()``
    """
    emit_device_op("cluster_wait", [])


def cluster_sync() -> None:
    """``cluster_arrive``, then ``cluster_wait``.

    Example
    -------
    ``T.cluster_sync()``
    """
    emit_device_op("cluster_sync", [])


def block_rank_in_cluster() -> Any:
    """Return the rank of this block in its cluster, 0 to the number of its blocks - 1; x counts
    first (PTX ISA, %cluster_ctarank).

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``rank = T.block_rank_in_cluster()``
    """
    current_tracer("T.block_rank_in_cluster").kernel_scope("T.block_rank_in_cluster")
    return intrinsic_call("block_rank_in_cluster", "int32", [])


def get_cluster_dims() -> list[int]:
    """Return the numbers of blocks of a cluster in x, y and z, [1, 1, 1] without clusters;
    ValueError outside of a kernel.

    Example
    -------
    ``width, height, _ = T.get_cluster_dims()``
    """
    return enclosing_kernel("T.get_cluster_dims").cluster_dims


def get_cluster_size() -> int:
    """Return the number of blocks of a cluster.

    Example
    -------
    ``share = 128 // T.get_cluster_size()``
    """
    return enclosing_kernel("T.get_cluster_size").cluster_blocks


def get_cluster_id(dim: int = 0) -> Any:
    """Return the index of this block's cluster among the grid's in dimension ``dim`` (0, 1, 2 for
    x, y, z; PTX ISA, %clusterid); without clusters that of the block.

    Example
    -------
    ``tile = T.get_cluster_id()``
    """
    kernel, axis = enclosing_kernel("T.get_cluster_id"), axis_of(dim)
    return kernel.blocks[axis] // kernel.cluster_dims[axis]


def get_cluster_ids() -> list[Any]:
    """Return the indices of this block's cluster in x, y and z.

    Example
    -------
    ``cx, cy, cz = T.get_cluster_ids()``
    """
    return [get_cluster_id(dim) for dim in range(3)]


def get_cluster_extent(dim: int = 0) -> Any:
    """Return the number of clusters of the grid in dimension ``dim`` (PTX ISA, %nclusterid).

    Example
    -------
    ``clusters = T.get_cluster_extent()``
    """
    kernel, axis = enclosing_kernel("T.get_cluster_extent"), axis_of(dim)
    return kernel.get_block_extent(axis) // kernel.cluster_dims[axis]


def get_cluster_extents() -> list[Any]:
    """Return the numbers of clusters of the grid in x, y and z.

    Example
    -------
    ``clusters = math.prod(T.get_cluster_extents())``
    """
    return [get_cluster_extent(dim) for dim in range(3)]


__all__ = [
    "block_rank_in_cluster",
    "cluster_arrive",
    "cluster_arrive_relaxed",
    "cluster_sync",
    "cluster_wait",
    "get_cluster_dims",
    "get_cluster_extent",
    "get_cluster_extents",
    "get_cluster_id",
    "get_cluster_ids",
    "get_cluster_size",
]
