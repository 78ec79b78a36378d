"""MFMA in the emulator against the layouts that AMD documents.

Elements are put where the AMD matrix instruction calculator's "Matrix element to register mapping"
says (`--detail-instruction`), those of the scaled instructions where the ISA of CDNA4 does: "Matrix
Core Programming on AMD CDNA3 and CDNA4 architecture", AMD, 2025, has the same as figures and code.
"""

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

HEADERS = "#include <tl/common.h>\n#include <tl/mfma.h>\n"
NUMPY = {
    "half_t": np.float16,
    "bfloat16_t": ml_dtypes.bfloat16,
    "float": np.float32,
    "tfloat32_t": np.float32,
    "double": np.float64,
    "int8_t": np.int8,
    "int": np.int32,
    "fp8_e4_t": ml_dtypes.float8_e4m3fn,
    "fp8_e5_t": ml_dtypes.float8_e5m2,
    "fp8_e4_fnuz_t": ml_dtypes.float8_e4m3fnuz,
    "fp8_e5_fnuz_t": ml_dtypes.float8_e5m2fnuz,
    "fp6_e2_t": ml_dtypes.float6_e2m3fn,
    "fp6_e3_t": ml_dtypes.float6_e3m2fn,
    "fp4_e2_t": ml_dtypes.float4_e2m1fn,
}
# Others have 32, or 64 in two GPRs.
BITS = {"fp4_e2_t": 4, "fp6_e2_t": 6, "fp6_e3_t": 6, "int8_t": 8, "half_t": 16, "bfloat16_t": 16}
BITS |= {name: 8 for name in NUMPY if name.startswith("fp8_")}


