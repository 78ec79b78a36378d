"""Keys of the compiler's configuration, and the context that carries them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import Enum
from typing import Any

import tvm

from tilelang._ffi import get_function
from tilelang.compat.pass_configs import WITHOUT_EFFECT, say_without_effect


class PassConfigKey(str, Enum):
    """A configuration key. Members compare equal to their strings.

    Example: ``tilelang.compile(f, pass_configs={PassConfigKey.TL_ENABLE_FAST_MATH: True})``
    """

    TL_ENABLE_FAST_MATH = "tl.enable_fast_math"
    """NVRTC's fast math: approximate division, square root and functions. Default False."""
    TL_ENABLE_ASYNC_COPY = "tl.enable_async_copy"
    """Copies of pipelined loops may become cp.async. Default True."""
    TL_DISABLE_THREAD_STORAGE_SYNC = "tl.disable_thread_storage_sync"
    """No block-wide barriers are inserted: the program places its own. Default False."""
    TL_DISABLE_SHARED_MEMORY_REUSE = "tl.disable_shared_memory_reuse"
    """Every shared buffer has bytes of its own. Default False: buffers whose lives do not overlap
    share some."""
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE = "tl.enable_aggressive_shared_memory_merge"
    """Shared buffers of at most 512 bytes, too, share bytes where their lives do not overlap, which
    takes more barriers. Default False."""
    TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS = "tl.debug_merge_shared_memory_allocations"
    """Logs where each shared buffer is. Default False."""
    TL_DISABLE_DATA_RACE_CHECK = "tl.disable_data_race_check"
    """T.Parallel loops are not checked for iterations that depend on each other. Default False;
    TILELANG_ENABLE_DATA_RACE_CHECK=0 makes it True."""
    TL_DISABLE_BUFFER_INIT_CHECK = "tl.disable_buffer_init_check"
    """No warning for buffers that are read before anything is written to them. Default False."""
    TL_DISABLE_SAFE_MEMORY_ACCESS = "tl.disable_safe_memory_legalize"
    """Global accesses are not guarded: the program stays in bounds by itself. Default False."""
    TL_DISABLE_VECTORIZE_256 = "tl.disable_vectorize_256"
    """A thread touches at most 16 bytes at once, not the 32 of a sector where loops convert between
    element sizes. Default False."""
    TL_DISABLE_LOOP_UNSWITCHING = "tl.disable_loop_unswitching"
    """Conditions that do not change in a loop stay in it. Default False."""
    TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE = "tl.loop_unswitching_allow_non_trivial_else"
    """A loop is written twice for a condition with two branches. Default False."""
    TL_IF_STMT_BINDING_INLINE_REPLAYABLE_BINDS = "tl.if_stmt_binding_inline_replayable_binds"
    """Copies leave branches that name scalars, which their users then compute. Default True."""
    TL_CONFIG_INDEX_BITWIDTH = "tl.config_index_bitwidth"
    """64: every index of global memory is an int64. Default 32: where a tensor may need it."""
    TL_DISABLE_WGMMA = "tl.disable_wgmma"
    """T.gemm takes no tensor-core instruction of warp groups. Default False."""
    TL_DISABLE_WARP_SPECIALIZED = "tl.disable_warp_specialized"
    """No warps of a pipelined kernel become producers of its tiles. Default False."""
    TL_DISABLE_SHUFFLE_ELECT = "tl.disable_shuffle_elect"
    """Thread 0 issues copies by TMA, no elected lane of its warp. Default False."""
    TL_DISABLE_TMA_LOWER = "tl.disable_tma_lower"
    """Deprecated. No copy becomes TMA by itself. Default False."""
    TL_DISABLE_PRELOWER_SEMANTIC_CHECK = "tl.disable_prelower_semantic_check"
    """The tile program is not checked before lowering. Default False."""
    TL_EMIT_LINE_DIRECTIVES = "tl.emit_line_directives"
    """Generated source has ``#line`` directives to the Python source. Default False."""
    TL_DEVICE_COMPILE_FLAGS = "tl.device_compile_flags"
    """More options for NVRTC: a string split at blanks, or a list. Default none."""
    TL_PTXAS_REGISTER_USAGE_LEVEL = "tl.ptxas_register_usage_level"
    """ptxas ``--register-usage-level``, 0 to 10. Default none."""
    TL_ENABLE_DUMP_IR = "tl.enable_dump_ir"
    """Writes the program after every pass. Default False; TILELANG_DUMP_IR=1 does the same."""
    TL_DUMP_IR_DIR = "tl.dump_ir_path"
    """Where to. Default ``./dump_ir``."""
    TL_LAYOUT_VISUALIZATION_ENABLE = "tl.layout_visualization_enable"
    """Shows the layouts that inference chooses. Default False."""
    TL_LAYOUT_VISUALIZATION_FORMATS = "tl.layout_visualization_formats"
    """How: ``txt`` (the log), ``html``, ``png``, ``pdf``, ``svg`` (files in ``./tmp/<program>``),
    several with commas, or ``all``. Default ``txt``."""

    # TVM's own.
    TIR_SIMPLIFY = "tirx.StmtSimplify"
    """Options of TVM's simplifier, a dict. Default {}."""
    TIR_DISABLE_VECTORIZE = "tirx.disable_vectorize"
    """Every access is of one element; elements of fewer than 4 bytes then have no cp.async. Default
    False."""
    TIR_DISABLE_CSE = "tirx.disable_cse_tir"
    TIR_DISABLE_STORAGE_REWRITE = "tirx.disable_storage_rewrite"
    TIR_USE_ASYNC_COPY = "tirx.use_async_copy"
    TIR_ENABLE_DEBUG = "tirx.enable_debug"
    TIR_MERGE_STATIC_SMEM = "tirx.merge_static_smem"
    TIR_ADD_LOWER_PASS = "tirx.add_lower_pass"
    TIR_NOALIAS = "tirx.noalias"
    """Options of passes of TVM that do not run here. No effect."""

    # Of scripts. No effect; tilelang/compat/pass_configs.py says why.
    TL_SIMPLIFY = "tl.Simplify"
    TL_LAYOUT_COST_MODEL = "tl.layout_cost_model"
    TL_REDUCER_FORCE_BASELINE = "tl.reducer_force_baseline"
    TL_ENABLE_REDUCER_PLAN_VERBOSE = "tl.enable_reducer_plan_verbose"
    TL_ENABLE_LOWER_LDGSTG = "tl.enable_lower_ldgstg"
    TL_ENABLE_LOWER_LDGSTG_PREDICATED = "tl.enable_lower_ldgstg_predicated"
    TL_ENABLE_VECTORIZE_PLANNER_VERBOSE = "tl.enable_vectorize_planner_verbose"
    TL_ENABLE_PTXAS_VERBOSE_OUTPUT = "tl.enable_ptxas_verbose_output"
    TL_ENABLE_AUTO_SCHEDULE = "tl.enable_auto_schedule"
    TL_ENABLE_AUTO_WARP_SPECIALIZATION = "tl.enable_auto_warp_specialization"
    TL_DISABLE_FAST_MATH = "tl.disable_fast_math"
    TL_DISABLE_OUT_OF_BOUND_WARNING = "tl.disable_out_of_bound_warning"
    TL_DISABLE_DYNAMIC_TAIL_SPLIT = "tl.disable_dynamic_tail_split"
    TL_DYNAMIC_ALIGNMENT = "tl.dynamic_alignment"
    TL_FORCE_LET_INLINE = "tl.force_let_inline"
    TL_AST_PRINT_ENABLE = "tl.ast_print_enable"
    TL_STORAGE_REWRITE_DETECT_INPLACE = "tl.storage_rewrite_detect_inplace"
    TL_PASS_PROFILE = "tl.pass_profile"
    TL_PASS_PROFILE_THRESHOLD_MS = "tl.pass_profile_threshold_ms"
    TIR_ENABLE_EQUIV_TERMS_IN_CSE = "tirx.enable_equiv_terms_in_cse_tir"
    CUDA_KERNELS_OUTPUT_DIR = "cuda.kernels_output_dir"


