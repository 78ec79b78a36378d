"""Copies by TMA (sm_90) that the program waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilelang.language.barriers import barrier_operand
from tilelang.language.copies import eviction_number, fit_tiles
from tilelang.language.ops import emit_tile_op
from tilelang.language.regions import region_at, subscript
from tilelang.language.scalars import as_dtype, as_int, describe
from tilelang.language.tracer import current_tracer


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    cluster_mask: int | None = None,
    leader_scope_threads: int | None = None,
    eviction_policy: str | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Start copying a tile between global and shared memory by TMA.

    Operands are those of ``T.copy``, of one dtype of 8, 16, 32 or 64 bits. Elements outside of the
    tensor are filled with zeros, and not stored.

    From global to shared memory one thread lets ``barrier`` expect the bytes of the whole tile and
    issues the copy; arriving there, and waiting before ``dst`` is used, is the program's. From
    shared to global memory the thread commits the copy as a group: ``T.tma_store_wait`` waits for
    it.

    Parameters
    ----------
    barrier
        An mbarrier of ``T.alloc_barrier``, for copies from global memory.
    cluster_mask
        The blocks of the cluster that get the tile, one bit for each, bit 0 the block of rank 0;
        each has to expect its bytes at its own mbarrier (PTX ISA, cp.async.bulk.tensor,
        .multicast::cluster).
    leader_scope_threads
        One thread in each group of so many consecutive ones issues, a multiple of the threads of a
        warp of the target; without it, one of all that run the statement.
    eviction_policy
        L2 hint: ``evict_normal``, ``evict_first`` or ``evict_last`` (PTX ISA, "Cache Eviction
        Priority Hints").
    annotations
        Further keywords; they win over those above.

    Raises
    ------
    ValueError
        If the tiles do not fit each other; if ``barrier`` is missing, or given where none is
        needed; if a keyword has no such value; when compiled, if the unit cannot make the copy,
        with the reason: the innermost dimension of the tensor has to be contiguous and its other
        strides multiples of 16 bytes, the tile's rows too, and the shared tile row-major or
        swizzled by 32, 64 or 128 bytes; when called, if the tensor's strides are not such.
    TypeError
        If an operand is not a buffer, a region or an element, or ``barrier`` no mbarrier.

    Example
    -------
    ``T.tma_copy(A[by * 128, 0], A_shared, barrier=full)``, then by one thread
    ``T.mbarrier_arrive(full)``, then ``T.mbarrier_wait_parity(full, 0)``
    """
    name = "T.tma_copy"
    current_tracer(name)
    regions = fit_tiles(name, src, dst)
    operands: list[Any] = list(regions)
    loads = regions[0].source.scope() == "global"
    if loads == regions[1].source.scope().startswith("global"):
        raise ValueError(
            f"{name} found {describe(src)} and {describe(dst)}, wanted one of them in global and "
            "one in shared memory; T.copy copies between any"
        )
    operands += _barrier_of_copy(name, loads, barrier)
    attrs = _attrs(name, cluster_mask, leader_scope_threads, eviction_policy)
    if not loads and "cluster_mask" in attrs:
        raise ValueError(
            f"{name} found a cluster_mask for a copy to global memory, wanted it for a copy to the "
            "blocks of a cluster; leave it out"
        )
    emit_tile_op("tma_copy", operands, attrs | dict(annotations or {}))


def _barrier_of_copy(name: str, loads: bool, barrier: Any) -> list[Any]:
    """The operand of a copy from global memory, none of one to it."""
    if loads and barrier is None:
        raise ValueError(
            f"{name} found no barrier for a copy from global memory, wanted one of "
            "T.alloc_barrier; pass barrier="
        )
    if not loads and barrier is not None:
        raise ValueError(
            f"{name} found a barrier for a copy to global memory, wanted none; "
            "T.tma_store_wait(0) waits for it"
        )
    if barrier is None:
        return []
    barrier_operand(name, barrier)
    return [_element(barrier)]


