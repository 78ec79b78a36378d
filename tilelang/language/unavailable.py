"""Names of the language that this compiler refuses, and what it says.

They belong to chips after sm_90, whose tensor memory and launch control no target here has, to one
before sm_75, or to code by hand of what an operator does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def _refused(found: str, repair: str) -> Callable[[_F], _F]:
    """Make a function one that raises: it needs ``found``, and ``repair`` is what to do."""

    def decorate(function: _F) -> _F:
        name = function.__name__

        @functools.wraps(function)
        def refuse(*arguments: Any, **keywords: Any) -> Any:
            raise NotImplementedError(f"T.{name} is not supported: found {found}; {repair}")

        named = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty
        ]
        refuse.__doc__ = (
            f"{function.__doc__}\n\n    Raises\n    ------\n    NotImplementedError\n"
            f"        Always.\n\n    Example\n    -------\n    ``T.{name}({', '.join(named)})``\n"
        )
        return refuse  # type: ignore[return-value]

    return decorate


_USE_GEMM = "use T.gemm, which chooses the instruction of the chip"
_USE_SCHEDULER = "deal tiles with T.PersistentTileScheduler or T.Persistent"
_USE_COPY = "copy the rows with T.tma_copy or T.copy"
_tensor_memory = _refused(
    "tensor memory of tcgen05, which needs sm_100, wanted a chip up to sm_90",
    "keep accumulators in T.alloc_fragment",
)
_tensor_core = _refused("tcgen05.mma, which needs sm_100, wanted a chip up to sm_90", _USE_GEMM)
_block_scaled = _refused(
    "products with scales of blocks, which need sm_100 or sm_120, wanted a chip up to sm_90",
    "use T.gemm_blockscaled on gfx950, or scale the operands in a T.Parallel loop around T.gemm",
)
_launch_control = _refused(
    "clusterlaunchcontrol, which needs sm_100, wanted a chip up to sm_90", _USE_SCHEDULER
)
_gather = _refused(
    "copies of four rows by TMA, which need sm_100, wanted a chip up to sm_90",
    _USE_COPY,
)


@_tensor_core
def alloc_tcgen05_smem_desc(dtype: Any = "uint64") -> Any:
    """Refused: the register of a descriptor of shared memory of tcgen05 (sm_100)."""


@_tensor_core
def alloc_tcgen05_instr_desc(dtype: Any = "uint32") -> Any:
    """Refused: the register of a descriptor of an instruction of tcgen05 (sm_100)."""


@_tensor_core
def initialize_tcgen05_descriptor(*arguments: Any, **keywords: Any) -> Any:
    """Refused: a descriptor of shared memory of tcgen05 (sm_100)."""


@_tensor_core
def ptx_tcgen05_mma_ss(*arguments: Any, **keywords: Any) -> Any:
    """Refused: a product of tcgen05 with operands from shared memory (sm_100)."""


@_tensor_core
def ptx_tcgen05_mma_ts(*arguments: Any, **keywords: Any) -> Any:
    """Refused: a product of tcgen05 with A from tensor memory (sm_100)."""


@_block_scaled
def ptx_tcgen05_mma_blockscaled_ss(*arguments: Any, **keywords: Any) -> Any:
    """Refused: a product of tcgen05 with scales of blocks (sm_100)."""


@_tensor_core
def tcgen05_gemm(A: Any, B: Any, C: Any, *arguments: Any, mbar: Any = None, **keywords: Any) -> Any:
    """Refused: an asynchronous product into tensor memory (sm_100)."""


@_block_scaled
def tcgen05_gemm_blockscaled(
    A: Any, B: Any, C: Any, SFA_tmem: Any, SFB_tmem: Any, *arguments: Any, **keywords: Any
) -> Any:
    """Refused: an asynchronous product with scales of blocks (sm_100)."""


@_tensor_core
def tcgen05_gemm_sp(A_sparse: Any, E: Any, B: Any, C: Any, *arguments: Any, **keywords: Any) -> Any:
    """Refused: an asynchronous product with a sparse A into tensor memory (sm_100)."""


@_block_scaled
def mma_gemm_blockscaled(
    A: Any, B: Any, C: Any, SFA: Any, SFB: Any, *arguments: Any, **keywords: Any
) -> Any:
    """Refused: a product of warps with scales of blocks (sm_120)."""


@_block_scaled
def ptx_mma_block_scale(*arguments: Any, **keywords: Any) -> Any:
    """Refused: mma with scales of blocks (sm_120)."""


@_block_scaled
def make_blockscaled_gemm_layout(C: Any, A: Any, transpose_A: bool = False) -> Any:
    """Refused: where the accumulators of a product with scales of blocks lie (sm_120)."""


@_tensor_core
def tcgen05_mma_arrive(mbar: Any, arrive_2cta: bool = False) -> Any:
    """Refused: the arrival at an mbarrier behind products of tcgen05 (sm_100)."""


@_tensor_core
def tcgen05_before_thread_sync() -> Any:
    """Refused: a fence of tcgen05 (sm_100)."""


@_tensor_core
def tcgen05_after_thread_sync() -> Any:
    """Refused: a fence of tcgen05 (sm_100)."""


@_tensor_memory
def alloc_tmem(shape: Any, dtype: Any) -> Any:
    """Refused: an allocation of tensor memory (sm_100)."""


@_tensor_memory
def deallocate_tmem(buf: Any) -> Any:
    """Refused: the end of an allocation of tensor memory (sm_100)."""


@_tensor_memory
def tcgen05_cp_warpx4(smem: Any, tmem: Any, col_off: int = 0, *, use_2cta: bool = False) -> Any:
    """Refused: a copy from shared to tensor memory (sm_100)."""


@_tensor_memory
def tcgen05_sf_warp_transpose(smem: Any) -> Any:
    """Refused: scales of blocks in the order of tensor memory (sm_100)."""


@_gather
def tma_gather4(src: Any, dst: Any, col: Any, rows: Any, **keywords: Any) -> Any:
    """Refused: a load of four rows of a tensor (sm_100)."""


@_gather
def tma_scatter4(src: Any, dst: Any, col: Any, rows: Any, **keywords: Any) -> Any:
    """Refused: a store of four rows of a tensor (sm_100)."""


@_gather
def tma_gather4_bytes(K_box: int, dtype: Any) -> Any:
    """Refused: the bytes of ``tma_gather4`` (sm_100)."""


@_refused(
    "a load for two blocks that multiply together, which needs sm_100, wanted a chip up to sm_90",
    "use T.tma_load, with cluster_mask for several blocks",
)
def tma_load_2sm(*arguments: Any, **keywords: Any) -> Any:
    """Refused: a load of a box for two blocks that multiply together (sm_100)."""


@_refused(
    "mma.m8n8k4 of float16, which is sm_70's and emulated by later chips, wanted mma.m16n8k16 or "
    "mma.m16n8k8 of T.ptx_mma",
    _USE_GEMM,
)
def ptx_mma_sm70(*arguments: Any, **keywords: Any) -> Any:
    """Refused: mma with four products of 8 by 8 in a warp (sm_70)."""


@_launch_control
def clc_try_cancel(result: Any, mbar: Any) -> Any:
    """Refused: a request for the next cluster of the grid (sm_100)."""


@_launch_control
def clc_try_cancel_multicast(result: Any, mbar: Any) -> Any:
    """Refused: ``clc_try_cancel`` for all blocks of a cluster (sm_100)."""


@_launch_control
def clc_is_canceled(result: Any) -> Any:
    """Refused: whether there was a next cluster (sm_100)."""


@_launch_control
def clc_get_first_ctaid_x(result: Any) -> Any:
    """Refused: the index in x of the next cluster's first block (sm_100)."""


