"""Products of a warp group in the emulator: types, orders, swizzles, numbers of columns, misuse."""

import ml_dtypes
import numpy as np
import pytest

NUMPY = {
    "half_t": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
    "float": np.float32,
    "tfloat32_t": np.float32,
    "int8_t": np.int8,
    "uint8_t": np.uint8,
    "int": np.int32,
    "fp8_e4_t": ml_dtypes.float8_e4m3fn,
    "fp8_e5_t": ml_dtypes.float8_e5m2,
}
HEADERS = """#include <tl/common.h>
#include <tl/mbarrier.h>
#include <tl/wgmma_ss.h>
#include <tl/wgmma_rs.h>
"""
# A is 64 x 2 K and B is N x 2 K, each in tiles of rows as wide as the swizzle.
PRODUCT = """
// Where element (row, k) of an operand of `rows` rows lies, in bytes: swizzled tiles of 8 rows.
template <int rows, int swizzle, bool k_major, typename T>
__device__ int place(int row, int k) {
  constexpr int span = swizzle ? swizzle : 16, width = span / int(sizeof(T));
  const int outer = k_major ? row : k, inner = k_major ? k : row;
  constexpr int outers = k_major ? rows : 2 * tl::wgmma_k<T>;
  const int panel = inner / width * (outers * span);
  const int offset = panel + outer * span + inner % width * int(sizeof(T));
  return swizzle ? offset ^ ((offset >> 7 & (span / 16 - 1)) << 4) : offset;
}
template <int rows, int swizzle, bool k_major, typename T>
__device__ uint64_t describe(const unsigned char* shared, int k) {
  constexpr int span = swizzle ? swizzle : 16;
  constexpr int outers = k_major ? rows : 2 * tl::wgmma_k<T>;
  // The distance of eight rows, and of neighbouring spans.
  constexpr int eights = 8 * span, spans = outers * span;
  const int skipped = k_major ? place<rows, 0, true, T>(0, 0) + k * int(sizeof(T)) / span * spans +
                                    k * int(sizeof(T)) % span
                              : k / 8 * eights;
  // Without a swizzle and with K along the rows, the two strides change their names.
  const bool exchanged = swizzle == 0 && !k_major;
  return tl::wgmma_descriptor<swizzle>(shared + skipped, exchanged ? eights : spans,
                                       exchanged ? spans : eights);
}
template <int N, typename TA, typename TB, typename TC, int swizzle, bool a_major, bool b_major,
          bool registers, bool negate>
__device__ void product(const tl::mma_memory<TA>* A, const tl::mma_memory<TB>* B, TC* D) {
  using MA = tl::mma_memory<TA>;
  using MB = tl::mma_memory<TB>;
  unsigned char* const buf_dyn_shmem = tl::dynamic_shared();
  constexpr int K = tl::wgmma_k<TA>;
  unsigned char* a_shared = buf_dyn_shmem;
  unsigned char* b_shared = buf_dyn_shmem + 8192;
  const int t = threadIdx.x, g = t % 32 / 4, q = t % 4, first = t / 32 * 16;
  for (int i = t; i < 64 * 2 * K; i += 128)
    *(MA*)(a_shared + place<64, swizzle, a_major, MA>(i / (2 * K), i % (2 * K))) = A[i];
  for (int i = t; i < N * 2 * K; i += 128)
    *(MB*)(b_shared + place<N, swizzle, b_major, MB>(i / (2 * K), i % (2 * K))) = B[i];
  tl::fence_proxy_async();
  tl::sync_threads();
  TC d[N / 2];
  for (int i = 0; i < N / 2; ++i)
    d[i] = D[(first + g + i / 2 % 2 * 8) * N + i / 4 * 8 + q * 2 + i % 2];
  constexpr int p = tl::mma_pack<TA>;
  MA a[2][K / 2];
  for (int s = 0; s < 2; ++s)
    for (int i = 0; i < K / 2; ++i)
      a[s][i] = A[(first + g + i / p % 2 * 8) * 2 * K + s * K + p * q + i % p + i / p / 2 * 4 * p];
  tl::warpgroup_arrive();
  for (int s = 0; s < 2; ++s) {
    const uint64_t b = describe<N, swizzle, b_major, MB>(b_shared, s * K);
    if constexpr (registers) {
      tl::wgmma_rs<64, N, K, TA, TB, TC, b_major, negate>(d, a[s], b, true);
    } else {
      tl::wgmma_ss<64, N, K, TA, TB, TC, a_major, b_major, negate>(
          d, describe<64, swizzle, a_major, MA>(a_shared, s * K), b, true);
    }
  }
  tl::warpgroup_commit_batch();
  tl::warpgroup_wait<0>();
  for (int i = 0; i < N / 2; ++i)
    D[(first + g + i / 2 % 2 * 8) * N + i / 4 * 8 + q * 2 + i % 2] = d[i];
}
"""


