"""The headers under NVRTC: each alone, every function, every instruction on every architecture."""

import re

import pytest

from tilelang._paths import device_include_dirs
from tilelang.cuda.nvrtc import compile_cubin, compile_ptx

ARCHS = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
HEADERS = sorted({p.name for folder in device_include_dirs("cuda") for p in folder.rglob("*.h")})
MATH = """
template <typename T>
__device__ void functions(T* p) {
  const auto x = tl::load<T, 2>(p), y = tl::load<T, 2>(p + 2);
  auto z = tl::exp(x) + tl::exp2(x) * tl::exp10(x) - tl::log(x) / tl::log2(x) + tl::log10(x);
  z = z + tl::sqrt(x) + tl::rsqrt(x) + tl::sin(x) + tl::cos(x) + tl::tan(x) + tl::tanh(x);
  z = z + tl::sinh(x) + tl::cosh(x) + tl::atan(x) + tl::erf(x) + tl::abs(x) + tl::floor(x);
  z = z + tl::ceil(x) + tl::round(x) + tl::trunc(x) + tl::pow(x, y) + tl::fmod(x, y);
  z = z + tl::sigmoid(x) + tl::max(x, y) + tl::min(x, y) + tl::cast<T>(tl::isnan(x));
  z = z + tl::asin(x) + tl::acos(x) + tl::asinh(x) + tl::acosh(x) + tl::atanh(x) + tl::log1p(x);
  z = z + tl::atan2(x, y) + tl::hypot(x, y) + tl::copysign(x, y);
  z = z + tl::cast<T>(tl::isinf(x)) + tl::cast<T>(tl::isfinite(x));
  tl::store(p, tl::select(x < y, z, tl::ramp<T, 2>(T(0), T(1)) + tl::broadcast<T, 2>(T(2))));
}
extern "C" __global__ void functions_kernel(float* f, double* d, half_t* h, bfloat16_t* b) {
  functions(f);
  functions(d);
  functions(h);
  functions(b);
  tl::store(b, tl::cast<bfloat16_t>(tl::load<float, 8>(f)));
  tl::store(h, tl::cast<half_t>(tl::load<int, 8>(f)));
  const auto n = tl::cast<int64_t>(tl::load<double, 2>(d));
  tl::store(f, tl::cast<float>(tl::popcount(n) + tl::clz(n)));
  tl::store(f + 4, tl::cast<uint8_t>(tl::load<half_t, 4>(h)));
  d[4] = tl::floordiv(int(f[0]), int(f[1])) + tl::floormod(int(f[2]), int(f[3]));
  d[5] = tl::cast<uint64_t>(f[0]) + tl::cast<unsigned>(d[0]) + tl::bit_cast<int>(f[0]);
}
"""
# Every function of scalars, pairs and warps that the language names.
SCALARS = """
template <typename T>
__device__ T rounded(T x, T y) {
  T z = tl::add_rn(x, y) + tl::sub_rz(x, y) + tl::mul_ru(x, y) + tl::div_rd(x, y);
  z += tl::add_rz(x, y) + tl::sub_ru(x, y) + tl::mul_rd(x, y) + tl::div_rn(x, y);
  z += tl::rcp_rn(x) + tl::rcp_rz(x) + tl::sqrt_ru(x) + tl::sqrt_rd(y);
  return z + tl::fma_rn(x, y, z) + tl::fma_rz(x, y, z) + tl::fma_ru(x, y, z) + tl::fma_rd(x, y, z);
}
template <typename T>
__device__ void pairs(T* p) {
  const auto x = tl::load<T, 2>(p), y = tl::load<T, 2>(p + 2), z = tl::load<T, 2>(p + 4);
  const auto products = tl::mul2(tl::add2(x, y), tl::sub2(x, y));
  tl::store(p, tl::fma2(tl::max2(x, y), tl::min2(y, z), tl::abs2(products)));
}
template <typename T>
__device__ T fast(T x) {
  x = tl::fast_exp(x) + tl::fast_exp2(x) + tl::fast_exp10(x) + tl::fast_log(x) + tl::fast_rcp(x);
  x = x + tl::fast_log2(x) + tl::fast_log10(x) + tl::fast_sin(x) + tl::fast_cos(x);
  return x + tl::fast_tan(x) + tl::round_away(x);
}
template <typename T>
__device__ T lanes(T x) {
  x = tl::shfl_sync(~0u, x, 1, 32) + tl::shfl_up_sync(~0u, x, 1, 16);
  return tl::shfl_down_sync(~0u, x, 1, 8) + tl::shfl_xor_sync(~0u, x, 1, 4);
}
template <typename T>
__device__ uint32_t agreed(T x) {
  return tl::match_any_sync(~0u, x) + tl::match_all_sync(~0u, x);
}
extern "C" __global__ void scalars_kernel(float* f, double* d, half_t* h, bfloat16_t* b, int* i) {
  f[0] = tl::power(f[6], 5) + rounded(f[1], f[2]) + tl::rsqrt_rn(f[3]) + fast(f[4]) + lanes(f[5]);
  d[0] = rounded(d[1], d[2]) + lanes(d[3]) + tl::round_away(d[4]);
  h[0] = tl::power(h[5], i[9]) + fast(h[1]) + lanes(h[2]) + tl::load_read_only(h + 3);
  b[0] = fast(b[1]) + lanes(b[2]);
  tl::store(f + 8, fast(tl::load<float, 2>(f + 8)));
  pairs(f + 16);
  pairs(h + 16);
  pairs(b + 16);
  i[0] = tl::find_first_set(i[1]) + tl::find_first_set(uint64_t(i[2])) + agreed(i[3]);
  i[1] = tl::find_nth_set(i[3], i[4], i[5]) + agreed(f[6]) + agreed(d[5]);
  i[2] = tl::any_sync(~0u, i[3]) + tl::all_sync(~0u, i[4]) + tl::ballot_sync(~0u, i[5]);
  i[3] = tl::syncthreads_count(i[1]) + tl::syncthreads_and(i[2]) + tl::syncthreads_or(i[4]);
  i[4] = int(tl::activemask()) + tl::load_read_only(i + 5);
  tl::store_words(i + 8, tl::load_words<4>(f, i[7] != 0));
  tl::store_words(i + 16, tl::load_words<8>(f), i[7] != 0);
  tl::store_words(i + 6, tl::load_words<1>(i + 7));
  tl::dp4a((int8_t*)f, (int8_t*)d, i);
}
"""
# Every instruction once: copies of three widths, matrix loads, products, barriers.
TENSOR_CORES = """
template <int K, typename T, typename C>
__device__ void product(const T* row, C* out) {
  alignas(16) T a[8], b[4];
  alignas(16) C c[4] = {C(0), C(0), C(0), C(0)};
  tl::ptx_ldmatrix_x4(row, a);
  tl::ptx_ldmatrix_x2_trans(row, b);
  tl::mma_sync<16, 8, K, T, T, C>(c, a, b);
  tl::store(out + threadIdx.x * 4, tl::vec<C, 4>{c[0], c[1], c[2], c[3]});
}
extern "C" __global__ void __launch_bounds__(32) tensor_kernel(
    const half_t* __restrict__ x, float* __restrict__ f, half_t* __restrict__ h) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  __shared__ float fixed[32];
  const dim3 blockIdx = tl::rasterization2DRow<10>();
  half_t* s = (half_t*)buf_dyn_shmem;
  tl::cp_async_gs<16>(s + threadIdx.x * 8, x + blockIdx.x);
  tl::cp_async_gs<8>(s + threadIdx.x * 8, x + blockIdx.y);
  tl::cp_async_gs_conditional<16>(s, x, threadIdx.x < 3);
  tl::cp_async_gs_conditional<4>(s, x, threadIdx.x < 3);
  tl::cp_async_commit();
  tl::cp_async_wait<0>();
  fixed[threadIdx.x] = f[threadIdx.x];
  tl::sync_threads();
  tl::sync_threads_partial(1, 32);
  product<16, half_t, float>(s, f);
  product<16, bfloat16_t, float>((bfloat16_t*)s, f + int(fixed[3]));
  product<16, half_t, half_t>(s, h);
  product<8, half_t, float>(s, f + 256);
  product<8, bfloat16_t, float>((bfloat16_t*)s, f + 512);
  product<8, half_t, half_t>(s, h + 256);
  alignas(16) half_t r[8];
  tl::ptx_ldmatrix_x1(s, r);
  tl::ptx_ldmatrix_x2(s, r + 2);
  tl::ptx_ldmatrix_x1_trans(s, r + 6);
  tl::store(h, tl::load<half_t, 8>(r));
  tl::ptx_ldmatrix_x4_trans(s, r);
  tl::store(h + 8, tl::load<half_t, 8>(r));
}
"""
# Every product that m16n8k16 is not, on the bytes of shared memory.
PRODUCTS = """
template <int M, int K, typename T, typename C, bool sparse = false>
__device__ void product(const unsigned char* bytes, C* out) {
  using Memory = tl::mma_memory<T>;
  alignas(16) Memory a[M * K / 32], b[K / 4];
  alignas(16) C c[M / 4] = {};
  for (int i = 0; i < M * K / 32; ++i) a[i] = ((const Memory*)bytes)[i * 32 + threadIdx.x];
  for (int i = 0; i < K / 4; ++i) b[i] = ((const Memory*)bytes)[1024 + i * 32 + threadIdx.x];
  if constexpr (sparse) {
    tl::mma_sp_sync<M, 8, K, T, T, C>(c, a, b, 0x44444444u + bytes[threadIdx.x] * 0xa);
  } else {
    tl::mma_sync<M, 8, K, T, T, C>(c, a, b);
  }
  for (int i = 0; i < M / 4; ++i) out[i * 32 + threadIdx.x] += c[i];
}
extern "C" __global__ void __launch_bounds__(32) products_kernel(
    const unsigned char* __restrict__ x, float* __restrict__ f, double* __restrict__ d,
    int* __restrict__ n) {
  product<16, 8, tfloat32_t, float>(x, f);
  product<16, 4, tfloat32_t, float>(x, f);
  product<8, 4, double, double>(x, d);
  product<16, 32, int8_t, int>(x, n);
  product<16, 16, int8_t, int>(x, n);
  product<8, 16, int8_t, int>(x, n);
  product<16, 32, uint8_t, int>(x, n);
  product<16, 16, uint8_t, int>(x, n);
  product<8, 16, uint8_t, int>(x, n);
  product<16, 64, int4b_t, int>(x, n);
  product<16, 64, uint4b_t, int>(x, n);
  product<16, 32, half_t, float, true>(x, f);
  product<16, 32, half_t, half_t, true>(x, (half_t*)f);
  product<16, 32, bfloat16_t, float, true>(x, f);
  product<16, 16, tfloat32_t, float, true>(x, f);
  product<16, 64, int8_t, int, true>(x, n);
  product<16, 64, uint8_t, int, true>(x, n);
}
extern "C" __global__ void __launch_bounds__(32) float8_kernel(
    const unsigned char* __restrict__ x, float* __restrict__ f) {
  product<16, 32, fp8_e4_t, float>(x, f);
  product<16, 32, fp8_e5_t, float>(x, f);
  product<16, 64, fp8_e4_t, float, true>(x, f);
  product<16, 64, fp8_e5_t, float, true>(x, f);
}
"""
FLOAT8 = """
extern "C" __global__ void float8_kernel(const float* x, fp8_e4_t* e4, fp8_e5_t* e5, half_t* h) {
  tl::store(e4, tl::cast<fp8_e4_t>(tl::load<float, 8>(x)));
  tl::store(e5, tl::cast<fp8_e5_t>(tl::load<fp8_e4_t, 8>(e4 + 8)));
  tl::store(h, tl::cast<half_t>(tl::load<fp8_e5_t, 8>(e5 + 8)));
  h[8] = half_t(e4[0] * e4[1] - e4[2]);
  auto v = tl::exp(tl::load<fp8_e4_t, 4>(e4 + 16));
  v = v + tl::rsqrt(tl::load<fp8_e4_t, 4>(e4 + 20));
  tl::store(e4 + 16, tl::max(v, tl::min(tl::pow(v, v), tl::sigmoid(v))));
}
"""
# Each operation on each type that has it, with and without result; the orders by turns.
ATOMICS = """
template <tl::MemoryOrder order, typename T>
__device__ void extrema(T* p) {
  p[1] = tl::fetch_max<order>(p, p[2]);
  p[3] = tl::fetch_min<order>(p, p[4]);
  tl::atomic_max<order>(p, p[5]);
  tl::atomic_min<order>(p, p[6]);
  p[7] = tl::fetch_add<order>(p, p[8]);
  tl::atomic_add<order>(p, p[9]);
  tl::atomic_store<tl::seq_cst>(p, tl::atomic_load<order == tl::relaxed ? order : tl::acquire>(p));
}
template <tl::MemoryOrder order, typename T>
__device__ void integers(T* p) {
  extrema<order>(p);
  p[1] = tl::fetch_or<order>(p, p[2]);
  tl::atomic_or<order>(p, p[3]);
}
template <tl::MemoryOrder order, int N, typename T>
__device__ void vectors(T* p) {
  tl::store(p + 8, tl::fetch_add<order>(p, tl::load<T, N>(p + 16)));
  tl::atomic_add<order>(p, tl::load<T, N>(p + 24));
}
template <tl::MemoryOrder order>
__device__ void floats(float* f, double* d, half_t* h, bfloat16_t* b) {
  extrema<order>(f); extrema<order>(d); extrema<order>(h); extrema<order>(b);
  vectors<order, 2>(f); vectors<order, 2>(h); vectors<order, 2>(b);
  vectors<order, 4>(f); vectors<order, 4>(h); vectors<order, 4>(b);
}
extern "C" __global__ void atomics_kernel(float* f, double* d, half_t* h, bfloat16_t* b, int* i,
                                          uint32_t* u, int64_t* l, uint64_t* m) {
  floats<tl::relaxed>(f, d, h, b);
  floats<tl::acq_rel>(f, d, h, b);
  integers<tl::relaxed>(i);
  integers<tl::release>(u);
  integers<tl::consume>(l);
  integers<tl::seq_cst>(m);
}
"""

