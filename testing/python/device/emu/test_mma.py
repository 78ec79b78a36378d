"""ldmatrix and mma.sync in the emulator."""

import re

import ml_dtypes
import numpy as np
import pytest

HEADERS = "#include <tl/common.h>\n#include <tl/copy.h>\n#include <tl/mma.h>\n"
# C[128, 128] = A @ B over K in steps of 32, four warps of 64 x 64, rows of shared memory swizzled.
GEMM = """
template <bool trans_b>
__device__ void load_b(const half_t* B, half_t* b_s, int k, int n, int t) {
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int chunk = i * 128 + t;
    const int r = trans_b ? chunk >> 2 : chunk >> 4, q = trans_b ? chunk & 3 : chunk & 15;
    const int to = trans_b ? r * 32 + (q ^ (r >> 1 & 3)) * 8 : r * 128 + (q ^ (r & 7)) * 8;
    tl::cp_async_gs<16>(b_s + to, B + (trans_b ? r * n + k : (k + r) * 128) + q * 8);
  }
}
template <bool trans_b>
__device__ void gemm(const half_t* A, const half_t* B, float* C, int K) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  half_t* a_s = (half_t*)buf_dyn_shmem;
  half_t* b_s = a_s + 128 * 32;
  const int t = threadIdx.x, lane = t & 31, wm = t >> 6, wn = t >> 5 & 1;
  alignas(16) float c[128];
  for (int i = 0; i < 128; ++i) c[i] = 0.0f;
  for (int k = 0; k < K; k += 32) {
    for (int i = 0; i < 4; ++i) {
      const int chunk = i * 128 + t, r = chunk >> 2, q = chunk & 3;
      tl::cp_async_gs<16>(a_s + r * 32 + (q ^ (r >> 1 & 3)) * 8, A + r * K + k + q * 8);
    }
    load_b<trans_b>(B, b_s, k, K, t);
    tl::cp_async_commit();
    tl::cp_async_wait<0>();
    tl::sync_threads();
    for (int kk = 0; kk < 2; ++kk) {
      alignas(16) half_t a[32], b[32];
      for (int i = 0; i < 4; ++i) {
        const int r = wm * 64 + i * 16 + (lane & 15), q = kk * 2 + (lane >> 4);
        tl::ptx_ldmatrix_x4(a_s + r * 32 + (q ^ (r >> 1 & 3)) * 8, a + i * 8);
      }
      for (int j = 0; j < 4; ++j) {
        if (trans_b) {
          const int r = wn * 64 + j * 16 + (lane & 7) + (lane >> 4) * 8;
          const int q = kk * 2 + (lane >> 3 & 1);
          tl::ptx_ldmatrix_x4(b_s + r * 32 + (q ^ (r >> 1 & 3)) * 8, b + j * 8);
        } else {
          const int r = kk * 16 + (lane & 15), q = wn * 8 + j * 2 + (lane >> 4);
          tl::ptx_ldmatrix_x4_trans(b_s + r * 128 + (q ^ (r & 7)) * 8, b + j * 8);
        }
      }
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 8; ++j)
          tl::mma_sync<16, 8, 16, half_t, half_t, float>(c + (i * 8 + j) * 4, a + i * 8, b + j * 4);
    }
    tl::sync_threads();
  }
  for (int i = 0; i < 64; ++i) {
    const int row = wm * 64 + i / 16 * 16 + i % 2 * 8 + lane / 4;
    const int column = wn * 64 + i / 2 % 8 * 8 + lane % 4 * 2;
    tl::store(C + row * 128 + column, tl::vec<float, 2>{c[i * 2], c[i * 2 + 1]});
  }
}
extern "C" __global__ void __launch_bounds__(128) gemm_nn(
    const half_t* __restrict__ A, const half_t* __restrict__ B, float* __restrict__ C, int K) {
  gemm<false>(A, B, C, K);
}
extern "C" __global__ void __launch_bounds__(128) gemm_nt(
    const half_t* __restrict__ A, const half_t* __restrict__ B, float* __restrict__ C, int K) {
  gemm<true>(A, B, C, K);
}
"""
# One instruction each: the fragments of one warp from and to row-major memory, B by columns.
SHAPES = {
    "m16k16_half_float": (16, 16, "half_t", "float"),
    "m16k16_bfloat16_float": (16, 16, "bfloat16_t", "float"),
    "m16k16_half_half": (16, 16, "half_t", "half_t"),
    "m16k8_half_float": (16, 8, "half_t", "float"),
    "m16k8_bfloat16_float": (16, 8, "bfloat16_t", "float"),
    "m16k8_half_half": (16, 8, "half_t", "half_t"),
    "m16k8_tf32": (16, 8, "tfloat32_t", "float"),
    "m16k4_tf32": (16, 4, "tfloat32_t", "float"),
    "m8k4_double": (8, 4, "double", "double"),
    "m16k32_int8": (16, 32, "int8_t", "int"),
    "m16k16_int8": (16, 16, "int8_t", "int"),
    "m8k16_int8": (8, 16, "int8_t", "int"),
    "m16k32_uint8": (16, 32, "uint8_t", "int"),
    "m16k16_uint8": (16, 16, "uint8_t", "int"),
    "m8k16_uint8": (8, 16, "uint8_t", "int"),
    "m16k32_e4m3": (16, 32, "fp8_e4_t", "float"),
    "m16k32_e5m2": (16, 32, "fp8_e5_t", "float"),
}
NUMPY = {
    "half_t": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
    "float": np.float32,
    "tfloat32_t": np.float32,
    "double": np.float64,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int": np.int32,
    "fp8_e4_t": ml_dtypes.float8_e4m3fn,
    "fp8_e5_t": ml_dtypes.float8_e5m2,
}
# PTX ISA, Matrix Fragments for mma: p elements to a register, blocks of 8 rows before columns.
ONE = """
template <int M, int K, typename T, typename C>
__device__ void one(const tl::mma_memory<T>* A, const tl::mma_memory<T>* B, C* D) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  constexpr int p = tl::mma_pack<T>, blocks = M / 8;
  tl::mma_memory<T> a[M * K / 32], b[K / 4];
  C d[M / 4];
  for (int i = 0; i < M * K / 32; ++i)
    a[i] = A[(g + 8 * (i / p % blocks)) * K + p * t + i % p + 4 * p * (i / p / blocks)];
  for (int i = 0; i < K / 4; ++i) b[i] = B[g * K + p * t + i % p + 4 * p * (i / p)];
  for (int i = 0; i < M / 4; ++i) d[i] = D[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  tl::mma_sync<M, 8, K, T, T, C>(d, a, b);
  for (int i = 0; i < M / 4; ++i) D[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}
"""
ONE += "".join(
    f"""
extern "C" __global__ void {name}(
    const tl::mma_memory<{t}>* A, const tl::mma_memory<{t}>* B, {c}* D) {{
  one<{m}, {k}, {t}, {c}>(A, B, D);
}}
"""
    for name, (m, k, t, c) in SHAPES.items()
)
LDMATRIX = """
extern "C" __global__ void transposed(const half_t* x, half_t* y) {
  __shared__ __align__(16) half_t tile[4 * 64];
  const int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) tile[i] = x[i];
  tl::sync_threads();
  tl::ptx_ldmatrix_x1(tile + t % 8 * 8, y + t * 2);
  tl::ptx_ldmatrix_x2_trans(tile + t % 16 * 8, y + 64 + t * 4);
}
extern "C" __global__ void misaligned(const half_t* x, half_t* y) {
  __shared__ __align__(16) half_t tile[300];
#line 12 "user.py"
  tl::ptx_ldmatrix_x4(tile + threadIdx.x * 9, y);
}
"""