def case(n, a, c="float", b=None, swizzle=128, majors="kk", registers=False, negate=False):
    return n, a, b or a, c, swizzle, majors[0] == "k", majors[1] == "k", registers, negate


CASES = [
    *[case(64, "half_t", swizzle=s, majors=m) for s in (0, 32, 64, 128) for m in ("kk", "nn")],
    *[case(64, "bfloat16_t", swizzle=s, majors="kn", registers=True) for s in (0, 32, 64, 128)],
    *[case(n, "half_t") for n in (8, 24, 40, 256)],
    case(128, "bfloat16_t", majors="nk", negate=True),
    case(96, "half_t", "half_t"),
    case(48, "half_t", "half_t", majors="kn", registers=True, negate=True),
    case(128, "tfloat32_t"),
    case(16, "tfloat32_t", swizzle=0, registers=True, negate=True),
    *[
        case(32, a, c, b, swizzle=64)
        for a, b in [("fp8_e4_t", "fp8_e5_t"), ("fp8_e5_t", "fp8_e4_t")]
        for c in ("float", "half_t")
    ],
    case(32, "fp8_e4_t", registers=True),
    case(8, "fp8_e5_t", swizzle=0, negate=True),
    case(24, "int8_t", "int"),
    case(48, "int8_t", "int", "uint8_t", swizzle=32),
    case(64, "uint8_t", "int", "int8_t", registers=True),
    case(256, "uint8_t", "int"),
]


def name_of(c):
    n, a, b, out, swizzle, a_major, b_major, registers, negate = c
    return (
        f"n{n}_{a}_{b}_{out}_s{swizzle}_{'mk'[a_major]}{'nk'[b_major]}"
        f"{'_rs' * registers}{'_neg' * negate}"
    )


def source():
    text = HEADERS + PRODUCT
    for c in CASES:
        n, a, b, out, swizzle, *flags = c
        args = ", ".join([f"{n}, {a}, {b}, {out}, {swizzle}", *(str(int(f)) for f in flags)])
        text += f"""
extern "C" __global__ void __launch_bounds__(128) {name_of(c)}(
    const tl::mma_memory<{a}>* A, const tl::mma_memory<{b}>* B, {out}* D) {{
  product<{args}>(A, B, D);
}}
"""
    return text


@pytest.mark.parametrize("wanted", CASES, ids=name_of)
def test_product(run, wanted):
    n, ta, tb, out, _, _, _, _, negate = wanted
    k = 2 * 32 // np.dtype(NUMPY[ta]).itemsize
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(0 if t == "uint8_t" else -4, 5, (rows, k)).astype(NUMPY[t])
        for rows, t in ((64, ta), (n, tb))
    )
    d = rng.integers(-9, 9, (64, n)).astype(NUMPY[out])
    exact = (-1 if negate else 1) * (a.astype(int) @ b.astype(int).T) + d.astype(int)
    run(source(), name_of(wanted), [a, b, d], block=128, shared=8192 + 256 * 128)
    np.testing.assert_array_equal(d.astype(int), exact)


