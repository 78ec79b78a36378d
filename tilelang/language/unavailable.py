"""Names of the language that this compiler refuses, and what it says.

They belong to chips after sm_90, whose tensor memory and launch control no target here has, or to
code by hand of what an operator does.
"""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(name: str, wanted: str, repair: str) -> NoReturn:
    raise NotImplementedError(f"T.{name} is not supported: found {wanted}; {repair}")


_KINDS = ("wgmma", "tcgen05_smem", "tcgen05_instr")
_TENSOR_MEMORY = "an operand of tcgen05.mma, which needs sm_100, wanted a chip up to sm_90"
_LAUNCH_CONTROL = "clusterlaunchcontrol, which needs sm_100, wanted a chip up to sm_90"
_USE_GEMM = "use T.gemm, which chooses the instruction of the chip"
_USE_SCHEDULER = "deal tiles with T.PersistentTileScheduler or T.Persistent"


def alloc_descriptor(kind: str = "wgmma", dtype: Any = "uint64") -> NoReturn:
    """Refused: the register of a matrix descriptor, which the matrix products make themselves.

    Raises
    ------
    ValueError
        If ``kind`` is not ``wgmma``, ``tcgen05_smem`` or ``tcgen05_instr``.
    NotImplementedError
        Otherwise.

    Example
    -------
    ``T.alloc_descriptor("wgmma")``
    """
    if kind not in _KINDS:
        raise ValueError(
            f"kind of T.alloc_descriptor is {kind!r}, wanted one of {', '.join(_KINDS)}"
        )
    if kind == "wgmma":
        alloc_wgmma_desc()
    _refuse("alloc_descriptor", _TENSOR_MEMORY, _USE_GEMM)


def alloc_wgmma_desc(dtype: Any = "uint64") -> NoReturn:
    """Refused: the register of a descriptor of wgmma (sm_90a), which ``T.gemm`` makes itself.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``T.alloc_wgmma_desc()``
    """
    _refuse(
        "alloc_wgmma_desc",
        "a descriptor of wgmma (sm_90a) by hand, wanted the tile in shared memory",
        "pass the tile to T.gemm, which describes it",
    )


def alloc_tcgen05_smem_desc(dtype: Any = "uint64") -> NoReturn:
    """Refused: the register of a descriptor of shared memory of tcgen05, which needs sm_100.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``T.alloc_tcgen05_smem_desc()``
    """
    _refuse("alloc_tcgen05_smem_desc", _TENSOR_MEMORY, _USE_GEMM)


def alloc_tcgen05_instr_desc(dtype: Any = "uint32") -> NoReturn:
    """Refused: the register of a descriptor of an instruction of tcgen05, which needs sm_100.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``T.alloc_tcgen05_instr_desc()``
    """
    _refuse("alloc_tcgen05_instr_desc", _TENSOR_MEMORY, _USE_GEMM)


alloc_tcgen05_instruction_desc = alloc_tcgen05_instr_desc


def clc_try_cancel(result: Any, mbar: Any) -> NoReturn:
    """Refused: a request for the next cluster of the grid, which needs sm_100.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``T.clc_try_cancel(result, barrier[0])``
    """
    _refuse("clc_try_cancel", _LAUNCH_CONTROL, _USE_SCHEDULER)


def clc_try_cancel_multicast(result: Any, mbar: Any) -> NoReturn:
    """Refused: ``clc_try_cancel`` for all blocks of a cluster, which needs sm_100.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``T.clc_try_cancel_multicast(result, barrier[0])``
    """
    _refuse("clc_try_cancel_multicast", _LAUNCH_CONTROL, _USE_SCHEDULER)


def clc_is_canceled(result: Any) -> NoReturn:
    """Refused: whether there was a next cluster, which needs sm_100.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``if T.clc_is_canceled(result): T.copy(A, A_shared)``
    """
    _refuse("clc_is_canceled", _LAUNCH_CONTROL, _USE_SCHEDULER)


def clc_get_first_ctaid_x(result: Any) -> NoReturn:
    """Refused: the index in x of the next cluster's first block, which needs sm_100; the names for
    y and z are like it.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``bx = T.clc_get_first_ctaid_x(result)``
    """
    _refuse("clc_get_first_ctaid_x", _LAUNCH_CONTROL, _USE_SCHEDULER)


def clc_get_first_ctaid_y(result: Any) -> NoReturn:
    """Refused (see ``clc_get_first_ctaid_x``).

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``by = T.clc_get_first_ctaid_y(result)``
    """
    _refuse("clc_get_first_ctaid_y", _LAUNCH_CONTROL, _USE_SCHEDULER)


def clc_get_first_ctaid_z(result: Any) -> NoReturn:
    """Refused (see ``clc_get_first_ctaid_x``).

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``bz = T.clc_get_first_ctaid_z(result)``
    """
    _refuse("clc_get_first_ctaid_z", _LAUNCH_CONTROL, _USE_SCHEDULER)


def thread_return() -> NoReturn:
    """Refused: the end of one thread before the others, which would be missing at the barriers that
    the compiler places.

    Raises
    ------
    NotImplementedError
        Always.

    Example
    -------
    ``T.thread_return()``
    """
    _refuse(
        "thread_return",
        "a thread that ends before the others, wanted all threads of a block to reach its end",
        "put what follows into an `if`",
    )


__all__ = [
    "alloc_descriptor",
    "alloc_tcgen05_instr_desc",
    "alloc_tcgen05_instruction_desc",
    "alloc_tcgen05_smem_desc",
    "alloc_wgmma_desc",
    "clc_get_first_ctaid_x",
    "clc_get_first_ctaid_y",
    "clc_get_first_ctaid_z",
    "clc_is_canceled",
    "clc_try_cancel",
    "clc_try_cancel_multicast",
    "thread_return",
]
