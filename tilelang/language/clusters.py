"""Clusters of blocks (sm_90): their barrier, and which block of its cluster this one is."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.ops import device_call, intrinsic_call
from tilelang.language.tracer import current_tracer


def _emit(name: str) -> None:
    current_tracer(f"T.{name}").kernel_scope(f"T.{name}")
    tir_builder.evaluate(device_call(name, []))


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
    _emit("cluster_arrive")


def cluster_arrive_relaxed() -> None:
    """``cluster_arrive`` that orders no accesses of memory.

    Example
    -------
    ``T.cluster_arrive_relaxed(); T.cluster_wait()``
    """
    _emit("cluster_arrive_relaxed")


def cluster_wait() -> None:
    """Wait until all threads of the cluster have arrived at its barrier; errors are those of
    ``cluster_arrive``.

    Example
    -------
    ``T.cluster_arrive(); T.cluster_wait()``
    """
    _emit("cluster_wait")


def cluster_sync() -> None:
    """``cluster_arrive``, then ``cluster_wait``.

    Example
    -------
    ``T.cluster_sync()``
    """
    _emit("cluster_sync")


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


__all__ = [
    "block_rank_in_cluster",
    "cluster_arrive",
    "cluster_arrive_relaxed",
    "cluster_sync",
    "cluster_wait",
]
