"""T.gemm for AMD: by MFMA, right in the emulator, and compiled to the instruction."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.hip.compile import compile_code_object


@pytest.mark.parametrize(
    ("arch", "dtype", "accumulator", "instruction"),
    [
        ("gfx90a", "float16", "float32", "mfma<32, 32, 16, half_t, float>"),
        ("gfx90a", "int8", "int32", "mfma<32, 32, 32, int8_t, int>"),
        ("gfx942", "bfloat16", "float32", "mfma<32, 32, 16, bfloat16_t, float>"),
        ("gfx942", "int8", "int32", "mfma<32, 32, 32, int8_t, int>"),
        ("gfx942", "float8_e4m3fnuz", "float32", "mfma<32, 32, 32, fp8_e4_fnuz_t, float>"),
        ("gfx942", "float32", "float32", "mfma<32, 32, 8, float, float>"),
        ("gfx942", "float64", "float64", "mfma<16, 16, 8, double, double>"),
        ("gfx950", "float16", "float32", "mfma<32, 32, 16, half_t, float>"),
        ("gfx950", "float8_e5m2", "float32", "mfma<32, 32, 16, fp8_e5_t, float>"),
    ],
)
def test_gemm_by_mfma(gemm, numbers, arch, dtype, accumulator, instruction):
    m, n, k = 96, 80, 64  # with a part of a tile behind the end of C
    program = gemm(m, n, k, dtype=dtype, accumulator=accumulator)
    kernel = tilelang.compile(program, out_idx=-1, target=f"hip -mcpu={arch}")
    assert instruction in kernel.get_kernel_source()
    a, b = numbers((m, k), dtype), numbers((n, k), dtype)
    wanted = a.double() @ b.double().T
    rtol = 0 if dtype == "int8" else 1e-12 if dtype == "float64" else 1e-5
    torch.testing.assert_close(kernel(a, b).double(), wanted, rtol=rtol, atol=1e2 * rtol)


@pytest.mark.parametrize(
    ("arch", "depth", "shape", "instruction"),
    [
        ("gfx942", 32, "32, 32, 32", r"v_mfma_f32_32x32x16_{}_{}"),
        ("gfx942", 16, "32, 32, 16", r"v_mfma_f32_32x32x16_{}_{}"),
        ("gfx950", 32, "32, 32, 16", r"v_mfma_f32_32x32x16_{}_{}"),
        ("gfx950", 64, "32, 32, 64", r"v_mfma_f32_32x32x64_f8f6f4.* (cbsz|blgp):1"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_two_types_of_float8(gemm, numbers, arch, depth, shape, instruction, swapped):
    """CDNA3 and CDNA4 ISA: one operand may be e4m3 ("FP8"), the other one e5m2 ("BF8"). The
    instruction is called with B for A."""
    family = "fnuz" if arch == "gfx942" else ""
    types = [f"float8_e4m3{family or 'fn'}", f"float8_e5m2{family}"]
    names = [f"fp8_e4_{family}_t", f"fp8_e5_{family}_t"] if family else ["fp8_e4_t", "fp8_e5_t"]
    short = ["fp8", "bf8"]
    if swapped:
        types, names, short = types[::-1], names[::-1], short[::-1]
    m, n, k = 64, 80, 2 * depth
    program = gemm(m, n, k, dtype=types[0], other=types[1], block=(64, 64, depth))
    kernel = tilelang.compile(program, out_idx=-1, target=f"hip -mcpu={arch}")
    source = kernel.get_kernel_source()
    assert f"mfma_mixed<{shape}, {names[1]}, {names[0]}, float>" in source
    code = compile_code_object(source, arch, ["main_kernel"])
    assert re.search(instruction.format(short[1], short[0]), code.assembly)
    a, b = numbers((m, k), types[0]), numbers((n, k), types[1])
    wanted = a.double() @ b.double().T
    torch.testing.assert_close(kernel(a, b).double(), wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("arch", "dtype", "wanted"),
    [
        ("gfx942", "float8_e4m3fn", "float8_e4m3fnuz"),
        ("gfx942", "float8_e5m2", "float8_e5m2fnuz"),
        ("gfx950", "float8_e4m3fnuz", "float8_e4m3fn"),
        ("gfx950", "float8_e5m2fnuz", "float8_e5m2"),
    ],
)
def test_8_bit_floats_of_the_other_family_are_refused(gemm, arch, dtype, wanted):
    message = (
        rf"conftest.py:\d+: T\.gemm: found operands of {dtype}, which no matrix instruction of "
        rf"{arch} multiplies, wanted {wanted}; allocate the tiles with it, so that copies cast"
    )
    with pytest.raises(ValueError, match=message):
        tilelang.lower(gemm(64, 64, 64, dtype=dtype), target=f"hip -mcpu={arch}")


def test_tiles_of_the_own_family_repair_it():
    """Copies cast to it."""
    m, n, k = 64, 64, 32

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float8_e4m3fn"),
        B: T.Tensor((n, k), "float8_e4m3fn"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((m, k), "float8_e4m3fnuz")
            b = T.alloc_shared((n, k), "float8_e4m3fnuz")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    kernel = tilelang.compile(main, out_idx=-1, target="hip -mcpu=gfx942")
    assert "mfma<32, 32, 32, fp8_e4_fnuz_t, float>" in kernel.get_kernel_source()
    a, b = (torch.randn(x, k).to(torch.float8_e4m3fn) for x in (m, n))
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float().T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("stages", "transpose_B"), [(0, False), (3, True), (3, False)])
def test_gemm_of_other_forms(gemm, numbers, stages, transpose_B):
    m, n, k = 64, 64, 128
    program = gemm(m, n, k, trans_b=transpose_B, stages=stages, threads=128)
    kernel = tilelang.compile(program, out_idx=-1, target="hip -mcpu=gfx942")
    a, b = numbers((m, k), "float16"), numbers((n, k) if transpose_B else (k, n), "float16")
    wanted = a.float() @ (b.float().T if transpose_B else b.float())
    torch.testing.assert_close(kernel(a, b), wanted, rtol=1e-5, atol=1e-3)


def test_a_sum_goes_into_the_next_product_as_it_is():
    """Attention's second product takes the first one's result from registers."""
    m, n, k, d = 64, 64, 32, 32

    @T.prim_func
    def main(
        Q: T.Tensor((m, k), "float16"),
        K: T.Tensor((n, k), "float16"),
        V: T.Tensor((n, d), "float16"),
        Out: T.Tensor((m, d), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Q_shared = T.alloc_shared((m, k), "float16")
            K_shared = T.alloc_shared((n, k), "float16")
            V_shared = T.alloc_shared((n, d), "float16")
            S = T.alloc_fragment((m, n), "float32")
            P = T.alloc_fragment((m, n), "float16")
            O_local = T.alloc_fragment((m, d), "float32")
            T.copy(Q, Q_shared)
            T.copy(K, K_shared)
            T.copy(V, V_shared)
            T.clear(S)
            T.gemm(Q_shared, K_shared, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
            T.copy(S, P)
            T.clear(O_local)
            T.gemm(P, V_shared, O_local, policy=T.GemmWarpPolicy.FullRow)
            T.copy(O_local, Out)

    kernel = tilelang.compile(main, out_idx=-1, target="hip -mcpu=gfx942")
    source = kernel.get_kernel_source()
    assert "P_shared" not in source
    assert "mfma<32, 32, 16, half_t, float>(S" in source
    assert "mfma<32, 32, 8, half_t, float>(O_local" in source
    q, k_, v = (torch.randn(s).half() for s in ((m, k), (n, k), (n, d)))
    wanted = (q.float() @ k_.float().T).half().float() @ v.float()
    torch.testing.assert_close(kernel(q, k_, v), wanted, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize(
    ("arch", "instruction"),
    [
        ("gfx90a", "v_mfma_f32_32x32x8"),
        ("gfx942", "v_mfma_f32_32x32x8_f16"),
        ("gfx950", "v_mfma_f32_32x32x16_f16"),
    ],
)
def test_gemm_is_compiled_to_mfma_without_spills(gemm, arch, instruction):
    lowered = tilelang.lower(gemm(512, 512, 512), target=f"hip -mcpu={arch}")
    code = compile_code_object(lowered.kernel_source, arch, ["main_kernel"])
    (usage,) = code.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    assert instruction in code.assembly


@pytest.mark.parametrize(
    ("depth", "instructions"),
    [(24, "3 x mfma.32x32x8"), (10, "1 x mfma.32x32x8 .* 1 x mfma.32x32x2")],
)
def test_a_rest_of_k_is_another_instructions(gemm, said, numbers, depth, instructions):
    """A lane has 16 bytes of what the first one takes, and 4 of the other's."""
    m, k = 64, 4 * depth
    program = gemm(m, m, k, dtype="float32", block=(m, m, depth))
    kernel = tilelang.compile(program, out_idx=-1, target="hip -mcpu=gfx942")
    assert any(re.search(instructions, text) for text in said)
    assert not any("multiply-add" in text for text in said)
    a, b = numbers((m, k), "float32"), numbers((m, k), "float32")
    torch.testing.assert_close(kernel(a, b), a @ b.T, rtol=1e-5, atol=1e-4)