WARPS = """
template <typename Op, typename T>
__device__ void warp(T* p) {
  T value = tl::AllReduce<Op, 8, 4>(p[threadIdx.x]);
  value = Op::run(value, tl::warp_scan<Op, 32>(value));
  p[threadIdx.x] = tl::warp_broadcast<31>(value);
}
template <typename T>
__device__ void numbers(T* p) {
  warp<tl::SumOp>(p);
  warp<tl::MaxOp>(p);
  warp<tl::MinOp>(p);
  warp<tl::MaxOpNan>(p);
  warp<tl::MinOpNan>(p);
}
template <typename T>
__device__ void bits(T* p) {
  warp<tl::BitAndOp>(p);
  warp<tl::BitOrOp>(p);
  warp<tl::BitXorOp>(p);
}
extern "C" __global__ void warp_kernel(float* f, double* d, half_t* h, bfloat16_t* b, int8_t* i1,
                                       int* i4, uint64_t* u8, bool* flags) {
  numbers(f);
  numbers(d);
  numbers(h);
  numbers(b);
  numbers(i1);
  numbers(i4);
  numbers(u8);
  bits(i1);
  bits(i4);
  bits(u8);
  bits(flags);
}
"""
STMATRIX = """
extern "C" __global__ void store_kernel(const half_t* x, half_t* out) {
  __shared__ __align__(16) half_t s[512];
  alignas(16) half_t r[8];
  tl::store(r, tl::load<half_t, 8>(x + threadIdx.x * 8));
  half_t* row = s + threadIdx.x * 8;
  tl::ptx_stmatrix_x4(row, r);
  tl::ptx_stmatrix_x4_trans(row, r);
  tl::ptx_stmatrix_x2(row, r);
  tl::ptx_stmatrix_x2_trans(row, r + 2);
  tl::ptx_stmatrix_x1(row, r);
  tl::ptx_stmatrix_x1_trans(row, r + 6);
  tl::sync_threads();
  tl::store(out + threadIdx.x * 8, tl::load<half_t, 8>(row));
}
"""
HALF_BYTES = """
template <typename T>
__device__ void both(const uint8_t* x, uint8_t* y, float* f) {
  const auto v = tl::load<T, 8>(x + threadIdx.x * 4);
  tl::store(f + threadIdx.x * 8, tl::cast<float>(v) + tl::cast<float>(tl::cast<half_t>(v)));
  tl::store(y + threadIdx.x * 4, tl::cast<T>(tl::load<float, 8>(f)));
  tl::store(y + 256, tl::select(tl::load<float, 2>(f) < tl::load<float, 2>(f + 2),
                                tl::broadcast<T, 2>(T(1)), tl::load<T, 2>(x)));
  uint8_t own[4];
  tl::set_half_byte(own, 3, tl::cast<T>(f[0]));
  f[1] = float(tl::get_half_byte<T>(own, 3));
}
extern "C" __global__ void half_bytes_kernel(const uint8_t* x, uint8_t* y, float* f) {
  both<int4b_t>(x, y, f);
  both<uint4b_t>(x, y, f);
  both<fp4_e2_t>(x, y, f);
}
"""


