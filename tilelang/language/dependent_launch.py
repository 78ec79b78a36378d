"""Programmatic dependent launch: kernels of a stream that overlap (sm_90)."""

from __future__ import annotations

from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.ops import device_call
from tilelang.language.tracer import current_tracer


def _emit(name: str) -> None:
    current_tracer(f"T.{name}").kernel_scope(f"T.{name}")
    tir_builder.evaluate(device_call(name, []))


def pdl_trigger() -> None:
    """Let the next kernel of the stream start, if it has ``pdl_sync``, when all blocks have called
    this or ended (PTX ISA, griddepcontrol.launch_dependents).

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.pdl_trigger()`` before the last tiles are written
    """
    _emit("pdl_trigger")


def pdl_sync() -> None:
    """Wait until the kernel before this one in the stream is complete and what it wrote is visible
    (PTX ISA, griddepcontrol.wait).

    A kernel that calls it may start before the other one is complete (CUDA C++ Programming Guide,
    "Programmatic Dependent Launch"): all its threads have to call it before they read what that
    writes, or write what that reads. Its pointers are passed without ``__restrict__``.

    Raises
    ------
    ValueError
        Outside of a kernel; when it is compiled for a chip before sm_90.

    Example
    -------
    ``T.pdl_sync(); T.copy(A[bx * 128], A_shared)``
    """
    _emit("pdl_sync")


__all__ = ["pdl_sync", "pdl_trigger"]
