"""Each name of the language that these sections of its specification list has a test that uses it.

``python testing/python/language/test_names.py`` prints the table, name and tests.
"""

import functools
import re
from pathlib import Path

import pytest

import tilelang.language as T

TESTS = Path(__file__).parents[1]

NAMES = {
    "functions": "prim_func macro Ref inline meta_class Var PrimExpr And Or Not DataType",
    "launch": "Kernel ClusterKernel CUDASourceCodeKernel get_thread_binding get_thread_bindings "
    "get_block_binding get_block_bindings get_thread_extent get_thread_extents get_block_extent "
    "get_block_extents KernelLaunchFrame",
    "tensors and pointers": "Tensor StridedTensor FragmentBuffer SharedBuffer LocalBuffer Buffer "
    "ptr handle make_tensor make_tensor_from_addr match_buffer dynamic symbolic dyn const empty "
    "reshape view",
    "dtypes": "int4 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool short int uint long "
    "float16 bfloat16 float32 float64 tfloat32 half float double float8_e4m3 float8_e4m3fn "
    "float8_e4m3fnuz float8_e4m3b11fnuz float8_e3m4 float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "float6_e2m3fn float6_e3m2fn float4_e2m1fn int8x4 float16x2 bfloat16x2 float32x2 dtype "
    "infinity min_value max_value",
    "allocation": "alloc_shared alloc_fragment alloc_local alloc_var alloc_global alloc_reducer "
    "alloc_buffer",
    "loops and control flow": "serial Serial unroll Unroll Parallel Pipelined Persistent "
    "vectorized Vectorized grid thread_binding parallel if_then_else Select assume any_of all_of "
    "loop_break",
    "copies": "copy async_copy ptx_cp_async im2col c2d_im2col transpose access_ptr address_of",
    "products": "gemm gemm_sp gemm_blockscaled GemmWarpPolicy",
    "layouts": "Layout Fragment annotate_layout",
    "fills and reductions": "fill clear reduce reduce_sum reduce_max reduce_min reduce_absmax "
    "reduce_abssum reduce_bitand reduce_bitor reduce_bitxor cumsum cummax warp_reduce_sum "
    "warp_reduce_max warp_reduce_min warp_reduce_bitand warp_reduce_bitor reducer_init "
    "reducer_update finalize_reducer any_of all_of comm_reducer tvm_thread_allreduce",
    "atomics": "atomic_add atomic_max atomic_min atomic_addx2 atomic_addx4 atomic_load "
    "atomic_store atomic_or",
    "math": "max min abs ceildiv floordiv floormod exp exp2 exp10 log log2 log10 log1p sqrt rsqrt "
    "sigmoid sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 erf floor ceil "
    "trunc round nearbyint fmod hypot copysign pow isnan isinf isfinite popcount __exp __exp2 "
    "__exp10 __log __log2 __log10 __tan __cos __sin fast_rcp ieee_add ieee_sub ieee_mul ieee_fmaf "
    "ieee_frcp ieee_fsqrt ieee_frsqrt ieee_fdiv fmul fma add2 sub2 mul2 fma2 max2 min2 abs2 cast "
    "Cast reinterpret clamp align_up extract_lane index_to_coordinates linear_index dp4a __ldg "
    "__ffs __fns ldg32 ldg64 ldg128 ldg256 stg32 stg64 stg128 stg256 lds32 lds64 lds128 sts32 "
    "sts64 sts128 prefetch_l2 if_then_else Select",
    "annotations": "use_swizzle annotate_layout annotate_safe_value annotate_l2_hit_ratio "
    "annotate_restrict_buffers annotate_min_blocks_per_sm annotate_compile_flags "
    "annotate_pass_configs import_source attr",
    "warp groups": "ws annotate_producer_reg_dealloc annotate_consumer_reg_alloc no_set_max_nreg "
    "disable_warp_group_reg_alloc annotate_ws_schedule annotate_ws_pipeline_depth ws_op WSID "
    "WSRole WSPipeline WSSync WSSyncKind WSScope WSSchedule",
    "synchronisation": "sync_threads sync_grid tvm_storage_sync named_barrier_arrive sync_warp "
    "ptx_commit_group "
    "ptx_wait_group shuffle_elect get_lane_idx get_warp_idx get_warp_idx_sync get_warp_group_idx "
    "shfl_xor shfl_down shfl_up shfl_sync any_sync all_sync ballot_sync ballot activemask "
    "match_any_sync match_all_sync syncthreads_count syncthreads_and syncthreads_or",
    "wgmma": "wgmma_gemm wgmma_mma wgmma_gemm_sp wait_wgmma",
    "mbarriers and clusters": "alloc_barrier alloc_cluster_barrier mbarrier_wait_parity "
    "barrier_wait mbarrier_arrive barrier_arrive mbarrier_expect_tx mbarrier_arrive_expect_tx "
    "ptx_arrive_cluster_barrier cp_async_barrier_noinc fence_proxy_async tma_copy tma_store_arrive "
    "tma_store_wait copy_cluster cluster_arrive_relaxed cluster_arrive cluster_wait cluster_sync "
    "block_rank_in_cluster get_cluster_dims get_cluster_size get_cluster_id get_cluster_ids "
    "get_cluster_extent get_cluster_extents set_max_nreg inc_max_nreg dec_max_nreg pdl_trigger "
    "pdl_sync",
    "scheduling": "PersistentTileScheduler",
    "instructions by hand": "ptx_mma ptx_mma_sp ptx_ldmatrix ptx_stmatrix alloc_descriptor "
    "alloc_wgmma_desc initialize_wgmma_descriptor increase_descriptor_offset warpgroup_arrive "
    "warpgroup_commit_batch warpgroup_wait warpgroup_fence_operand ptx_wgmma_ss ptx_wgmma_rs "
    "ptx_wgmma_sp "
    "create_tma_descriptor tma_load ptx_arrive_barrier ptx_init_barrier_thread_count "
    "ptx_fence_barrier_init",
    "refused": "alloc_tcgen05_smem_desc alloc_tcgen05_instr_desc alloc_tcgen05_instruction_desc "
    "initialize_tcgen05_descriptor ptx_tcgen05_mma_ss ptx_tcgen05_mma_ts "
    "ptx_tcgen05_mma_blockscaled_ss tcgen05_gemm tcgen05_mma tcgen05_gemm_sp "
    "tcgen05_gemm_blockscaled tcgen05_mma_blockscaled mma_gemm_blockscaled "
    "ptx_mma_block_scale make_blockscaled_gemm_layout tcgen05_mma_arrive "
    "tcgen05_before_thread_sync tcgen05_after_thread_sync alloc_tmem deallocate_tmem "
    "tcgen05_cp_warpx4 tcgen05_sf_warp_transpose tma_gather4 tma_scatter4 tma_gather4_bytes "
    "tma_load_2sm ptx_mma_sm70 clc_try_cancel clc_try_cancel_multicast clc_is_canceled "
    "clc_get_first_ctaid_x clc_get_first_ctaid_y clc_get_first_ctaid_z sync_global",
    "TVM's builder": "If Then Else While let LetStmt decl_buffer alloc_buffer launch_thread sblock "
    "sblock_attr sblock_alloc_buffer reads writes func_attr thread_return target tvm_access_ptr "
    "type_annotation tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down "
    "tvm_warp_shuffle_xor Ramp Broadcast Shuffle Cast shift_left shift_right bitwise_and "
    "bitwise_or bitwise_xor bitwise_not truncdiv truncmod clz",
    "debugging, extern, random numbers": "print device_assert call_extern call_intrin evaluate "
    "access_ptr address_of rng_init rng_rand rng_rand_float",
}
ALL = [name for names in NAMES.values() for name in names.split()]


