"""Warp groups: how many registers their threads have (sm_90a)."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.ops import device_call
from tilelang.language.scalars import as_int
from tilelang.language.tracer import current_tracer
from tilelang.language.warps import TRACED_LANES


def _set_registers(name: str, reg_count: Any, is_inc: bool) -> None:
    current_tracer(name).kernel_scope(name)
    registers = as_int(reg_count)
    if registers is None or not 24 <= registers <= 256 or registers % 8 != 0:
        raise ValueError(
            f"reg_count of {name} is {reg_count!r}, wanted a constant multiple of 8 from 24 to 256"
        )
    op = "warpgroup_reg_alloc" if is_inc else "warpgroup_reg_dealloc"
    tir_builder.evaluate(device_call(op, [registers]))


def set_max_nreg(reg_count: int, is_inc: bool) -> None:
    """Set how many registers a thread of this warp group has (PTX ISA, setmaxnreg).

    All four warps of the group run the statement. With more registers than before they wait until
    other groups of the block have given enough back.

    Parameters
    ----------
    reg_count
        24 to 256, a multiple of 8.
    is_inc
        Whether that is more than before; False gives registers back.

    Raises
    ------
    ValueError
        Outside of a kernel; for another ``reg_count``; when it is compiled for a chip before sm_90,
        or if a warp group would wait for registers for ever.

    Example
    -------
    ``T.set_max_nreg(240, True)``
    """
    _set_registers("T.set_max_nreg", reg_count, bool(is_inc))


def inc_max_nreg(reg_count: int) -> None:
    """``set_max_nreg(reg_count, True)``.

    Example
    -------
    ``T.inc_max_nreg(240)``
    """
    _set_registers("T.inc_max_nreg", reg_count, True)


def dec_max_nreg(reg_count: int) -> None:
    """``set_max_nreg(reg_count, False)``.

    Example
    -------
    ``T.dec_max_nreg(24)``
    """
    _set_registers("T.dec_max_nreg", reg_count, False)


def registers_at_start(warps: int) -> int:
    """How many registers each thread of a block of `warps` begins with, if it is alone on a
    multiprocessor (sm_90)."""
    threads = warps * TRACED_LANES
    return int(get_function("target.RegistersAtStart")(threads, 1)) // threads


__all__ = ["dec_max_nreg", "inc_max_nreg", "set_max_nreg"]
