"""Operands of MFMA that are not K-major: gfx950 reads them by the transposing reads of LDS."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule
from tilelang.hip.compile import compile_code_object

TARGET = "hip -mcpu=gfx950"
BY_COLUMNS = {"trans_a": True, "trans_b": False}
BLOCK = (64, 64, 64)
BITS = {"float16": 16, "bfloat16": 16, "int8": 8, "float8_e4m3fn": 8}


@pytest.mark.parametrize(
    ("dtype", "accumulator", "block"),
    [
        ("float16", "float32", (64, 64, 64)),  # MFMA of 32 x 32 x 16
        ("bfloat16", "float32", (32, 48, 32)),  # of 16 x 16 x 32
        ("int8", "int32", (64, 64, 64)),  # of 32 x 32 x 32
        ("int8", "int32", (16, 64, 128)),  # of 16 x 16 x 64
        ("float8_e4m3fn", "float32", (64, 64, 64)),  # of 32 x 32 x 64, in two runs along K
        ("float8_e4m3fn", "float32", (16, 32, 128)),  # of 16 x 16 x 128
    ],
)
def test_gemm(gemm, numbers, dtype, accumulator, block):
    """A of a TN product and B of an NN one, with parts of tiles behind the end of C."""
    m, n, k = block[0] + 16, block[1] + 8, 2 * block[2]
    program = gemm(
        m, n, k, dtype=dtype, accumulator=accumulator, block=block, threads=128, **BY_COLUMNS
    )
    kernel = tilelang.compile(program, out_idx=-1, target=TARGET)
    source = kernel.get_kernel_source()
    assert "tl::mfma<" in source
    for tile in ("A_shared", "B_shared"):
        assert set(re.findall(rf"tl::ds_read_tr(\d+)\({tile} ", source)) == {str(BITS[dtype])}
        assert not re.search(rf"= {tile}\[|tl::load<\w+, \d+>\({tile} ", source)
    a, b = numbers((k, m), dtype), numbers((k, n), dtype)
    wanted = a.double().T @ b.double()
    rtol = 0 if dtype == "int8" else 1e-5
    for seed in range(3):
        with schedule(seed=seed):
            torch.testing.assert_close(kernel(a, b).double(), wanted, rtol=rtol, atol=1e2 * rtol)


def test_k_major_operands_are_read_in_vectors(gemm):
    program = gemm(64, 64, 64, block=BLOCK)
    source = tilelang.lower(program, target=TARGET).kernel_source
    assert "ds_read_tr" not in source
    assert "tl::load<half_t, 8>(A_shared" in source


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_other_chips_have_none(gemm, arch):
    program = gemm(64, 64, 64, block=BLOCK, **BY_COLUMNS)
    assert "ds_read_tr" not in tilelang.lower(program, target=f"hip -mcpu={arch}").kernel_source


def test_four_bits():
    """MXFP4 with both operands stored with rows of K."""
    m = n = 64
    k = 256

    @T.prim_func
    def main(
        A: T.Tensor((k, m), "float4_e2m1fn"),
        B: T.Tensor((k, n), "float4_e2m1fn"),
        SFA: T.Tensor((m, k // 32), "float8_e8m0fnu"),
        SFB: T.Tensor((n, k // 32), "float8_e8m0fnu"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((k, m), "float4_e2m1fn")
            b = T.alloc_shared((k, n), "float4_e2m1fn")
            s = T.alloc_shared((m, k // 32), "float8_e8m0fnu")
            t = T.alloc_shared((n, k // 32), "float8_e8m0fnu")
            c = T.alloc_fragment((m, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(SFA, s)
            T.copy(SFB, t)
            T.clear(c)
            T.gemm_blockscaled(a, b, c, s, t, transpose_A=True)
            T.copy(c, C)

    kernel = tilelang.compile(main, out_idx=-1, target=TARGET)
    source = kernel.get_kernel_source()
    assert set(re.findall(r"tl::ds_read_tr(\d+)\(([ab]) ", source)) == {("4", "a"), ("4", "b")}
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.randint(0, 16, (2, k, m))
    stored = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
    stored = stored.view(T.float4_e2m1fn.as_torch())
    powers = torch.randint(-2, 3, (2, m, k // 32))
    scales = (powers + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    found = kernel(stored[0], stored[1], scales[0], scales[1])
    factors = 2.0 ** powers.repeat_interleave(32, 2)
    a, b = (values[codes[i]].T * factors[i] for i in range(2))
    torch.testing.assert_close(found, a @ b.T, rtol=0, atol=0)


def attention(stages, staged):
    """P @ V behind S = Q @ K^T; `staged`: V goes through a fragment."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((256, 64), "float16"),
        V: T.Tensor((256, 64), "float16"),
        Y: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Q_shared = T.alloc_shared((64, 64), "float16")
            K_shared = T.alloc_shared((64, 64), "float16")
            V_shared = T.alloc_shared((64, 64), "float16")
            V_local = T.alloc_fragment((64, 64), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, Q_shared)
            T.clear(F)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(K[k * 64, 0], K_shared)
                T.copy(V[k * 64, 0], V_shared)
                T.clear(S)
                T.gemm(Q_shared, K_shared, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(S, P)
                if staged:
                    T.copy(V_shared, V_local)
                    T.gemm(P, V_local, F, policy=T.GemmWarpPolicy.FullRow)
                else:
                    T.gemm(P, V_shared, F, policy=T.GemmWarpPolicy.FullRow)
            T.copy(F, Y)

    return main


@pytest.mark.parametrize(("stages", "staged"), [(2, False), (3, False), (2, True)])
def test_attention(stages, staged):
    q, k, v = torch.randn(64, 64).half(), torch.randn(256, 64).half(), torch.randn(256, 64).half()
    wanted = (q.float() @ k.float().T).half().float() @ v.float()
    kernel = tilelang.compile(attention(stages, staged), out_idx=-1, target=TARGET)
    source = kernel.get_kernel_source()
    assert re.findall(r"tl::ds_read_tr16\((\w+) .*, (\w+) \+", source) == [
        ("V_shared", "V_local" if staged else "V_shared_frag")
    ]
    assert "P_shared" not in source
    for seed in range(5):
        with schedule(seed=seed):
            torch.testing.assert_close(kernel(q, k, v), wanted, rtol=1e-2, atol=0.5)


def innermost(assembly):
    before, _, behind = assembly.partition("Inner Loop Header")
    label = re.findall(r"^(\.LBB\w+):", before, re.MULTILINE)[-1]
    return behind[: behind.rindex(f" {label}\n")]


@pytest.mark.parametrize(("dtype", "accumulator"), [("float16", "float32"), ("int8", "int32")])
def test_assembly(gemm, dtype, accumulator):
    """The reads are instructions, of which LLVM knows that they read no tile that is on its way."""
    program = gemm(
        *[4096] * 3,
        dtype=dtype,
        accumulator=accumulator,
        block=(128, 128, 64),
        stages=3,
        **BY_COLUMNS,
    )
    kernel = tilelang.compile(program, out_idx=-1, target=TARGET)
    code = compile_code_object(kernel.get_kernel_source(), "gfx950", ["main_kernel"])
    (usage,) = code.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    loop = innermost(code.assembly)
    loads = re.findall(r"buffer_load_dwordx4 .* lds", loop)
    waits = re.findall(r"s_waitcnt.*vmcnt\(\d+\)", loop)
    assert set(waits) == {f"s_waitcnt vmcnt({len(loads) // len(waits)})"}
    assert re.findall(r"(ds_read_\w+)", loop).count(f"ds_read_b64_tr_b{BITS[dtype]}") == len(
        re.findall(r"ds_read_\w+", loop)
    )