@dataclass(frozen=True)
class Instruction:
    """Where element k of a row i of A (of a column of B) is: in which GPR of a lane, at which bit
    of it, and in which lane."""

    m: int
    k: int
    types: tuple[str, str]
    gpr: str
    bit: str
    lane: str

    def place(self, i: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lane, and the element's number among those of the lane."""
        names = {"i": i, "k": k}
        gpr, bit, lane = (eval(text, names) for text in (self.gpr, self.bit, self.lane))
        return lane, (32 * gpr + bit) // BITS.get(self.types[0], 32)


HALF, BFLOAT = ("half_t", "float"), ("bfloat16_t", "float")
BYTE, E4M3, E5M2 = ("int8_t", "int"), ("fp8_e4_t", "float"), ("fp8_e5_t", "float")
FLOAT, XF32, DOUBLE = ("float", "float"), ("tfloat32_t", "float"), ("double", "double")
MFMA = {
    "32x32x8_f16": Instruction(32, 8, HALF, "k//2 % 2", "16*(k%2)", "32*(k//4) + i"),
    "16x16x16_f16": Instruction(16, 16, HALF, "k//2 % 2", "16*(k%2)", "16*(k//4) + i"),
    "32x32x16_f16": Instruction(32, 16, HALF, "k//2 % 4", "16*(k%2)", "32*(k//8) + i"),
    "16x16x32_f16": Instruction(16, 32, HALF, "k//2 % 4", "16*(k%2)", "16*(k//8) + i"),
    "32x32x8_bf16_1k": Instruction(32, 8, BFLOAT, "k//2 % 2", "16*(k%2)", "32*(k//4) + i"),
    "16x16x16_bf16_1k": Instruction(16, 16, BFLOAT, "k//2 % 2", "16*(k%2)", "16*(k//4) + i"),
    "32x32x16_bf16": Instruction(32, 16, BFLOAT, "k//2 % 4", "16*(k%2)", "32*(k//8) + i"),
    "16x16x32_bf16": Instruction(16, 32, BFLOAT, "k//2 % 4", "16*(k%2)", "16*(k//8) + i"),
    "32x32x8_i8": Instruction(32, 8, BYTE, "0", "8*(k%4)", "32*(k//4) + i"),
    "16x16x16_i8": Instruction(16, 16, BYTE, "0", "8*(k%4)", "16*(k//4) + i"),
    "32x32x16_i8": Instruction(32, 16, BYTE, "k//4 % 2", "8*(k%4)", "32*(k//8) + i"),
    "16x16x32_i8": Instruction(16, 32, BYTE, "k//4 % 2", "8*(k%4)", "16*(k//8) + i"),
    "32x32x32_i8": Instruction(32, 32, BYTE, "k//4 % 4", "8*(k%4)", "32*(k//16) + i"),
    "16x16x64_i8": Instruction(16, 64, BYTE, "k//4 % 4", "8*(k%4)", "16*(k//16) + i"),
    "32x32x16_fp8": Instruction(32, 16, E4M3, "k//4 % 2", "8*(k%4)", "32*(k//8) + i"),
    "16x16x32_fp8": Instruction(16, 32, E4M3, "k//4 % 2", "8*(k%4)", "16*(k//8) + i"),
    "32x32x16_bf8": Instruction(32, 16, E5M2, "k//4 % 2", "8*(k%4)", "32*(k//8) + i"),
    "16x16x32_bf8": Instruction(16, 32, E5M2, "k//4 % 2", "8*(k%4)", "16*(k//8) + i"),
    "32x32x16_fp8_fnuz": Instruction(
        32, 16, ("fp8_e4_fnuz_t", "float"), "k//4 % 2", "8*(k%4)", "32*(k//8) + i"
    ),
    "16x16x32_fp8_fnuz": Instruction(
        16, 32, ("fp8_e4_fnuz_t", "float"), "k//4 % 2", "8*(k%4)", "16*(k//8) + i"
    ),
    "32x32x16_bf8_fnuz": Instruction(
        32, 16, ("fp8_e5_fnuz_t", "float"), "k//4 % 2", "8*(k%4)", "32*(k//8) + i"
    ),
    "16x16x32_bf8_fnuz": Instruction(
        16, 32, ("fp8_e5_fnuz_t", "float"), "k//4 % 2", "8*(k%4)", "16*(k//8) + i"
    ),
    "32x32x2_f32": Instruction(32, 2, FLOAT, "0", "0", "32*k + i"),
    "16x16x4_f32": Instruction(16, 4, FLOAT, "0", "0", "16*k + i"),
    "32x32x4_xf32": Instruction(32, 4, XF32, "k%2", "0", "32*(k//2) + i"),
    "16x16x8_xf32": Instruction(16, 8, XF32, "k%2", "0", "16*(k//2) + i"),
    "16x16x4_f64": Instruction(16, 4, DOUBLE, "0", "0", "16*k + i"),
}
# fp8 lies in runs of 16 along K, fp6 and fp4 in runs of 32; elements of 6 bits cross GPRs.
SCALED = {
    "32x32x64_fp8": Instruction(
        32, 64, E4M3, "k//32 * 4 + k%16 // 4", "8*(k%4)", "32*(k//16 % 2) + i"
    ),
    "16x16x128_fp8": Instruction(
        16, 128, E4M3, "k//64 * 4 + k%16 // 4", "8*(k%4)", "16*(k//16 % 4) + i"
    ),
    "32x32x64_bf8": Instruction(
        32, 64, E5M2, "k//32 * 4 + k%16 // 4", "8*(k%4)", "32*(k//16 % 2) + i"
    ),
    "16x16x128_bf8": Instruction(
        16, 128, E5M2, "k//64 * 4 + k%16 // 4", "8*(k%4)", "16*(k//16 % 4) + i"
    ),
    "32x32x64_fp4": Instruction(
        32, 64, ("fp4_e2_t", "float"), "k%32 // 8", "4*(k%8)", "32*(k//32) + i"
    ),
    "16x16x128_fp4": Instruction(
        16, 128, ("fp4_e2_t", "float"), "k%32 // 8", "4*(k%8)", "16*(k//32) + i"
    ),
}
SCALED |= {
    f"{m}x{m}x{k}_{name}": Instruction(
        m, k, (t, "float"), "6*(k%32) // 32", "6*(k%32) % 32", f"{m}*(k//32) + i"
    )
    for m, k in ((32, 64), (16, 128))
    for name, t in (("fp6", "fp6_e2_t"), ("bf6", "fp6_e3_t"))
}
# Without scales V_MFMA_F32_32X32X64_F8F6F4 has the same layouts; the compiler takes it for fp8.
MFMA |= {f"{n}_f8f6f4": row for n, row in SCALED.items() if row.types[0].startswith("fp8")}
ONE = """
template <int M, int K, typename T, typename C>
__device__ void load(const tl::mma_memory<T>* from, tl::mma_memory<T>* to) {
  constexpr int n = M * K / 64 * tl::mma_bits<T> / 8 / int(sizeof(tl::mma_memory<T>));
  for (int i = 0; i < n; ++i) to[i] = from[threadIdx.x * n + i];
}
template <int M, int K, typename T, typename C>
__device__ void one(const tl::mma_memory<T>* A, const tl::mma_memory<T>* B, C* D) {
  tl::mma_memory<T> a[M * K / 64], b[M * K / 64];
  load<M, K, T, C>(A, a);
  load<M, K, T, C>(B, b);
  tl::mfma<M, M, K, T, C>(D + threadIdx.x * (M * M / 64), a, b);
}
template <int M, int K, typename TA, typename TB>
__device__ void scaled(const tl::mma_memory<TA>* A, const tl::mma_memory<TB>* B, float* D,
                       const fp8_e8_t* S) {
  tl::mma_memory<TA> a[M * K / 64];
  tl::mma_memory<TB> b[M * K / 64];
  load<M, K, TA, float>(A, a);
  load<M, K, TB, float>(B, b);
  tl::mfma_scale<M, M, K, TA, TB>(D + threadIdx.x * (M * M / 64), a, b, S[threadIdx.x],
                                  S[64 + threadIdx.x]);
}
"""
ONE += "".join(
    f"""extern "C" __global__ void mfma_{name}(const tl::mma_memory<{row.types[0]}>* A,
    const tl::mma_memory<{row.types[0]}>* B, {row.types[1]}* D) {{
  one<{row.m}, {row.k}, {row.types[0]}, {row.types[1]}>(A, B, D);
}}
"""
    for name, row in MFMA.items()
)
ONE += "".join(
    f"""extern "C" __global__ void mfma_{name}(const tl::mma_memory<{row.types[0]}>* A,
    const tl::mma_memory<{row.types[0]}>* B, float* D, const fp8_e8_t* S) {{
  scaled<{row.m}, {row.k}, {row.types[0]}, {row.types[0]}>(A, B, D, S);
}}
"""
    for name, row in SCALED.items()
)
ONE += """
extern "C" __global__ void mixed(const fp8_e4_t* A, const uint8_t* B, float* D, const fp8_e8_t* S) {
  scaled<16, 128, fp8_e4_t, fp4_e2_t>(A, B, D, S);
}
extern "C" __global__ void mixed6(const uint8_t* A, const uint8_t* B, float* D, const fp8_e8_t* S) {
  scaled<32, 64, fp6_e3_t, fp6_e2_t>(A, B, D, S);
}
extern "C" __global__ void divergent(const float* A, const float* B, float* D) {
#line 7 "user.py"
  if (threadIdx.x != 40) tl::mfma<16, 16, 4, float, float>(D, A, B);
}
"""


def registers(row: Instruction, x: np.ndarray) -> np.ndarray:
    """A, or B's transpose, as lanes have it."""
    lane, element = row.place(*np.indices(x.shape))
    memory = np.zeros((64, x.size // 64), x.dtype)
    memory[lane, element] = x
    if row.types[0] == "fp4_e2_t":
        codes = memory.view(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4
    if BITS.get(row.types[0]) == 6:
        bits = memory.view(np.uint8)[..., None] >> np.arange(6) & 1
        return np.packbits(bits.reshape(64, -1), axis=1, bitorder="little")
    return memory


def places_of_c(m: int, c: str) -> tuple[np.ndarray, np.ndarray]:
    """Lane and register of C[i][j]."""
    i, j = np.indices((m, m))
    if c == "double":
        return 16 * (i % 4) + j, i // 4
    if m == 16:
        return 16 * (i // 4) + j, i % 4
    return 32 * (i // 4) % 64 + j, 4 * (i // 8) + i % 4


def numbers(row: Instruction, seed: int) -> list[np.ndarray]:
    """A, B transposed and C, of small whole numbers."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-4, 5, (row.m, row.k)).astype(NUMPY[row.types[0]]) for _ in range(2))
    return [a, b, rng.integers(-9, 9, (row.m, row.m)).astype(NUMPY[row.types[1]])]


def held(row: Instruction, d: np.ndarray) -> np.ndarray:
    """C as lanes have it."""
    memory = np.zeros((64, row.m * row.m // 64), d.dtype)
    memory[places_of_c(row.m, row.types[1])] = d
    return memory


@pytest.mark.parametrize("name", MFMA)
def test_layout(run, name):
    row = MFMA[name]
    a, b, d = numbers(row, 1)
    exact = a.astype(int) @ b.astype(int).T + d.astype(int)
    memory = held(row, d)
    operands = [registers(row, a), registers(row, b)]
    run(HEADERS + ONE, f"mfma_{name}", [*operands, memory], block=64, warp_threads=64)
    found = memory[places_of_c(row.m, row.types[1])]
    np.testing.assert_array_equal(found.astype(int), exact)


def scales(m: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of A's rows and B's columns, by blocks of 32 along K; and as lanes have them."""
    powers = np.random.default_rng(2).integers(-2, 3, (2, 64 // m, m))
    return 2.0 ** powers.transpose(0, 2, 1), (powers + 127).astype(np.uint8).ravel()


@pytest.mark.parametrize("name", [*SCALED, "mixed", "mixed6"])
def test_scales(run, name):
    if name == "mixed":
        rows, name = (SCALED["16x16x128_bf8"], SCALED["16x16x128_fp4"]), name
        types = ("fp8_e4_t", "fp4_e2_t")
    elif name == "mixed6":
        rows, types = (SCALED["32x32x64_bf6"], SCALED["32x32x64_fp6"]), ("fp6_e3_t", "fp6_e2_t")
    else:
        rows, types = (SCALED[name],) * 2, (SCALED[name].types[0],) * 2
        name = f"mfma_{name}"
    row = rows[0]
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (row.m, row.k)).astype(NUMPY[t]) for t in types)
    d = rng.integers(-9, 9, (row.m, row.m)).astype(np.float32)
    of, lanes = scales(row.m)
    blocks = np.arange(row.k) // 32
    exact = (a.astype(float) * of[0][:, blocks]) @ (b.astype(float) * of[1][:, blocks]).T + d
    memory = held(row, d)
    operands = [registers(r, x) for r, x in zip(rows, (a, b), strict=True)]
    run(HEADERS + ONE, name, [*operands, memory, lanes], block=64, warp_threads=64)
    np.testing.assert_array_equal(memory[places_of_c(row.m, "float")], exact)


@pytest.mark.parametrize("name", ["16x16x128_fp6", "16x16x128_bf6"])
def test_every_code_of_6_bits(run, name):
    """Row 0 of A has all codes twice; B picks out one of them for each column."""
    row = SCALED[name]
    numpy = NUMPY[row.types[0]]
    for first in range(0, 64, 16):
        a, b = np.zeros((16, 128), numpy), np.zeros((16, 128), numpy)
        a[0] = np.tile(np.arange(64, dtype=np.uint8), 2).view(numpy)
        b[np.arange(16), first + np.arange(16)] = 1
        memory, scale = held(row, np.zeros((16, 16), np.float32)), np.full(128, 127, np.uint8)
        operands = [registers(row, x) for x in (a, b)]
        run(HEADERS + ONE, f"mfma_{name}", [*operands, memory, scale], block=64, warp_threads=64)
        found = memory[places_of_c(16, "float")]
        np.testing.assert_array_equal(found[0], a[0, first : first + 16].astype(np.float32))


def test_xf32_rounds_to_nearest_even(run):
    row, ulp = MFMA["16x16x8_xf32"], 2.0**-10
    a, b = np.zeros((16, 8), np.float32), np.zeros((16, 8), np.float32)
    a[:4, 0], b[0, 0] = [1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, np.inf], 1
    memory = np.zeros((64, 4), np.float32)
    operands = [registers(row, a), registers(row, b)]
    run(HEADERS + ONE, "mfma_16x16x8_xf32", [*operands, memory], block=64, warp_threads=64)
    np.testing.assert_array_equal(
        memory[places_of_c(16, "float")][:4, 0], [1, 1 + 2 * ulp, 1 + ulp, np.inf]
    )


def test_all_lanes_take_part(run):
    unused = np.zeros(64, np.float32)
    with pytest.raises(RuntimeError, match=r"user.py:7 for mfma: 63 of 64 lanes"):
        run(HEADERS + ONE, "divergent", [unused, unused, unused], block=64, warp_threads=64)


@pytest.mark.parametrize(
    ("types", "warp_threads", "message"),
    [
        ("16, 16, 8, half_t, float", 64, "tl::mfma<M, N, K, T, C> has M = N = 16 and K, T, C"),
        ("32, 32, 4, double, double", 64, "tl::mfma<M, N, K, T, C> has M = N = 16 and K, T, C"),
        ("16, 16, 4, float, float", 32, "MFMA is an instruction of wavefronts of 64 lanes"),
    ],
)
def test_others_do_not_compile(run, types, warp_threads, message):
    source = f"""{HEADERS}
extern "C" __global__ void other(float* x) {{
  tl::mfma<{types}>(nullptr, nullptr, nullptr);
}}
"""
    with pytest.raises(RuntimeError, match=re.escape(message)):
        run(source, "other", [], warp_threads=warp_threads)