# Each body runs in a block of 256 threads; the operands lie at the beginning of shared memory.
WRONG = {
    "no_fence": (
        "tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);",
        "this warp has called no warpgroup_arrive before its first wgmma_ss",
    ),
    "no_wait": (
        "tl::warpgroup_arrive(); tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);"
        "tl::warpgroup_commit_batch();",
        "warp 0 ends while this wgmma is in flight",
    ),
    "three_warps": (
        "tl::warpgroup_arrive(); if (threadIdx.x % 128 < 96)"
        "tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);"
        "tl::warpgroup_commit_batch(); tl::warpgroup_wait<0>();",
        "warp 3 issued 0, warp 0 issued 1. All four warps",
    ),
    "other_descriptors": (
        "tl::warpgroup_arrive(); if (threadIdx.x / 32 == 5) b += 1;"
        "tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);"
        "tl::warpgroup_commit_batch(); tl::warpgroup_wait<0>();",
        "warp 5 issued 1, warp 4 issued 1. All four warps",
    ),
    "lanes_differ": (
        "tl::warpgroup_arrive(); if (threadIdx.x == 7) b += 1;"
        "tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);",
        "the lanes of a warp give different descriptors",
    ),
    "diverging_lanes": (
        "if (threadIdx.x % 2) tl::warpgroup_arrive(); else tl::warpgroup_commit_batch();",
        "the lanes of a warp diverge",
    ),
    "behind_the_end": (
        "tl::warpgroup_arrive(); b = tl::wgmma_descriptor<128>(memory + 3584, 16, 1024);"
        "tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);",
        "B of a wgmma ends at byte 4512 of dynamic shared memory, which has 4096",
    ),
    "base_offset": (
        "tl::warpgroup_arrive(); b |= 1ull << 49;"
        "tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(d, a, b, false);",
        "the descriptor of B has base offset 1",
    ),
    "registers": (
        "tl::warpgroup_reg_alloc<248>(); tl::warpgroup_reg_alloc<256>(); tl::sync_threads();"
        "tl::warpgroup_reg_alloc<256>();",
        None,
    ),
}
ERRORS = (
    HEADERS
    + "#include <tl/warp_group.h>"
    + "".join(
        f"""
extern "C" __global__ void {name}(float* out) {{
  unsigned char* memory = tl::dynamic_shared();
  uint64_t a = tl::wgmma_descriptor<32>(memory, 16, 256);
  uint64_t b = tl::wgmma_descriptor<32>(memory + 2048, 16, 256);
  float d[4] = {{}};
#line 1 "user.py"
  {body}
  out[threadIdx.x] = d[0];
}}
"""
        for name, (body, _) in WRONG.items()
    )
)
# What follows the products of one group shows whether the wait was for it.
GROUPS = (
    HEADERS
    + """
extern "C" __global__ void groups(float* out) {
  half_t* memory = (half_t*)tl::dynamic_shared();
  for (int i = threadIdx.x; i < 2048; i += 128) memory[i] = half_t(1.0f);
  tl::fence_proxy_async();
  tl::sync_threads();
  const uint64_t a = tl::wgmma_descriptor<32>(memory, 16, 256);
  float first[4] = {}, second[4] = {};
  tl::warpgroup_arrive();
  tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(first, a, a, false);
  tl::warpgroup_commit_batch();
  tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(second, a, a, false);
  tl::wgmma_ss<64, 8, 16, half_t, half_t, float>(second, a, a, true);
  tl::warpgroup_commit_batch();
  tl::warpgroup_wait<1>();
  out[threadIdx.x] = first[0];
  out[128 + threadIdx.x] = second[0];
  tl::warpgroup_wait<0>();
  out[256 + threadIdx.x] = second[0];
}
"""
)


@pytest.mark.parametrize("name", [name for name in WRONG if WRONG[name][1]])
def test_what_is_wrong_is_reported(run, name):
    with pytest.raises(RuntimeError, match=WRONG[name][1]):
        run(ERRORS, name, [np.zeros(256, np.float32)], block=256, shared=4096)


def test_too_many_registers(run):
    out = np.zeros(384, np.float32)
    run(ERRORS, "registers", [out], block=256, shared=4096)
    with pytest.raises(RuntimeError, match=r"ask for \d+ registers. A block has 65536"):
        run(ERRORS, "registers", [out], block=384, shared=4096)


def test_an_incomplete_warp_group(run):
    message = "warpgroup_arrive in a warp group that lacks warps: the block has 160 threads"
    with pytest.raises(RuntimeError, match=message):
        run(ERRORS, "no_wait", [np.zeros(256, np.float32)], block=160, shared=4096)


def test_a_wait_completes_the_oldest_groups(run):
    out = np.zeros((3, 128), np.float32)
    # It reads what is in flight on purpose.
    run(GROUPS, "groups", [out], block=128, shared=4096, checks=False)
    assert [set(row.tolist()) for row in out] == [{16.0}, {0.0}, {32.0}]