GRID = """
extern "C" __global__ void cluster_kernel(int* out) {
  int* s = (int*)tl::dynamic_shared();
  int* fixed = (int*)tl::static_shared<128>();
  s[threadIdx.x] = fixed[threadIdx.x] = out[threadIdx.x];
  const int rank = tl::block_rank_in_cluster(), size = tl::cluster_size();
  const uint3 c = tl::cluster_id(), i = tl::block_id_in_cluster(), n = tl::clusters_in_grid();
  const dim3 d = tl::cluster_dim();
  tl::cluster_arrive_relaxed();
  tl::cluster_wait();
  tl::cluster_sync();
  out[threadIdx.x] = tl::map_shared_rank(s, (rank + 1) % size)[threadIdx.x] + c.x + i.y + n.z + d.x;
  out[threadIdx.x] += tl::map_shared_rank(fixed, (rank + 1) % size)[threadIdx.x];
  tl::cluster_sync();
}
"""
GRID_SYNC = """
extern "C" __global__ void grid_kernel(int* out) {
  int* s = (int*)tl::dynamic_shared();
  tl::sync_grid();
  s[threadIdx.x] = out[threadIdx.x];
  if (threadIdx.x < 32) tl::named_barrier_arrive(1, 64); else tl::sync_threads_partial(1, 64);
  tl::sync_warp(0xffff);
  out[threadIdx.x] = s[threadIdx.x ^ 1];
}
"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_120a"])
def test_clusters_on(arch):
    source = "#include <tl/common.h>\n#include <tl/grid.h>\n" + GRID
    usage = compile_cubin(source, arch, ["cluster_kernel"]).resource_usage["cluster_kernel"]
    assert usage.stack == 0
    # 128 bytes, padded so that dynamic shared memory begins at a multiple of 1024.
    assert usage.static_shared % 1024 == 0
    assert usage.static_shared > 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_grid_sync_on(arch):
    source = "#include <tl/common.h>\n#include <tl/grid.h>\n" + GRID_SYNC
    usage = compile_cubin(source, arch, ["grid_kernel"]).resource_usage["grid_kernel"]
    assert usage.stack == 0


def test_half_bytes_stay_in_registers():
    source = "#include <tl/common.h>\n#include <tl/subbyte.h>\n" + HALF_BYTES
    compiled = compile_cubin(source, "sm_80", ["half_bytes_kernel"])
    assert compiled.resource_usage["half_bytes_kernel"].stack == 0


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_120a"])
def test_stmatrix_on(arch):
    source = "#include <tl/common.h>\n#include <tl/stmatrix.h>\n" + STMATRIX
    assert compile_cubin(source, arch, ["store_kernel"]).resource_usage["store_kernel"].stack == 0


@pytest.mark.parametrize("header", HEADERS)
def test_header_alone(header):
    source = f'#include <tl/{header}>\nextern "C" __global__ void empty_kernel() {{}}\n'
    assert compile_cubin(source, "sm_80", ["empty_kernel"]).cubin


def test_functions_of_all_types():
    source = "#include <tl/common.h>\n" + MATH
    assert compile_cubin(source, "sm_80", ["functions_kernel"]).cubin


def test_warps_of_all_types():
    source = "#include <tl/common.h>\n#include <tl/reduce.h>\n" + WARPS
    usage = compile_cubin(source, "sm_80", ["warp_kernel"]).resource_usage["warp_kernel"]
    assert (usage.stack, usage.spill_stores) == (0, 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_scalars_on(arch):
    names = ["fast_math", "packed", "rounding", "scalar", "warp", "words"]
    headers = "".join(f"#include <tl/{name}.h>\n" for name in ["common", *names])
    usage = compile_cubin(headers + SCALARS, arch, ["scalars_kernel"]).resource_usage
    assert usage["scalars_kernel"].spill_stores == 0


@pytest.mark.parametrize("arch", ARCHS)
def test_tensor_cores_on(arch):
    source = "#include <tl/common.h>\n#include <tl/copy.h>\n#include <tl/mma.h>\n" + TENSOR_CORES
    usage = compile_cubin(source, arch, ["tensor_kernel"]).resource_usage["tensor_kernel"]
    # Fragments live in registers: pointers to them must not force them into memory.
    assert (usage.stack, usage.spill_stores) == (0, 0)
    # 128 bytes, padded so that dynamic shared memory begins at a multiple of 1024.
    assert usage.static_shared == 1024
    assert 0 < usage.registers < 128


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_120a"])
def test_products_on(arch):
    kernels = ["products_kernel"] + ["float8_kernel"] * (arch != "sm_80")
    source = "#include <tl/common.h>\n#include <tl/mma.h>\n" + PRODUCTS
    if arch == "sm_80":
        source = source[: source.rindex('extern "C"')]
    for usage in compile_cubin(source, arch, kernels).resource_usage.values():
        assert (usage.stack, usage.spill_stores) == (0, 0)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89"])
def test_float8_on(arch):
    source = "#include <tl/common.h>\n" + FLOAT8
    usage = compile_cubin(source, arch, ["float8_kernel"]).resource_usage["float8_kernel"]
    assert usage.stack == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_atomics_on(arch):
    source = "#include <tl/common.h>\n#include <tl/atomic.h>\n" + ATOMICS
    usage = compile_cubin(source, arch, ["atomics_kernel"]).resource_usage["atomics_kernel"]
    assert (usage.stack, usage.spill_stores) == (0, 0)


@pytest.mark.parametrize(
    ("arch", "minor", "extrema"), [("sm_80", 0, 2), ("sm_90a", 0, 0), ("sm_90a", 4, 2)]
)
def test_extrema_where_ptxas_loses_a_minus(arch, minor, extrema):
    """CUDA 13.0 to 13.3 give no extremum of signed integers to ptxas for sm_90."""
    source = """
