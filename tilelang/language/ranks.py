"""Kernels that several GPUs run together: symmetric tensors, the tensors of other ranks, signals.

A *rank* is one of the GPUs, each with a process of its own, that launch one kernel. A tensor is
*symmetric* if each rank has one of the same shape and dtype and knows where those of the others are
(`tilelang.distributed.empty` allocates them). All ranks run the same kernel; nothing but signals
orders what they do.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.copies import copy
from tilelang.language.intrinsics import address_of
from tilelang.language.ops import emit_tile_op
from tilelang.language.pointers import at_address
from tilelang.language.regions import region_of
from tilelang.language.requirements import Comparison
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_buffer, is_scalar_expr
from tilelang.language.tensors import SymmetricTensor
from tilelang.language.tracer import BuilderFrame, Tracer, current_tracer

_SIGNALS = ("int32", "uint32", "int64", "uint64")
_COMPARISONS = ("eq", "ne", "ge", "gt", "le", "lt")


def rank() -> ir.Expr:
    """Return the number of this GPU among those that run the kernel, an int32 from 0 on.

    Raises
    ------
    RuntimeError
        Outside of a program.

    Example
    -------
    ``me = T.rank()``
    """
    return current_tracer("T.rank").header.team.rank


def num_ranks() -> ir.Expr:
    """Return how many GPUs run the kernel, an int32.

    Raises
    ------
    RuntimeError
        Outside of a program.

    Example
    -------
    ``for i in T.serial(T.num_ranks()): ...``
    """
    return current_tracer("T.num_ranks").header.team.ranks


def peer(tensor: Any, rank: Any) -> ir.Var:
    """Return the tensor that ``tensor`` is on another rank, or on this one.

    It is a tensor like others: tiles are copied from and to it by threads, by bulk copies and by
    TMA, elements are loaded and stored, and atomic operations on it are those of the whole system.
    What is stored there is seen by the other rank behind a signal (`signal_set`, `signal_add`,
    `sync_ranks`) only.

    Parameters
    ----------
    tensor
        A parameter of the program annotated ``T.SymmetricTensor``.
    rank
        An integer from 0 to ``T.num_ranks()`` - 1; the same in all threads of the block.

    Raises
    ------
    TypeError
        If ``tensor`` is something else, or ``rank`` is no integer.
    ValueError
        Outside of a kernel; in a parallel, pipelined, unrolled or vectorised loop; for a constant
        rank less than 0.

    Example
    -------
    ``T.copy(tile, T.peer(Out, (T.rank() + 1) % T.num_ranks())[bx * 128, 0])``
    """
    tracer = current_tracer("T.peer")
    table = _addresses(tracer, "T.peer", tensor)
    number = _integer("the rank of T.peer", rank)
    constant = as_int(number)
    if constant is not None and constant < 0:
        raise ValueError(f"the rank of T.peer is {constant}, wanted 0 to T.num_ranks() - 1")
    team = tracer.header.team
    first = address_of(tirx.BufferLoad(tensor, [0] * len(tensor.shape)))
    arguments = [first, address_of(tirx.BufferLoad(table, [0])), number, team.ranks]
    address = ir.Call(ir.Op.get("tl.peer"), arguments, ret_ty=ir.PrimType("int64"))
    kind = SymmetricTensor(list(tensor.shape), str(tensor.dtype))
    found = at_address("T.peer", address, kind, f"{tensor.name}_peer")
    tracer.header.add_peer(found)
    # Ranks may be equal: then it is memory that has another name, too.
    frame = tir_builder.attr(tensor.name, "tl.aliased_buffer", found.name)
    tracer.enter(BuilderFrame(frame), rest=True)
    return found


def signal_set(signal: Any, value: Any) -> None:
    """Write ``value`` to a signal, behind everything that the block did before.

    All threads of the block, or of their role, come to it and meet; then one writes. Who has waited
    for the value (`signal_wait_until`) sees what they stored, on whichever rank that is, and may
    overwrite what they read. Asynchronous copies that the compiler has made of ``T.copy`` are
    complete then.

    Parameters
    ----------
    signal
        An element of a symmetric tensor, or of one that ``T.peer`` gives, of (u)int32 or (u)int64.
    value
        A scalar, which is cast to the signal's dtype.

    Raises
    ------
    TypeError
        If ``signal`` is no element.
    ValueError
        If its tensor is not symmetric or has another dtype; outside of a kernel; when compiled, in
        control flow that threads of one block do not take together.

    Example
    -------
    ``T.signal_set(T.peer(ready, r)[T.rank()], 1)``
    """
    _signal("T.signal_set", "set", signal, value)


def signal_add(signal: Any, value: Any) -> None:
    """Add ``value`` to a signal, behind everything that the block did before; otherwise as
    ``signal_set``.

    Example
    -------
    ``T.signal_add(T.peer(arrived, r)[0], 1)``
    """
    _signal("T.signal_add", "add", signal, value)


def signal_wait_until(signal: Any, comparison: str, value: Any) -> None:
    """Wait until ``signal comparison value``.

    All threads of the block, or of their role, come to it; none goes on before. What they do then
    is behind what the sender did before it signalled.

    Parameters
    ----------
    signal
        As for ``signal_set``.
    comparison
        ``eq``, ``ne``, ``ge``, ``gt``, ``le`` or ``lt``.
    value
        A scalar, which is cast to the signal's dtype.

    Raises
    ------
    TypeError, ValueError
        If there is no such comparison; as ``signal_set``.

    Example
    -------
    ``T.signal_wait_until(ready[r], "ge", 1)``
    """
    name = "T.signal_wait_until"
    if comparison not in _COMPARISONS:
        raise ValueError(
            f"comparison of {name} is {comparison!r}, wanted one of {', '.join(_COMPARISONS)}"
        )
    region, value = _operands(name, signal, value)
    rank = current_tracer(name).header.team.rank
    emit_tile_op("signal_wait_until", [region, value, comparison, rank])


def put_signal(src: Any, dst: Any, signal: Any, value: Any = 1, operation: str = "set") -> None:
    """Copy a tile and signal that it is there: ``T.copy(src, dst)``, then ``T.signal_set(signal,
    value)`` or ``T.signal_add``.

    Parameters
    ----------
    src, dst
        As for ``T.copy``.
    signal, value
        As for ``signal_set``.
    operation
        ``set`` or ``add``.

    Raises
    ------
    ValueError
        If there is no such operation; as ``T.copy`` and ``signal_set``.

    Example
    -------
    ``T.put_signal(tile, T.peer(Out, r)[0, 0], T.peer(ready, r)[T.rank()])``
    """
    if operation not in ("set", "add"):
        raise ValueError(f"operation of T.put_signal is {operation!r}, wanted 'set' or 'add'")
    copy(src, dst)
    _signal("T.put_signal", operation, signal, value)


def sync_ranks(counts: Any, slot: Any = 0) -> None:
    """Wait until the block with this ``slot`` of every rank has come here.

    What the blocks did before is then behind them, for all of these blocks.

    Parameters
    ----------
    counts
        A symmetric tensor of uint32 of shape (slots, ranks or more), which nothing else writes:
        zero before its first use, and kept between launches.
    slot
        Its row, one for each block that runs at the same time, such as ``bx``.

    Raises
    ------
    TypeError
        If ``counts`` is no symmetric tensor, or ``slot`` is no integer.
    ValueError
        If ``counts`` is not of uint32 or has not two dimensions; outside of a kernel.

    Example
    -------
    ``T.sync_ranks(counts, bx)``
    """
    name = "T.sync_ranks"
    tracer = current_tracer(name)
    table = _addresses(tracer, name, counts)
    if str(counts.dtype) != "uint32" or len(counts.shape) != 2:
        raise ValueError(
            f"{name} found {counts.name} of dtype {counts.dtype} with {len(counts.shape)} "
            "dimensions, wanted uint32 and two: T.SymmetricTensor((slots, ranks), T.uint32)"
        )
    team = tracer.header.team
    wanted = Comparison(team.ranks, "<=", counts.shape[1])
    tracer.header.require(wanted, "a row of counts for T.sync_ranks", tracer.span)
    row = region_of(tirx.BufferLoad(counts, [_integer(f"the slot of {name}", slot), 0]), "counts")
    first = region_of(tirx.BufferLoad(counts, [0, 0]), "counts")
    addresses = region_of(tirx.BufferLoad(table, [0]), "addresses")
    emit_tile_op("sync_ranks", [row, first, addresses, team.rank, team.ranks])


def _signal(name: str, operation: str, signal: Any, value: Any) -> None:
    region, value = _operands(name, signal, value)
    emit_tile_op("signal", [region, value, operation])


def _operands(name: str, signal: Any, value: Any) -> tuple[ir.TensorRegion, Any]:
    tracer = current_tracer(name)
    if not isinstance(signal, ir.TensorLoad):
        raise TypeError(
            f"the signal of {name} is {describe(signal)}, wanted an element of a symmetric tensor, "
            "as in ready[r]"
        )
    buffer = signal.source
    if not tracer.header.is_symmetric(buffer):
        raise ValueError(
            f"{name} found {buffer.name}, which is not symmetric; annotate the parameter "
            "T.SymmetricTensor, or take T.peer of it"
        )
    if str(buffer.dtype) not in _SIGNALS:
        raise ValueError(
            f"{name} found {buffer.name} of dtype {buffer.dtype}, wanted one of "
            f"{', '.join(_SIGNALS)}"
        )
    return region_of(signal, f"the signal of {name}"), as_dtype(value, str(buffer.dtype))


def _addresses(tracer: Tracer, name: str, tensor: Any) -> ir.Var:
    """The table of the addresses that a parameter has on all ranks."""
    tracer.kernel_scope(name)
    if not is_buffer(tensor) or tracer.header.addresses(tensor) is None:
        raise TypeError(
            f"{name} found {describe(tensor)}, wanted a parameter annotated T.SymmetricTensor"
        )
    return tracer.header.addresses(tensor)


def _integer(what: str, value: Any) -> Any:
    constant = as_int(value)
    if constant is not None:
        return tirx.const(constant, "int32")
    value = as_expr(value)
    if not is_scalar_expr(value) or not value.ty.dtype.startswith(("int", "uint")):
        raise TypeError(f"{what} is {describe(value)}, wanted an integer")
    return as_dtype(value, "int32")
