"""Hopper's instructions under NVRTC: every function once, and products whose registers stay put."""

from pathlib import Path

import pytest

from tilelang.cuda.nvrtc import compile_cubin

COPIES = """#include <tl/bulk_copy.h>
#include <tl/common.h>
#include <tl/mbarrier.h>
#include <tl/tma.h>
#include <tl/warp_group.h>
extern "C" __global__ void __launch_bounds__(128) copies_kernel(
    const __grid_constant__ CUtensorMap map, float* global, int i) {
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  __shared__ uint64_t barrier[2];
  unsigned char* s = buf_dyn_shmem;
  tl::prefetch_tma_descriptor(map);
  if (tl::shuffle_elect<0>() || tl::shuffle_elect<64>() || tl::elect_one()) {
    tl::mbarrier_init(barrier, 1);
    tl::fence_barrier_init();
  }
  tl::sync_threads();
  tl::pdl_sync();
  tl::mbarrier_arrive_expect_tx(barrier, 1024);
  tl::tma_load(map, barrier, s, i);
  tl::tma_load(map, barrier, s, i, 1);
  tl::tma_load<tl::evict_first>(map, barrier, s, i, 1, 2);
  tl::tma_load<tl::evict_last>(map, barrier, s, i, 1, 2, 3);
  tl::tma_load(map, barrier, s, i, 1, 2, 3, 4);
  tl::tma_load_multicast(map, barrier, s, 3, i, 1);
  tl::tma_load_im2col<3>(map, barrier, s, 1, 2, 3, 4);
  tl::tma_load_im2col<4>(map, barrier, s, 1, 2, 3, 4, 5, 6);
  tl::tma_load_im2col<5>(map, barrier, s, 1, 2, 3, 4, 5, 6, 7, 8);
  tl::tma_load_im2col_multicast<4>(map, barrier, s, 3, 1, 2, 3, 4, 5, 6);
  tl::tma_prefetch(map, 1, 2, 3);
  tl::mbarrier_wait(barrier, 0);
  while (!tl::mbarrier_try_wait(barrier, 1)) {}
  while (!tl::mbarrier_test_wait(barrier, 1)) {}
  tl::cp_async_mbarrier_arrive(barrier);
  tl::cp_async_mbarrier_arrive_noinc(barrier);
  tl::mbarrier_arrive(barrier);
  tl::mbarrier_arrive(barrier, 3);
  tl::mbarrier_arrive_warp(barrier);
  tl::mbarrier_arrive_remote(barrier, 1);
  tl::mbarrier_arrive_remote(barrier, 1, 2);
  tl::mbarrier_arrive_remote_cta(barrier, 1);
  tl::mbarrier_arrive_expect_tx_remote(barrier, 64, 1);
  tl::mbarrier_wait_cluster(barrier, 1);
  tl::mbarrier_expect_tx(barrier, 4);
  tl::mbarrier_complete_tx(barrier, 4);
  tl::mbarrier_inval(barrier);
  tl::fence_proxy_async();
  tl::tma_store(map, s, i, i);
  tl::tma_reduce<tl::SumOp>(map, s, i, i, i);
  tl::tma_reduce<tl::MaxOp>(map, s, i, i);
  tl::tma_reduce<tl::MinOp>(map, s, i, i);
  tl::tma_reduce<tl::BitAndOp>(map, s, i);
  tl::tma_reduce<tl::BitOrOp>(map, s, i);
  tl::tma_reduce<tl::BitXorOp>(map, s, i);
  tl::tma_store_arrive();
  tl::tma_store_wait<0>();
  tl::tma_store_wait<1, false>();
  tl::bulk_load(s, global, 16, barrier);
  tl::bulk_load_multicast(s, global, 16, barrier, 3);
  tl::bulk_copy_remote(s, s + 64, 16, barrier, 1);
  tl::bulk_store(global, s, 16);
  tl::bulk_reduce_add(global, (float*)s, 16);
  tl::bulk_reduce_add((double*)global, (double*)s, 16);
  tl::bulk_reduce_add((half_t*)global, (half_t*)s, 16);
  tl::bulk_reduce_add((bfloat16_t*)global, (bfloat16_t*)s, 16);
  tl::bulk_reduce_add((int*)global, (int*)s, 16);
  tl::bulk_reduce_add((uint64_t*)global, (uint64_t*)s, 16);
  tl::bulk_prefetch(global, 64);
  tl::pdl_trigger();
}
"""
PRODUCTS = """#include <tl/common.h>
#include <tl/wgmma_rs.h>
#include <tl/wgmma_ss.h>
template <int N, typename TA, typename TB, typename TC, bool a_major, bool b_major, bool registers>
__device__ void product(TC* out) {
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  constexpr int K = tl::wgmma_k<TA>;
  const uint64_t a = tl::wgmma_descriptor<128>(buf_dyn_shmem, 16, 1024);
  const uint64_t b = tl::wgmma_descriptor<64>(buf_dyn_shmem + 8192, 16, 512);
  TC d[N / 2];
  tl::mma_memory<TA> fragment[4 * K / 2];
  if constexpr (registers) {
    for (int i = 0; i < 4 * K / 2; ++i)
      fragment[i] = ((tl::mma_memory<TA>*)buf_dyn_shmem)[i * 128 + threadIdx.x];
  }
  tl::warpgroup_arrive();
  TL_UNROLL for (int k = 0; k < 4; ++k) {
    const uint64_t b_k = tl::wgmma_descriptor_advance(b, 32 * k);
    if constexpr (registers) {
      tl::wgmma_rs<64, N, K, TA, TB, TC, b_major>(d, fragment + k * K / 2, b_k, k > 0);
    } else {
      const uint64_t a_k = tl::wgmma_descriptor_advance(a, 32 * k);
      tl::wgmma_ss<64, N, K, TA, TB, TC, a_major, b_major>(d, a_k, b_k, k > 0);
    }
  }
  tl::warpgroup_commit_batch();
  tl::warpgroup_wait<0>();
  tl::warpgroup_fence_operand<N / 2>(d);
  for (int i = 0; i < N / 2; ++i) out[i * 128 + threadIdx.x] = d[i];
}
"""
GROUPS = {
    "halves": """product<256, half_t, half_t, float, true, true, false>(f);
  product<128, half_t, half_t, half_t, true, false, true>(h);
  product<72, half_t, half_t, half_t, false, false, false>(h);
  product<8, bfloat16_t, bfloat16_t, float, true, false, true>(f);""",
    "floats": """product<96, tfloat32_t, tfloat32_t, float, true, true, false>(f);
  product<200, tfloat32_t, tfloat32_t, float, true, true, true>(f);""",
    "float8": """product<128, fp8_e4_t, fp8_e4_t, float, true, true, false>(f);
  product<64, fp8_e4_t, fp8_e5_t, half_t, true, true, true>(h);
  product<24, fp8_e5_t, fp8_e4_t, float, true, true, true>(f);
  product<16, fp8_e5_t, fp8_e5_t, half_t, true, true, false>(h);""",
    "integers": """product<240, int8_t, int8_t, int, true, true, false>(n);
  product<24, int8_t, uint8_t, int, true, true, true>(n);
  product<32, uint8_t, int8_t, int, true, true, true>(n);
  product<256, uint8_t, uint8_t, int, true, true, false>(n);""",
}


