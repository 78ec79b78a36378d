"""Programmatic dependent launch: kernels of a stream that overlap (sm_90)."""

from __future__ import annotations

from tilelang.language.ops import emit_device_op


def pdl_trigger() -> None:
    """Let the next kernel of the stream start, if it has ``pdl_sync``, when all blocks have called
    this or ended (PTX ISA, griddepcontrol.launch_dependents).

    Where kernels of a stream do not overlap, on chips before sm_90, it is nothing.

    Raises
    ------
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.pdl_trigger()`` before the last tiles are written
    """
    emit_device_op("pdl_trigger", [])


def pdl_sync() -> None:
    """Wait until the kernel before this one in the stream is complete and what it wrote is visible
    (PTX ISA, griddepcontrol.wait).

    A kernel that calls it may start before the other one is complete (CUDA C++ Programming Guide,
    "Programmatic Dependent Launch"): all its threads have to call it before they read what that
    writes, or write what that reads. Its pointers are passed without ``__restrict__``. Loads of a
    pipeline that stand behind it stay there. Where warps have roles, all wait in front of them if
    it is the first statement, else each role at its place: what is loaded in front of it comes
    beside the other kernel. On chips before sm_90, whose kernels do not overlap, it is nothing.

    Raises
    ------
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.pdl_sync(); T.copy(A[bx * 128], A_shared)``
    """
    emit_device_op("pdl_sync", [])


__all__ = ["pdl_sync", "pdl_trigger"]
