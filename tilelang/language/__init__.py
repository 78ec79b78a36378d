"""The language: ``import tilelang.language as T``.

One file for each idea: function.py and macros.py (what is traced), launch.py, tensors.py,
dtypes.py, allocation.py, views.py, loops.py, copies.py, gathers.py, fills.py, gemms.py,
reductions.py, scans.py, reducers.py, atomics.py, annotations.py, math_ops.py, intrinsics.py,
synchronisation.py. Below them, source.py
and rewrite.py turn a Python function into one that calls hooks.py, and tracer.py holds the state of
a trace. ops.py and regions.py make the IR.
"""

from __future__ import annotations

from tvm.ir import Expr as PrimExpr
from tvm.ir import Var
from tvm.tirx import (
    Broadcast,
    Ramp,
    Shuffle,
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    copysign,
    cos,
    cosh,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    fmod,
    hypot,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    nearbyint,
    nextafter,
    popcount,
    pow,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)

from tilelang.language import dtypes, ops
from tilelang.language.allocation import (
    alloc_fragment,
    alloc_global,
    alloc_local,
    alloc_shared,
    alloc_var,
)
from tilelang.language.annotations import annotate_layout, annotate_safe_value, use_swizzle
from tilelang.language.atomics import (
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_load,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_store,
)
from tilelang.language.copies import async_copy, copy, ptx_commit_group, ptx_wait_group
from tilelang.language.dtypes import (
    bfloat16,
    bool,
    double,
    dtype,
    float,
    float4_e2m1fn,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    half,
    int,
    int4,
    int8,
    int16,
    int32,
    int64,
    long,
    short,
    uint,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilelang.language.fills import clear, fill
from tilelang.language.function import prim_func
from tilelang.language.gathers import c2d_im2col, im2col, transpose
from tilelang.language.gemms import GemmWarpPolicy, gemm, gemm_sp
from tilelang.language.intrinsics import address_of, call_extern, call_intrin, evaluate
from tilelang.language.launch import (
    ClusterKernel,
    Kernel,
    KernelLaunchFrame,
    get_block_binding,
    get_block_bindings,
    get_block_extent,
    get_block_extents,
    get_thread_binding,
    get_thread_bindings,
    get_thread_extent,
    get_thread_extents,
)
from tilelang.language.loops import (
    Parallel,
    Pipelined,
    Serial,
    Unroll,
    Vectorized,
    grid,
    serial,
    unroll,
    vectorized,
)
from tilelang.language.macros import Ref, macro
from tilelang.language.math_ops import (
    Cast,
    Select,
    cast,
    ceildiv,
    clamp,
    extract_lane,
    floordiv,
    floormod,
    if_then_else,
    infinity,
    max,
    max_value,
    min,
    min_value,
    reinterpret,
)
from tilelang.language.reducers import (
    alloc_reducer,
    finalize_reducer,
    reducer_init,
    reducer_update,
)
from tilelang.language.reductions import (
    all_of,
    any_of,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reduce_max,
    reduce_min,
    reduce_sum,
    warp_reduce_bitand,
    warp_reduce_bitor,
    warp_reduce_bitxor,
    warp_reduce_max,
    warp_reduce_min,
    warp_reduce_sum,
)
from tilelang.language.scans import cummax, cumsum
from tilelang.language.synchronisation import (
    get_lane_idx,
    get_warp_group_idx,
    get_warp_idx,
    get_warp_idx_sync,
    shuffle_elect,
    sync_threads,
    sync_warp,
)
from tilelang.language.tensors import Buffer, StridedTensor, Tensor, dynamic
from tilelang.language.views import reshape, view
from tilelang.layout import Fragment, Layout

range = serial

__tilelang_dialect__ = "cuda"

globals().update(dtypes.VECTORS)
