"""mbarriers: barriers in shared memory that threads and engines arrive at (sm_90)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.compat.keywords import also_called
from tilelang.language.allocation import allocate
from tilelang.language.intrinsics import address_of
from tilelang.language.launch import enclosing_kernel
from tilelang.language.ops import device_call
from tilelang.language.scalars import as_expr, as_int, describe, is_buffer, is_scalar_expr
from tilelang.language.tracer import current_tracer

# PTX ISA, Contents of the mbarrier object.
_MAX_ARRIVALS = 2**20 - 1
_MAX_BYTES = 2**20 - 1
_SCOPES = ("shared.barrier", "shared.cluster_barrier")


def alloc_barrier(arrive_count: int | Sequence[int]) -> ir.Var:
    """Allocate mbarriers, initialised before the kernel's first statement.

    An mbarrier counts phases. The current one ends when as many arrivals were made as it needs and
    the bytes that it was told to expect were transferred; then the next one begins. The compiler
    adds no barriers between accesses in different branches that the program orders by mbarriers.

    Parameters
    ----------
    arrive_count
        Arrivals that each phase needs, 1 to 2^20 - 1; a list of them for several mbarriers.

    Returns
    -------
    A buffer of shape (n,): it, if n is 1, or an element ``bar[i]`` of it is what the functions on
    mbarriers take.

    Raises
    ------
    ValueError
        Outside of a kernel; for other counts; when it is compiled for a chip before sm_90.

    Example
    -------
    ``full = T.alloc_barrier([128] * 3)``, then ``T.mbarrier_arrive(full[i % 3])``
    """
    return _allocate("T.alloc_barrier", arrive_count, "shared.barrier")


def alloc_cluster_barrier(arrive_count: int | Sequence[int]) -> ir.Var:
    """Allocate mbarriers that blocks of the cluster arrive at; parameters and errors are those of
    ``alloc_barrier``.

    They are initialised before any block of the cluster uses one, a wait acquires what other blocks
    released, and no block exits before all have come to the kernel's end.

    Example
    -------
    ``empty = T.alloc_cluster_barrier(2)``, then ``T.mbarrier_arrive(empty, rank)``
    """
    return _allocate("T.alloc_cluster_barrier", arrive_count, "shared.cluster_barrier")


def _allocate(name: str, arrive_count: Any, scope: str) -> ir.Var:
    given = arrive_count if isinstance(arrive_count, list | tuple) else [arrive_count]
    counts = [count for count in map(as_int, given) if count is not None]
    if len(counts) != len(given) or not counts:
        raise ValueError(
            f"arrive_count of {name} is {arrive_count!r}, wanted a constant int or a list of them"
        )
    for count in counts:
        if not 1 <= count <= _MAX_ARRIVALS:
            raise ValueError(
                f"arrive_count of {name} is {count}, wanted 1 to {_MAX_ARRIVALS} arrivals"
            )
    buffer = allocate(name, (len(counts),), "uint64", scope, scope)
    span = current_tracer(name).span
    arrivals = [tirx.const(count, "int32", span) for count in counts]
    enclosing_kernel(name).barriers[buffer] = arrivals
    return buffer


def barrier_operand(name: str, bar: Any) -> ir.Call:
    """Return the address of the mbarrier ``bar``, an operand of the function ``name``.

    Raises
    ------
    TypeError
        If it is neither a buffer of one mbarrier nor an element of a buffer of them.
    """
    buffer = bar.source if isinstance(bar, ir.TensorLoad) else bar
    if not is_buffer(buffer) or buffer.scope() not in _SCOPES:
        raise TypeError(
            f"{name} found {describe(bar)}, wanted a barrier of T.alloc_barrier, or an element of "
            "one"
        )
    if buffer is bar and as_int(buffer.shape[0]) != 1:
        raise TypeError(
            f"{name} found {buffer.name}, which has {buffer.shape[0]} barriers, wanted one of "
            f"them: {buffer.name}[i]"
        )
    return address_of(bar)


def _integer(name: str, word: str, value: Any, low: int, high: int) -> Any:
    """Return an operand that is an integer, a constant in ``low`` to ``high``."""
    constant = as_int(value)
    value = as_expr(value)
    is_integer = is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint", "bool"))
    if not is_integer and constant is None:
        raise TypeError(f"{word} of {name} is {describe(value)}, wanted an integer")
    if constant is not None and not low <= constant <= high:
        raise ValueError(f"{word} of {name} is {constant}, wanted {low} to {high}")
    return value


def _emit(name: str, op: str, bar: Any, *operands: Any) -> None:
    current_tracer(name).kernel_scope(name)
    tir_builder.evaluate(device_call(op, [barrier_operand(name, bar), *operands]))


@also_called(bar="mbarrier")
def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Wait until the phase of ``parity`` has ended: 0 for the first phase, 1 for the second, 0 for
    the third.

    The thread then sees what others did before they arrived in that phase, and what engines
    transferred. The current phase must be that one or the next: a phase that ended longer ago has
    the parity of a later one (PTX ISA, mbarrier.try_wait).

    Parameters
    ----------
    mbarrier
        A buffer of one mbarrier, or an element of a buffer of them.
    parity
        0 or 1, an integer expression.

    Raises
    ------
    TypeError
        If ``mbarrier`` is no mbarrier or ``parity`` no integer.
    ValueError
        Outside of a kernel; for a constant ``parity`` that is neither.

    Example
    -------
    ``T.mbarrier_wait_parity(full[k % 3], k // 3 % 2)``
    """
    name = "T.mbarrier_wait_parity"
    _emit(name, "mbarrier_wait", mbarrier, _integer(name, "parity", parity, 0, 1))