#include <tl/math.h>
extern "C" __global__ void kernel(const int* x, int* y) {
  y[0] = tl::max(x[0], tl::max(x[1], tl::sub(0, x[2])));
}
"""
    version = {"__CUDACC_VER_MAJOR__": 13, "__CUDACC_VER_MINOR__": minor}
    options = [f"--undefine-macro={name}" for name in version]
    options += [f"--define-macro={name}={number}" for name, number in version.items()]
    ptx = compile_ptx(source, arch, options)
    assert (ptx.count("max.s32"), ptx.count("selp.b32")) == (extrema, 2 - extrema)


def test_16_bit_floats_leave_their_instruction_without_a_type():
    """ptxas of CUDA 13.0 converts the number where a byte of such a register is stored."""
    names = ["atomic", "fast_math", "packed", "rounding", "scalar", "warp", "words"]
    headers = "".join(f"#include <tl/{name}.h>\n" for name in ["common", *names])
    ptx = compile_ptx(headers + MATH + SCALARS + ATOMICS, "sm_90a")
    results = re.findall(r"^.*\.b?f16\s+(bits|%rs\d+),.*$", ptx, re.MULTILINE)
    instructions = re.findall(r"(\w+)\S*\.b?f16(?:\.f32)?\s+bits,", ptx)
    assert set(instructions) == {"add", "sub", "mul", "max", "min", "cvt", "fma", "atom"}
    assert set(results) == {"bits"}
