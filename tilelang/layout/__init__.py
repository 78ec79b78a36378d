"""Layouts as finite functions: where an element of a tile lives.

A `Layout` maps indices to physical coordinates, a `Fragment` maps them to a thread and a register.
Every question is answered from the table of the function (src/layout/layout.h). swizzle.py makes
layouts of shared memory, mma.py fragments of tensor-core operands, gemm_sp.py layouts of sparsity
metadata; analysis.py counts bank conflicts and memory transactions.
"""

from tilelang.layout.analysis import (
    Access,
    Wavefronts,
    global_sectors,
    memory_accesses,
    shared_wavefronts,
)
from tilelang.layout.fragment import Fragment
from tilelang.layout.gemm_sp import make_cutlass_metadata_layout
from tilelang.layout.layout import Layout
from tilelang.layout.mma import (
    make_fully_replicated_layout_fragment,
    make_gemm_fragment,
    make_gemm_fragment_8x8,
    make_gemm_fragment_8x8_transposed,
)
from tilelang.layout.swizzle import (
    SwizzleMode,
    detect_swizzle_mode,
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_padded_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
    make_tcgen05mma_swizzled_layout,
    make_volta_swizzled_layout,
    make_wgmma_swizzled_layout,
)

__all__ = [
    "Access",
    "Fragment",
    "Layout",
    "SwizzleMode",
    "Wavefronts",
    "detect_swizzle_mode",
    "global_sectors",
    "make_cutlass_metadata_layout",
    "make_full_bank_swizzled_layout",
    "make_fully_replicated_layout_fragment",
    "make_gemm_fragment",
    "make_gemm_fragment_8x8",
    "make_gemm_fragment_8x8_transposed",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_padded_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_tcgen05mma_swizzled_layout",
    "make_volta_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "memory_accesses",
    "shared_wavefronts",
]