# TVM renamed tir to tirx; scripts use both spellings.
_RENAMED = {"tirx.Simplify": "tirx.StmtSimplify"}
# What the compiler sets itself (tilelang/jit/second_choice.py, tilelang/engine/lower.py).
_OF_COMPILER = ("tl.second_choice.",)
_TVM_PREFIXES = ("tirx.", "tir.", "s_tir.", "relax.", "te.", "testing.", "instrument.")


def normalize_pass_configs(configs: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Returns `configs` with plain string keys, ``tir.`` spelled ``tirx.``.

    Keys of scripts that have no effect are left out, which the log says once. Raises `ValueError`
    for a key that neither tilelang nor TVM knows.
    """
    out: dict[str, Any] = {}
    own = {key.value for key in PassConfigKey} - {*WITHOUT_EFFECT}
    for key, value in (configs or {}).items():
        name = key.value if isinstance(key, PassConfigKey) else str(key)
        if name.startswith("tir."):
            name = "tirx." + name[len("tir.") :]
        name = _RENAMED.get(name, name)
        if name in WITHOUT_EFFECT:
            say_without_effect(name)
            continue
        if name == PassConfigKey.TL_DISABLE_TMA_LOWER.value:
            warnings.warn(f"pass config {name} is deprecated", DeprecationWarning, stacklevel=2)
        if name not in own and not name.startswith((*_TVM_PREFIXES, *_OF_COMPILER)):
            raise ValueError(
                f"pass config: found unknown key {name!r}, wanted one of {', '.join(sorted(own))}"
            )
        out[name] = value
    return out


class PassContext:
    """`tvm.transform.PassContext` that also takes our keys.

    TVM refuses keys that it does not know when a context is made; ours are added afterwards.

    Example::

        with PassContext(config={"tl.enable_async_copy": False}):
            mod = tilelang.transform.PipelinePlanning()(mod)
    """

    def __init__(self, config: Mapping[Any, Any] | None = None, **kwargs: Any):
        merged = normalize_pass_configs(config)
        ours = {k: v for k, v in merged.items() if k.startswith("tl.") and v is not None}
        theirs = {k: v for k, v in merged.items() if k not in ours and v is not None}
        self._context = tvm.transform.PassContext(config=theirs, **kwargs)
        if ours:
            get_function("ExtendPassConfig")(self._context, ours)

    @property
    def config(self) -> dict[str, Any]:
        """Every key that was given, with its value."""
        return dict(self._context.config)

    def __enter__(self) -> PassContext:
        self._context.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._context.__exit__(*exc)


def current_config(key: PassConfigKey, default: Any = None) -> Any:
    """Returns the value of `key` in the innermost context."""
    value = tvm.transform.PassContext.current().config.get(key.value)
    return default if value is None else value


__all__ = ["PassConfigKey", "PassContext", "current_config", "normalize_pass_configs"]