@functools.cache
def texts():
    return {
        path.relative_to(TESTS).as_posix(): path.read_text()
        for path in sorted(TESTS.rglob("test_*.py"))
        if path != Path(__file__)
    }


@functools.cache
def files_of_words():
    """The tests in which each T.name, string of one word and beginning of an f-string stands."""
    found = {}
    for file, text in texts().items():
        for word in {*re.findall(r"\bT\.\w+|\"\w+\"|'\w+'|f\"\w*{", text)}:
            found.setdefault(word, []).append(file)
    return found


def uses(name):
    """The tests that use a name: as T.name, or as a string where they go through a list of them."""
    families = r"(?:(?<=^ldg)|(?<=^stg)|(?<=^lds)|(?<=^sts))\d+$|(?<=^reduce_)\w+"
    stem = re.sub(families, "", name)
    words = [f"T.{name}", f'"{name}"', f"'{name}'"]
    if stem != name:
        words.append(f'f"{stem}{{')
    return sorted({file for word in words for file in files_of_words().get(word, ())})


@pytest.mark.parametrize("name", ALL)
def test_name_is_there_and_used(name):
    value = getattr(T, name)
    if callable(value) and str(getattr(value, "__module__", "")).startswith("tilelang"):
        assert value.__doc__, f"T.{name} has no docstring"
    assert uses(name), f"no test uses T.{name}"


if __name__ == "__main__":
    for section, names in NAMES.items():
        print(f"{section}\n")
        for name in names.split():
            print(f"    T.{name:<26} {', '.join(uses(name))}")
        print()