barrier_wait = mbarrier_wait_parity


@also_called(bar="mbarrier")
def mbarrier_arrive(mbarrier: Any, cta_id: Any = None, scope: str | None = None) -> None:
    """Arrive once at an mbarrier, after this thread's accesses so far (PTX ISA, mbarrier.arrive).

    Parameters
    ----------
    mbarrier
        A buffer of one mbarrier, or an element of a buffer of them.
    cta_id
        Rank of a block in the cluster: arrive at the mbarrier that it has in that place.
    scope
        Of the release, where there is a ``cta_id``. ``"cluster"``, as if it was None: who waits in
        the other block sees what this thread wrote. ``"cta"``: who waits there may let engines
        overwrite what this thread has read, and sees nothing of what it wrote. On Hopper the first
        one waits until all writes of the thread have reached L2 (MEMBAR.ALL.GPU), and waits for
        the mbarrier, which then are of the cluster, empty L1; the second one does neither.

    Raises
    ------
    TypeError
        If ``mbarrier`` is no mbarrier or ``cta_id`` no integer.
    ValueError
        Outside of a kernel; for a constant rank that the cluster does not have; for another
        ``scope``, or one without ``cta_id``.

    Example
    -------
    ``T.mbarrier_arrive(empty[k % 3])``, ``T.mbarrier_arrive(empty[k % 3], rank, scope="cta")``
    """
    name = "T.mbarrier_arrive"
    if scope not in (None, "cta", "cluster"):
        raise ValueError(f"scope of {name} is {scope!r}, wanted 'cta' or 'cluster'")
    if cta_id is None:
        if scope is not None:
            raise ValueError(
                f"{name} found the scope {scope!r} without cta_id, wanted the rank of the block "
                "whose mbarrier it is; an arrival at this block's own one takes no scope"
            )
        _emit(name, "mbarrier_arrive", mbarrier)
    else:
        _arrive_remote(name, mbarrier, cta_id, scope)


barrier_arrive = mbarrier_arrive


@also_called(bar="mbarrier")
def ptx_arrive_cluster_barrier(mbarrier: Any, cta_id: Any) -> None:
    """Arrive at the mbarrier of the block of rank ``cta_id``, as ``mbarrier_arrive`` does.

    Example
    -------
    ``T.ptx_arrive_cluster_barrier(empty, 0)``
    """
    _arrive_remote("T.ptx_arrive_cluster_barrier", mbarrier, cta_id)


def _arrive_remote(name: str, mbarrier: Any, cta_id: Any, scope: str | None = None) -> None:
    kernel = enclosing_kernel(name)
    rank = _integer(name, "cta_id", cta_id, 0, kernel.cluster_blocks - 1)
    op = "mbarrier_arrive_remote_cta" if scope == "cta" else "mbarrier_arrive_remote"
    _emit(name, op, mbarrier, rank)


@also_called(bar="mbarrier")
def mbarrier_expect_tx(mbarrier: Any, bytes: Any) -> None:
    """Let the current phase of an mbarrier wait for ``bytes`` more bytes of engines' copies (PTX
    ISA, mbarrier.expect_tx).

    Parameters
    ----------
    mbarrier
        A buffer of one mbarrier, or an element of a buffer of them.
    bytes
        An integer expression; a phase waits for less than 2^20 bytes in all.

    Raises
    ------
    TypeError
        If ``mbarrier`` is no mbarrier or ``bytes`` no integer.
    ValueError
        Outside of a kernel; for a constant number of bytes out of range.

    Example
    -------
    ``T.mbarrier_expect_tx(full[0], 128 * 32 * 2)``
    """
    name = "T.mbarrier_expect_tx"
    _emit(name, "mbarrier_expect_tx", mbarrier, _integer(name, "bytes", bytes, 0, _MAX_BYTES))


@also_called(bar="mbarrier")
def mbarrier_arrive_expect_tx(mbarrier: Any, bytes: Any) -> None:
    """``mbarrier_expect_tx``, then ``mbarrier_arrive``, in one instruction; parameters and errors
    are those of ``mbarrier_expect_tx``.

    Example
    -------
    ``T.mbarrier_arrive_expect_tx(full[0], 128 * 32 * 2)``
    """
    name = "T.mbarrier_arrive_expect_tx"
    _emit(
        name, "mbarrier_arrive_expect_tx", mbarrier, _integer(name, "bytes", bytes, 0, _MAX_BYTES)
    )


@also_called(bar="mbarrier")
def cp_async_barrier_noinc(mbarrier: Any) -> None:
    """Arrive at an mbarrier when this thread's cp.async so far are complete, as one of the arrivals
    that its phase needs (PTX ISA, cp.async.mbarrier.arrive.noinc).

    Raises
    ------
    TypeError
        If ``mbarrier`` is no mbarrier.
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.async_copy(A[k], S[k % 3]); T.cp_async_barrier_noinc(full[k % 3])``
    """
    _emit("T.cp_async_barrier_noinc", "cp_async_mbarrier_arrive_noinc", mbarrier)


__all__ = [
    "alloc_barrier",
    "alloc_cluster_barrier",
    "barrier_arrive",
    "barrier_wait",
    "cp_async_barrier_noinc",
    "mbarrier_arrive",
    "mbarrier_arrive_expect_tx",
    "mbarrier_expect_tx",
    "mbarrier_wait_parity",
    "ptx_arrive_cluster_barrier",
]