def copy_cluster(
    src: Any,
    dst: Any,
    *,
    dst_block: Any = None,
    cluster_mask: int | None = None,
    remote_barrier: Any = None,
    eviction_policy: str | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> None:
    """Start copying a tile into the shared memory of other blocks of the cluster (sm_90).

    With ``dst_block`` the bytes of ``src``, a tile of this block's shared memory, go to the place
    that ``dst`` has in that block's, and the mbarrier at the place of ``remote_barrier`` there
    counts them: that block expects them (``T.mbarrier_expect_tx``), arrives and waits. With
    ``cluster_mask`` it is ``T.tma_copy(src, dst, barrier=remote_barrier, cluster_mask=..)`` from
    global memory. Nobody may fill a tile that its block still uses, or start before it has passed
    the beginning of the kernel, which the mbarriers of a kernel with clusters see to.

    Parameters
    ----------
    dst_block
        Rank of the block that gets the tile.
    cluster_mask
        The blocks that get the tile, one bit for each.
    remote_barrier
        An mbarrier of ``T.alloc_barrier`` or ``T.alloc_cluster_barrier``.
    eviction_policy, annotations
        As for ``T.tma_copy``.

    Raises
    ------
    ValueError
        If the tiles do not fit each other; if not one of ``dst_block`` and ``cluster_mask`` is
        given, or no ``remote_barrier``; when compiled, if the tiles do not lie in one piece in the
        same order, at multiples of 16 bytes (PTX ISA, cp.async.bulk).
    TypeError
        If an operand is not a buffer, a region or an element, or ``remote_barrier`` no mbarrier.

    Example
    -------
    ``T.copy_cluster(mine, theirs, dst_block=1 - rank, remote_barrier=arrived)``
    """
    name = "T.copy_cluster"
    current_tracer(name)
    if (dst_block is None) == (cluster_mask is None) or remote_barrier is None:
        raise ValueError(
            f"{name} found dst_block={dst_block!r}, cluster_mask={cluster_mask!r} and "
            f"remote_barrier={remote_barrier!r}, wanted one of the first two, and a barrier; "
            "T.tma_copy copies within a block"
        )
    if dst_block is None:
        tma_copy(
            src,
            dst,
            barrier=remote_barrier,
            cluster_mask=cluster_mask,
            eviction_policy=eviction_policy,
            annotations=annotations,
        )
        return
    if eviction_policy is not None:
        raise ValueError(
            f"{name} found eviction_policy={eviction_policy!r} for a copy of shared memory, wanted "
            "none; leave it out"
        )
    regions = fit_tiles(name, src, dst)
    barrier_operand(name, remote_barrier)
    operands = [*regions, _element(remote_barrier), as_dtype(dst_block, "int32")]
    emit_tile_op("copy_cluster", operands, dict(annotations or {}))


def _element(barrier: Any) -> Any:
    """The mbarrier as a region of one element."""
    element = barrier if hasattr(barrier, "indices") else subscript(barrier, 0)
    return region_at(element, [1], "T.tma_copy")


def _attrs(
    name: str,
    cluster_mask: int | None,
    leader_scope_threads: int | None,
    eviction_policy: str | None,
) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    if cluster_mask is not None:
        mask = as_int(cluster_mask)
        if mask is None or not 0 < mask < 1 << 16:
            raise ValueError(
                f"cluster_mask of {name} is {cluster_mask!r}, wanted a constant from 1 to 65535, "
                "a bit for each block"
            )
        attrs["cluster_mask"] = mask
    if leader_scope_threads is not None:
        threads = as_int(leader_scope_threads)
        if threads is None or threads <= 0:
            raise ValueError(
                f"leader_scope_threads of {name} is {leader_scope_threads!r}, wanted a positive "
                "constant"
            )
        attrs["leader_scope_threads"] = threads
    if eviction_policy is not None:
        attrs["eviction_policy"] = eviction_number(name, eviction_policy)
    return attrs


__all__ = ["copy_cluster", "tma_copy"]