@pytest.mark.parametrize("kernel", ["gemm_nn", "gemm_nt"])
def test_gemm(run, kernel):
    a, b = np.random.default_rng(0).standard_normal((2, 128, 128)).astype(np.float16)
    c = np.zeros((128, 128), np.float32)
    stored_b = b.T.copy() if kernel == "gemm_nt" else b
    run(HEADERS + GEMM, kernel, [a, stored_b, c, 128], block=128, shared=16384)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(c - exact).max() / np.abs(exact).max() < 1e-6


@pytest.mark.parametrize("name", SHAPES)
def test_one_instruction(run, name):
    m, k, t, c = SHAPES[name]
    rng = np.random.default_rng(1)
    low = 0 if t == "uint8_t" else -4
    a, b = (rng.integers(low, 5, (rows, k)).astype(NUMPY[t]) for rows in (m, 8))
    d = rng.integers(-9, 9, (m, 8)).astype(NUMPY[c])
    exact = a.astype(int) @ b.astype(int).T + d.astype(int)
    run(HEADERS + ONE, name, [a, b, d])
    np.testing.assert_array_equal(d.astype(int), exact)


def test_tf32_rounds_half_away_from_zero(run):
    ulp = 2.0**-10
    values = np.array([1 + ulp / 2, -1 - ulp / 2, 1 + 0.49 * ulp, 1 + 1.5 * ulp], np.float32)
    a, b = np.zeros((16, 4), np.float32), np.zeros((8, 4), np.float32)
    a[:4, 0], b[0, 0] = values, 1
    d = np.zeros((16, 8), np.float32)
    run(HEADERS + ONE, "m16k4_tf32", [a, b, d])
    np.testing.assert_array_equal(d[:4, 0], [1 + ulp, -1 - ulp, 1, 1 + 2 * ulp])


def test_ldmatrix_gives_each_lane_a_pair_of_each_matrix(run):
    x, y = np.arange(256, dtype=np.float16), np.zeros(64 + 128, np.float16)
    run(HEADERS + LDMATRIX, "transposed", [x, y])
    np.testing.assert_array_equal(y[:64], x[:64])
    matrices = x[:128].reshape(2, 8, 8).transpose(0, 2, 1).reshape(2, 32, 2)
    np.testing.assert_array_equal(y[64:].reshape(32, 2, 2), matrices.transpose(1, 0, 2))


def test_misaligned_row(run):
    unused = np.zeros(8, np.float16)
    message = (
        r"user.py:12: thread \(1, 0, 0\) .*misaligned row address of an ldmatrix.* 2 bytes past"
    )
    with pytest.raises(RuntimeError, match=message):
        run(HEADERS + LDMATRIX, "misaligned", [unused, unused])


def test_other_shapes_do_not_compile(run):
    wrong = ONE.replace("M, 8, K, T, T, C", "M, 16, K, T, T, C")
    with pytest.raises(RuntimeError, match=re.escape("tl::mma_sync<M, N, K, A, B, C> has N = 8")):
        run(HEADERS + wrong, "m16k8_half_half", [])
