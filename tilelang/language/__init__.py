"""The language: ``import tilelang.language as T``.

One file for each idea: function.py and macros.py (what is traced), launch.py, tensors.py,
dtypes.py, allocation.py, views.py, loops.py, copies.py, gathers.py, fills.py, gemms.py,
reductions.py, scans.py, reducers.py, atomics.py, annotations.py, math_ops.py, intrinsics.py,
synchronisation.py, thread_reductions.py, barriers.py, proxies.py, clusters.py, warp_groups.py,
register_counts.py, dependent_launch.py; instructions by hand are in mma.py, wgmma.py,
descriptors.py and tensor_maps.py, TVM's names in tvm_names.py; unavailable.py has what is refused.
Below them, source.py and rewrite.py turn a Python function into one that calls hooks.py, and
tracer.py holds the state of a trace. ops.py, regions.py and element_address.py make the IR.
"""

import typing as _typing

from tvm.ir import Expr as PrimExpr
from tvm.ir import Var
from tvm.tirx import Broadcast, Ramp, Shuffle

from tilelang.compat import tvm_nodes as _tvm_nodes
from tilelang.compat.conditions import And, Not, Or
from tilelang.language import dtypes, ops
from tilelang.language import plain_functions as _plain_functions
from tilelang.language.allocation import (
    alloc_buffer,
    alloc_fragment,
    alloc_global,
    alloc_local,
    alloc_shared,
    alloc_var,
)
from tilelang.language.annotations import (
    annotate_compile_flags,
    annotate_l2_hit_ratio,
    annotate_layout,
    annotate_min_blocks_per_sm,
    annotate_pass_configs,
    annotate_restrict_buffers,
    annotate_safe_value,
    attr,
    import_source,
    use_swizzle,
)
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
from tilelang.language.barriers import (
    alloc_barrier,
    alloc_cluster_barrier,
    barrier_arrive,
    barrier_wait,
    cp_async_barrier_noinc,
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_expect_tx,
    mbarrier_wait_parity,
    ptx_arrive_cluster_barrier,
)
from tilelang.language.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    clz,
    popcount,
    shift_left,
    shift_right,
    truncdiv,
    truncmod,
)
from tilelang.language.builder import (
    Else,
    If,
    LetStmt,
    Then,
    While,
    decl_buffer,
    func_attr,
    launch_thread,
    let,
    reads,
    sblock,
    thread_binding,
    writes,
)
from tilelang.language.clusters import (
    block_rank_in_cluster,
    cluster_arrive,
    cluster_arrive_relaxed,
    cluster_sync,
    cluster_wait,
    get_cluster_dims,
    get_cluster_extent,
    get_cluster_extents,
    get_cluster_id,
    get_cluster_ids,
    get_cluster_size,
)
from tilelang.language.constants import const
from tilelang.language.copies import (
    async_copy,
    copy,
    ptx_commit_group,
    ptx_cp_async,
    ptx_wait_group,
)
from tilelang.language.debugging import device_assert, print
from tilelang.language.dependent_launch import pdl_sync, pdl_trigger
from tilelang.language.descriptors import (
    alloc_descriptor,
    alloc_wgmma_desc,
    increase_descriptor_offset,
    initialize_wgmma_descriptor,
)
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
    tfloat32,
    uint,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilelang.language.dtypes import dtype as DataType