def compiled(source, name):
    cubin = compile_cubin(source, "sm_90a", [name], ["--no-cache"])
    usage = cubin.resource_usage[name]
    assert (usage.stack, usage.spill_stores) == (0, 0)
    # ptxas makes products wait for each other where their registers are touched between them.
    assert "wgmma" not in cubin.log
    return usage


def test_copies_and_barriers():
    compiled(COPIES, "copies_kernel")


@pytest.mark.parametrize("group", GROUPS)
def test_products(group):
    kernel = f"""
extern "C" __global__ void __launch_bounds__(128) products_kernel(float* f, half_t* h, int* n) {{
  {GROUPS[group]}
}}
"""
    compiled(PRODUCTS + kernel, "products_kernel")


@pytest.mark.parametrize("blocks", [1, 2])
def test_gemm_needs_the_registers_that_it_has(blocks):
    source = (Path(__file__).parents[1] / "hopper_gemm.cu").read_text()
    source = source.replace("kBlocks = 1", f"kBlocks = {blocks}")
    # 384 threads share 64 K registers: 168 each.
    assert compiled(source, "gemm").registers == 168


def test_products_that_do_not_exist():
    kernel = """
extern "C" __global__ void products_kernel(float* f) {
  product<12, half_t, half_t, float, true, true, false>(f);
}
"""
    with pytest.raises(RuntimeError, match="tl::wgmma<M, N, K, A, B, C> has M = 64"):
        compile_cubin(PRODUCTS + kernel, "sm_90a", ["products_kernel"])
