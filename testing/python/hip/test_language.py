"""What of the language is not NVIDIA's by nature, on wavefronts of 64: a kernel for each, right in
the emulator, and made of the instructions that AMD has for it."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.hip.compile import compile_code_object

ARCHS = ["gfx90a", "gfx942", "gfx950"]
THREADS = 256
M = T.dynamic("m")


@T.prim_func
def scans(X: T.Tensor((4, 128), "int32"), Y: T.Tensor((4, 128), "int32")):
    """Over 128 elements: two wavefronts."""
    with T.Kernel(1, threads=THREADS):
        x = T.alloc_shared((4, 128), "int32")
        T.copy(X, x)
        T.cumsum(x, dim=1)
        T.copy(x, Y)


@T.prim_func
def lanes(X: T.Tensor((256,), "float32"), Y: T.Tensor((4, 256), "float32")):
    """Neighbours in a row of 16 lanes, in 32, and beyond; sums of all 64."""
    with T.Kernel(1, threads=THREADS):
        tx = T.get_thread_binding()
        Y[0, tx] = T.shfl_xor(X[tx], 1)
        Y[1, tx] = T.shfl_xor(X[tx], 16)
        Y[2, tx] = T.shfl_down(X[tx], 33, 64)
        Y[3, tx] = T.warp_reduce_sum(X[tx])


@T.prim_func
def packed_atomics(
    X: T.Tensor((8, 128), "float16"),
    Y: T.Tensor((128,), "float16"),
    V: T.Tensor((8, 128), "bfloat16"),
    W: T.Tensor((128,), "bfloat16"),
    F: T.Tensor((128,), "float32"),
):
    with T.Kernel(8, threads=64) as bx:
        x, v = T.alloc_fragment((128,), "float16"), T.alloc_fragment((128,), "bfloat16")
        f = T.alloc_fragment((128,), "float32")
        T.copy(X[bx, :], x)
        T.copy(V[bx, :], v)
        T.copy(x, f)
        T.atomic_add(Y, x)
        T.atomic_add(W, v)
        T.atomic_add(F, f)


@T.prim_func
def fast_math(X: T.Tensor((M, 64), "float32"), Y: T.Tensor((M, 64), "float32")):
    """Of any number of rows."""
    with T.Kernel(T.ceildiv(M, 8), threads=THREADS) as bx:
        for i, j in T.Parallel(8, 64):
            Y[bx * 8 + i, j] = T.__exp(X[bx * 8 + i, j]) / (1 + T.__log(X[bx * 8 + i, j]))


@T.prim_func
def sub_bytes(
    X: T.Tensor((512,), "int4"),
    F: T.Tensor((512,), "float4_e2m1fn"),
    Y: T.Tensor((512,), "float16"),
):
    with T.Kernel(1, threads=THREADS):
        for i in T.Parallel(512):
            Y[i] = T.cast(X[i], "float16") + T.cast(F[i], "float16")


@T.prim_func
def asserts(X: T.Tensor((256,), "int32"), Y: T.Tensor((256,), "int32")):
    with T.Kernel(1, threads=THREADS):
        tx = T.get_thread_binding()
        T.device_assert(X[tx] >= 0, "negative")
        Y[tx] = X[tx]


def test_a_shuffle_of_64_lanes_is_refused_for_warps_of_32():
    message = r"found a shuffle with width=64 for a target with warps of 32 threads.*shared memory"
    with pytest.raises(ValueError, match=message):
        tilelang.lower(lanes, target="cuda -arch=sm_90a")


def policies(policy):
    @T.prim_func
    def main(
        A: T.Tensor((128, 32), "float16"),
        B: T.Tensor((128, 32), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(1, threads=THREADS):
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((128, 32), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, policy=policy, clear_accum=True)
            T.copy(c, C)

    return main


def compiled(program, arch, **options):
    return tilelang.compile(
        program, target=f"hip -mcpu={arch}", execution_backend="emulate", **options
    )


def assembly(kernel, arch):
    """Of the kernel for any sizes, which spills nothing."""
    names = [launch.name for launch in kernel.launch_plan.kernels]
    code = compile_code_object(kernel.get_kernel_source(), arch, names)
    for usage in code.resource_usage.values():
        assert (usage.spill_stores, usage.stack) == (0, 0)
    return code.assembly


@pytest.mark.parametrize("arch", ARCHS)
def test_scans_over_64_lanes(arch):
    kernel = compiled(scans, arch)
    x, y = torch.randint(-9, 9, (4, 128), dtype=torch.int32), torch.zeros(4, 128, dtype=torch.int32)
    kernel(x, y)
    assert torch.equal(y, x.cumsum(1).int())
    assert "tl::warp_scan<tl::SumOp, 64>" in kernel.get_kernel_source()
    assert "ds_bpermute_b32" in assembly(kernel, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_shuffles_are_dpp_swizzles_and_permutations(arch):
    kernel = compiled(lanes, arch)
    x, y = torch.arange(256.0), torch.zeros(4, 256)
    kernel(x, y)
    lane = torch.arange(256)
    assert torch.equal(y[0], x[lane ^ 1])
    assert torch.equal(y[1], x[lane ^ 16])
    assert torch.equal(y[2], torch.where(lane % 64 < 31, x[(lane + 33) % 256], x))
    assert torch.equal(y[3], x.view(4, 64).sum(1).repeat_interleave(64))
    found = assembly(kernel, arch)
    assert re.search(r"quad_perm|row_ror", found)
    assert "row_half_mirror" in found
    assert ("v_permlane32_swap_b32" in found) == (arch == "gfx950")
    assert ("ds_swizzle_b32" in found) == (arch != "gfx950")
    assert "ds_bpermute_b32" in found


@pytest.mark.parametrize("arch", ARCHS)
def test_atomic_additions_of_two_elements(arch):
    kernel = compiled(packed_atomics, arch)
    x, v = torch.randint(-8, 9, (8, 128)).half(), torch.randint(-8, 9, (8, 128)).bfloat16()
    y, w, f = torch.zeros(128).half(), torch.zeros(128).bfloat16(), torch.zeros(128)
    kernel(x, y, v, w, f)
    assert torch.equal(y, x.sum(0))
    assert torch.equal(w, v.sum(0))
    assert torch.equal(f, x.float().sum(0))
    found = assembly(kernel, arch)
    assert "global_atomic_add_f32" in found
    # The instruction of gfx90a takes pointers to global memory alone, tl::atomic_add any.
    assert ("global_atomic_pk_add_f16" in found) == (arch != "gfx90a")
    assert ("global_atomic_pk_add_bf16" in found) == (arch != "gfx90a")


@pytest.mark.parametrize("arch", ARCHS)
def test_fast_math_of_any_number_of_rows(arch):
    kernel = compiled(fast_math, arch)
    for rows in (1, 13):
        x, y = torch.rand(rows, 64) + 1, torch.zeros(rows, 64)
        kernel(x, y)
        torch.testing.assert_close(y, x.exp() / (1 + x.log()), rtol=1e-4, atol=1e-4)
    found = assembly(kernel, arch)
    assert "v_exp_f32" in found
    assert "v_log_f32" in found


@pytest.mark.parametrize("arch", ARCHS)
def test_elements_of_4_bits(arch):
    kernel = compiled(sub_bytes, arch)
    codes = torch.randint(0, 16, (2, 512), dtype=torch.int32)
    x, f = (c[::2] | c[1::2] << 4 for c in codes)
    y = torch.zeros(512).half()
    kernel(
        x.to(torch.uint8).view(torch.int8), f.to(torch.uint8).view(T.float4_e2m1fn.as_torch()), y
    )
    e2m1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    floats = e2m1[codes[1] & 7] * torch.where(codes[1] < 8, 1, -1)
    assert torch.equal(y, ((codes[0] ^ 8) - 8 + floats).half())
    assert assembly(kernel, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_an_assertion_names_its_text_in_the_emulator_and_traps_on_the_gpu(arch):
    kernel = compiled(asserts, arch)
    x, y = torch.arange(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    kernel(x, y)
    assert torch.equal(x, y)
    with pytest.raises(RuntimeError, match="negative"):
        kernel(x - 1, y)
    assert "s_trap" in assembly(kernel, arch)


@pytest.mark.parametrize("policy", list(T.GemmWarpPolicy))
def test_policies_are_those_of_wavefronts(policy):
    kernel = compiled(policies(policy), "gfx942", out_idx=-1)
    a, b = torch.randn(128, 32).half(), torch.randn(128, 32).half()
    torch.testing.assert_close(kernel(a, b), a.float() @ b.float().T, rtol=1e-4, atol=1e-4)
    warps = {"Square": "2x2", "FullRow": "4x1", "FullCol": "1x4"}[policy.name]
    assert f"{warps} warps" in kernel.explain()


def test_text_is_printed_by_the_emulator(capfd):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            if T.get_thread_binding() == 63:
                T.print(A[63], "the last lane")

    compiled(main, "gfx942")(torch.arange(64.0))
    assert re.search(r"the last lane.*63", capfd.readouterr().out)
