"""Hints to the compiler that hold for the rest of a kernel."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.scalars import as_int
from tilelang.language.tracer import BuilderFrame, current_tracer

_ORDERS = {"row": "Row", "column": "Column"}


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Visit the blocks of a 2-D grid in panels, so that neighbours in time share operands in L2.

    Parameters
    ----------
    panel_size
        Number of rows (columns) of blocks of a panel.
    order
        ``row`` or ``column``.
    enable
        False: no effect.

    Raises
    ------
    ValueError
        Outside of a kernel; if ``panel_size`` is not positive or ``order`` is another word.

    Example
    -------
    ``T.use_swizzle(10)``
    """
    tracer = current_tracer("T.use_swizzle")
    tracer.kernel_scope("T.use_swizzle")
    if order not in _ORDERS:
        raise ValueError(f"order of T.use_swizzle is {order!r}, wanted 'row' or 'column'")
    panel = as_int(panel_size)
    if panel is None or panel < 1:
        raise ValueError(f"panel_size of T.use_swizzle is {panel_size!r}, wanted a positive int")
    if enable:
        pattern = f"rasterization2D{_ORDERS[order]}<{panel}>"
        frame = tir_builder.attr(0, "threadblock_swizzle_pattern", pattern)
        tracer.enter(BuilderFrame(frame), rest=True)