from tilelang.language.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
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
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from tilelang.language.fills import clear, fill
from tilelang.language.gathers import c2d_im2col, im2col, transpose
from tilelang.language.gemms import (
    GemmWarpPolicy,
    gemm,
    gemm_blockscaled,
    gemm_sp,
    wait_wgmma,
    wgmma_gemm,
    wgmma_gemm_sp,
    wgmma_mma,
)
from tilelang.language.header import empty
from tilelang.language.intrinsics import access_ptr, address_of, call_extern, call_intrin, evaluate
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
    assume,
    grid,
    loop_break,
    parallel,
    serial,
    unroll,
    vectorized,
)
from tilelang.language.macros import Ref, inline, meta_class
from tilelang.language.math_ops import (
    Cast,
    Select,
    align_up,
    cast,
    ceildiv,
    clamp,
    extract_lane,
    floordiv,
    floormod,
    if_then_else,
    index_to_coordinates,
    infinity,
    linear_index,
    max,
    max_value,
    min,
    min_value,
    pow,
    reinterpret,
    round,
)
from tilelang.language.mma import (
    ptx_ldmatrix,
    ptx_mma,
    ptx_mma_sp,
    ptx_stmatrix,
)
from tilelang.language.persistent import Persistent
from tilelang.language.pointers import handle, make_tensor, make_tensor_from_addr, match_buffer, ptr
from tilelang.language.precise_math import (
    __cos,
    __exp,
    __exp2,
    __exp10,
    __log,
    __log2,
    __log10,
    __sin,
    __tan,
    abs2,
    add2,
    fast_rcp,
    fma,
    fma2,
    fmul,
    ieee_add,
    ieee_fdiv,
    ieee_fmaf,
    ieee_frcp,
    ieee_frsqrt,
    ieee_fsqrt,
    ieee_mul,
    ieee_sub,
    max2,
    min2,
    mul2,
    sub2,
)
from tilelang.language.proxies import fence_proxy_async, tma_store_arrive, tma_store_wait
from tilelang.language.random import rng_init, rng_rand, rng_rand_float
from tilelang.language.ranks import (
    num_ranks,
    peer,
    put_signal,
    rank,
    signal_add,
    signal_set,
    signal_wait_until,
    sync_ranks,
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
from tilelang.language.register_counts import dec_max_nreg, inc_max_nreg, set_max_nreg
from tilelang.language.scans import cummax, cumsum
from tilelang.language.scheduler import PersistentTileScheduler
from tilelang.language.source_kernels import CUDASourceCodeKernel
from tilelang.language.synchronisation import (
    get_lane_idx,
    get_warp_group_idx,
    get_warp_idx,
    get_warp_idx_sync,
    named_barrier_arrive,
    shuffle_elect,
    sync_grid,
    sync_threads,
    sync_warp,
)
from tilelang.language.synchronisation import storage_sync as tvm_storage_sync
from tilelang.language.tensor_maps import (
    create_tma_descriptor,
    tma_load,
)
from tilelang.language.tensors import (
    Buffer,
    FragmentBuffer,
    LocalBuffer,
    SharedBuffer,
    StridedTensor,
    SymmetricTensor,
    Tensor,
    dyn,
    dynamic,
    symbolic,
)
from tilelang.language.thread_reductions import comm_reducer, tvm_thread_allreduce
from tilelang.language.tma import copy_cluster, tma_copy
from tilelang.language.tvm_names import (
    ptx_arrive_barrier,
    ptx_fence_barrier_init,
    ptx_init_barrier_thread_count,
    sblock_alloc_buffer,
    sblock_attr,
    target,
    thread_return,
    tvm_access_ptr,
    tvm_warp_shuffle,
    tvm_warp_shuffle_down,
    tvm_warp_shuffle_up,
    tvm_warp_shuffle_xor,
    type_annotation,
)
from tilelang.language.unavailable import (
    alloc_tcgen05_instr_desc,
    alloc_tcgen05_instruction_desc,
    alloc_tcgen05_smem_desc,
    alloc_tmem,
    clc_get_first_ctaid_x,
    clc_get_first_ctaid_y,
    clc_get_first_ctaid_z,
    clc_is_canceled,
    clc_try_cancel,
    clc_try_cancel_multicast,
    deallocate_tmem,
    initialize_tcgen05_descriptor,
    make_blockscaled_gemm_layout,
    mma_gemm_blockscaled,
    ptx_mma_block_scale,
    ptx_mma_sm70,
    ptx_tcgen05_mma_blockscaled_ss,
    ptx_tcgen05_mma_ss,
    ptx_tcgen05_mma_ts,
    sync_global,
    tcgen05_after_thread_sync,
    tcgen05_before_thread_sync,
    tcgen05_cp_warpx4,
    tcgen05_gemm,
    tcgen05_gemm_blockscaled,
    tcgen05_gemm_sp,
    tcgen05_mma,
    tcgen05_mma_arrive,
    tcgen05_mma_blockscaled,
    tcgen05_sf_warp_transpose,
    tma_gather4,
    tma_gather4_bytes,
    tma_load_2sm,
    tma_scatter4,
)
from tilelang.language.vector_memory import (
    __ffs,
    __fns,
    __ldg,
    dp4a,
    ldg32,
    ldg64,
    ldg128,
    ldg256,
    lds32,
    lds64,
    lds128,
    prefetch_l2,
    stg32,
    stg64,
    stg128,
    stg256,
    sts32,
    sts64,
    sts128,
)
from tilelang.language.vectors import *  # noqa: F403
from tilelang.language.views import reshape, view
from tilelang.language.warp_groups import (
    annotate_consumer_reg_alloc,
    annotate_producer_reg_dealloc,
    disable_warp_group_reg_alloc,
    no_set_max_nreg,
    ws,
)
from tilelang.language.warps import (
    activemask,
    all_sync,
    any_sync,
    ballot,
    ballot_sync,
    match_all_sync,
    match_any_sync,
    shfl_down,
    shfl_sync,
    shfl_up,
    shfl_xor,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
)
from tilelang.language.wgmma import (
    ptx_wgmma_rs,
    ptx_wgmma_sp,
    ptx_wgmma_ss,
    warpgroup_arrive,
    warpgroup_commit_batch,
    warpgroup_fence_operand,
    warpgroup_wait,
)
from tilelang.language.ws_roles import (
    consumer_release,
    consumer_wait,
    producer_acquire,
    producer_barrier,
    producer_commit,
    ws_role,
)
from tilelang.language.ws_schedule import (
    WSID,
    WSPipeline,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
    annotate_ws_pipeline_depth,
    annotate_ws_schedule,
    ws_op,
)
from tilelang.layout import Fragment, Layout

# Annotations of traced functions are values, `T.Tensor((M, K), dtype)`, which only functions under
# this decorator of the typing module may have; type checkers look at its identity, not its effect.
if _typing.TYPE_CHECKING:
    from typing import no_type_check as macro
    from typing import no_type_check as prim_func
else:
    from tilelang.language.function import prim_func
    from tilelang.language.macros import macro

    def __getattr__(name: str) -> _typing.NoReturn:
        if name.startswith("float4_e2m1_unpacked"):
            raise AttributeError(f"T.{name}: {dtypes.NO_UNPACKED}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


range = serial

__tilelang_dialect__ = "cuda"