@_launch_control
def clc_get_first_ctaid_y(result: Any) -> Any:
    """Refused: the index in y of the next cluster's first block (sm_100)."""


@_launch_control
def clc_get_first_ctaid_z(result: Any) -> Any:
    """Refused: the index in z of the next cluster's first block (sm_100)."""


@_refused(
    "a barrier of all blocks between kernels, which the language no longer has, wanted the end of "
    "the kernel",
    "begin another T.Kernel, or use T.sync_grid",
)
def sync_global() -> Any:
    """Refused: a barrier that the language no longer has."""


alloc_tcgen05_instruction_desc = alloc_tcgen05_instr_desc
tcgen05_mma = tcgen05_gemm
tcgen05_mma_blockscaled = tcgen05_gemm_blockscaled

__all__ = [
    "alloc_tcgen05_instr_desc",
    "alloc_tcgen05_instruction_desc",
    "alloc_tcgen05_smem_desc",
    "alloc_tmem",
    "clc_get_first_ctaid_x",
    "clc_get_first_ctaid_y",
    "clc_get_first_ctaid_z",
    "clc_is_canceled",
    "clc_try_cancel",
    "clc_try_cancel_multicast",
    "deallocate_tmem",
    "initialize_tcgen05_descriptor",
    "make_blockscaled_gemm_layout",
    "mma_gemm_blockscaled",
    "ptx_mma_block_scale",
    "ptx_mma_sm70",
    "ptx_tcgen05_mma_blockscaled_ss",
    "ptx_tcgen05_mma_ss",
    "ptx_tcgen05_mma_ts",
    "sync_global",
    "tcgen05_after_thread_sync",
    "tcgen05_before_thread_sync",
    "tcgen05_cp_warpx4",
    "tcgen05_gemm",
    "tcgen05_gemm_blockscaled",
    "tcgen05_gemm_sp",
    "tcgen05_mma",
    "tcgen05_mma_arrive",
    "tcgen05_mma_blockscaled",
    "tcgen05_sf_warp_transpose",
    "tma_gather4",
    "tma_gather4_bytes",
    "tma_load_2sm",
    "tma_scatter4",
]
