"""Configuration keys that scripts pass and that have no effect here, and why they need none."""

from __future__ import annotations

from functools import cache

from tilelang.utils.log import logger

WITHOUT_EFFECT = {
    "tl.enable_lower_ldgstg": "accesses of global memory are vectors without it",
    "tl.enable_lower_ldgstg_predicated": "accesses of global memory are predicated without it",
    "tl.enable_vectorize_planner_verbose": "kernel.get_kernel_source() shows each vector's width",
    "tl.enable_ptxas_verbose_output": "kernel.resource_usage has what ptxas says",
    "tl.disable_fast_math": "fast math is off unless tl.enable_fast_math is set",
    "tl.disable_dynamic_tail_split": "tails of vectors are split off where they are needed",
    "tl.dynamic_alignment": "alignment is proved from the shapes; write a dimension as n * 8",
    "tl.disable_out_of_bound_warning": "accesses out of bounds are guarded or refused",
    "tl.layout_cost_model": "layouts are chosen by what the operators propose",
    "tl.reducer_force_baseline": "a reducer has one form, an array of each thread",
    "tl.enable_reducer_plan_verbose": "a reducer has one form, an array of each thread",
    "tl.force_let_inline": "names of scalars are written out where that helps",
    "tl.ast_print_enable": "tl.enable_dump_ir writes the program after every pass",
    "tl.storage_rewrite_detect_inplace": "registers are shared by ptxas",
    "tl.pass_profile": "TILELANG_PASS_PROFILE=1 logs the time of each pass",
    "tl.pass_profile_threshold_ms": "TILELANG_PASS_PROFILE_THRESHOLD_MS says from when on",
    "tl.enable_auto_schedule": "pipelined loops are planned without it",
    "tl.enable_auto_warp_specialization": "tl.disable_warp_specialized turns it off; it is on",
    "tl.Simplify": "the simplifier of TVM runs as it is",
    "tirx.enable_equiv_terms_in_cse_tir": "NVRTC finds common subexpressions",
    "cuda.kernels_output_dir": "kernel.get_kernel_source() has the source, kernel.cubin the binary",
}
"""A key, and what is so without it."""


@cache
def say_without_effect(key: str) -> None:
    """Log, once a process, that `key` has no effect."""
    logger.info("pass config %s has no effect: %s", key, WITHOUT_EFFECT[key])
