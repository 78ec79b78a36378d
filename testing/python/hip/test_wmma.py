"""T.gemm for RDNA 3: by WMMA, whose operands lie in two lanes each."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule
from tilelang.hip.compile import compile_code_object

TARGET = "hip -mcpu=gfx1100"


@pytest.mark.parametrize(
    ("dtype", "accumulator", "trans_a", "trans_b", "device_type"),
    [
        ("float16", "float32", False, True, "half_t, float"),
        ("bfloat16", "float32", True, False, "bfloat16_t, float"),
        ("int8", "int32", False, True, "int8_t, int"),
        ("uint8", "int32", False, True, "uint8_t, int"),
    ],
)
def test_gemm(gemm, numbers, dtype, accumulator, trans_a, trans_b, device_type):
    m, n, k = 80, 72, 64  # with a part of a tile behind the end of C
    program = gemm(
        m,
        n,
        k,
        dtype=dtype,
        accumulator=accumulator,
        trans_a=trans_a,
        trans_b=trans_b,
        threads=128,
    )
    kernel = tilelang.compile(program, out_idx=-1, target=TARGET)
    assert f"tl::wmma<16, 16, 16, {device_type}>(C_local" in kernel.get_kernel_source()
    a = numbers((k, m) if trans_a else (m, k), dtype)
    b = numbers((n, k) if trans_b else (k, n), dtype)
    wanted = (a.T if trans_a else a).double() @ (b.T if trans_b else b).double()
    rtol = 0 if accumulator == "int32" else 1e-5
    for seed in range(3):
        with schedule(seed=seed):
            torch.testing.assert_close(kernel(a, b).double(), wanted, rtol=rtol, atol=1e2 * rtol)


def test_operands_in_registers():
    """The sum of a product is an operand of the next one; the other comes from a fragment that the
    gemm lays out, in two lanes each."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 32), "float16"),
        K: T.Tensor((64, 32), "float16"),
        V: T.Tensor((64, 32), "float16"),
        Y: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=64):
            Q_local = T.alloc_fragment((64, 32), "float16")
            K_shared = T.alloc_shared((64, 32), "float16")
            V_shared = T.alloc_shared((64, 32), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            F = T.alloc_fragment((64, 32), "float32")
            T.copy(Q, Q_local)
            T.copy(K, K_shared)
            T.copy(V, V_shared)
            T.clear(S)
            T.gemm(Q_local, K_shared, S, transpose_B=True)
            T.copy(S, P)
            T.clear(F)
            T.gemm(P, V_shared, F)
            T.copy(F, Y)

    kernel = tilelang.compile(main, out_idx=-1, target=TARGET)
    source = kernel.get_kernel_source()
    assert "wmma<16, 16, 16, half_t, float>(S" in source
    # Q stays where the copy has put it.
    assert re.search(r"wmma<16, 16, 16, half_t, float>\(S.*, Q_local \+ .*, K_shared_frag", source)
    assert "wmma<16, 16, 16, half_t, float>(F" in source
    q, k, v = (torch.randn(64, 32).half() for _ in range(3))
    wanted = (q.float() @ k.float().T).half().float() @ v.float()
    for seed in range(3):
        with schedule(seed=seed):
            torch.testing.assert_close(kernel(q, k, v), wanted, rtol=1e-2, atol=0.2)


def test_it_is_compiled_without_spills(gemm):
    program = gemm(512, 512, 512, threads=128)
    source = tilelang.lower(program, target=TARGET).kernel_source
    code = compile_code_object(source, "gfx1100", ["main_kernel"])
    (usage,) = code.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    assert "v_wmma_f32_16x16x16_f16" in code.assembly


@pytest.mark.parametrize(("dtype", "has_signs"), [("int8", True), ("uint8", False)])
def test_bytes_have_signs_or_none(gemm, dtype, has_signs):
    """RDNA3 ISA, V_WMMA_I32_16X16X16_IU8: NEG of an operand says that it is signed."""
    program = gemm(64, 64, 64, dtype=dtype, accumulator="int32", threads=128)
    source = tilelang.lower(program, target=TARGET).kernel_source
    assembly = compile_code_object(source, "gfx1100", ["main_kernel"]).assembly
    calls = re.findall(r"v_wmma_i32_16x16x16_iu8 .*", assembly)
    assert calls
    assert all(("neg_lo:[1,1,0]" in call) == has_signs for call in calls)
