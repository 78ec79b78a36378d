"""The headers under NVRTC: each alone, every function, every instruction on every architecture."""

import re
from pathlib import Path

import pytest

from tilelang._paths import device_include_dirs
from tilelang.cuda.nvrtc import compile_cubin, compile_ptx

SOURCES = Path(__file__).parents[1]
ARCHS = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
HEADERS = sorted({p.name for folder in device_include_dirs("cuda") for p in folder.rglob("*.h")})
MATH = (SOURCES / "math.cu").read_text()
SCALARS = (SOURCES / "scalars.cu").read_text()
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
FLOAT8 = (SOURCES / "float8.cu").read_text()
ATOMICS = (SOURCES / "atomics.cu").read_text()

WARPS = (SOURCES / "warps.cu").read_text()
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
SUB_BYTE = (SOURCES / "sub_byte.cu").read_text()


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


def test_sub_byte_stay_in_registers():
    source = "#include <tl/common.h>\n#include <tl/subbyte.h>\n" + SUB_BYTE
    compiled = compile_cubin(source, "sm_80", ["sub_byte_kernel"])
    assert compiled.resource_usage["sub_byte_kernel"].stack == 0


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
    assert set(instructions) == {"cvt", "add", "mul", "max", "min", "fma", "atom"}
    assert set(results) == {"bits"}


def test_sigmoid_has_no_division():
    """IEEE division is a branch, and a kernel's loads wait behind each."""
    source = """
#include <tl/exponential.h>
extern "C" __global__ void kernel(float* x) { x[threadIdx.x] = tl::sigmoid(x[threadIdx.x]); }
"""
    ptx = compile_ptx(source, "sm_90a")
    assert re.findall(r"(?:rcp|div)\.\w+", ptx) == ["rcp.approx"]


LOADS = """
#include <tl/common.h>
#include <tl/float8.h>
template <int lanes, typename T>
__device__ T* copied(const void* from, T* to, int64_t at, int64_t n, int64_t end) {
  const auto value = tl::load_if<lanes>((const T*)from + at * n, at < end);
  memcpy(to, &value, sizeof(value));
  return to + lanes;
}
extern "C" __global__ void loads(
    const void* __restrict__ from, char* __restrict__ to, int64_t at, int64_t n, int64_t end) {
"""


def test_loads_with_predicates():
    """Each width is one load without a branch, whatever its place takes."""
    types = {
        "u8": [("int8_t", 1)],
        "b16": [("half_t", 1), ("fp8_e4_t", 2)],
        "b32": [("half_t", 2), ("float", 1)],
        "b64": [("float", 2), ("double", 1), ("bfloat16_t", 4)],
        "v4.b32": [("float", 4), ("bfloat16_t", 8), ("fp8_e4_t", 16)],
    }
    calls = "".join(
        f"  to = (char*)copied<{lanes}>(from, ({name}*)to, at++, n, end);\n"
        for kinds in types.values()
        for name, lanes in kinds
    )
    ptx = compile_ptx(LOADS + calls + "}\n", "sm_80")
    wanted = [width for width, kinds in types.items() for _ in kinds]
    assert re.findall(r"@p\w* ld\.global\.nc\.((?:v4\.)?\w+)", ptx) == wanted
    assert "bra" not in ptx
