"""Accumulators are used behind the wait for their wgmma, in SASS as in the program."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.jit.kernel import JITKernel
from tilelang.testing import sass
from tilelang.testing.sass import deleted_products, loop_with, uses_in_flight

LINES = """
 WARPGROUP.ARRIVE ;
 HGMMA.64x16x16.F32.BF16 R24, gdesc[UR8], R24 ;
 HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12], R24, gsb0 ;
 {first}
 WARPGROUP.DEPBAR.LE gsb0, 0x{left} ;
 {second}
"""


@pytest.mark.parametrize(
    ("first", "left", "second", "found"),
    [
        ("IADD3 R2, R3, R4 ;", 0, "FMUL R2, R24, R31 ;", 0),
        ("FMUL R2, R3, R31 ;", 0, "", 1),
        ("FMUL R2, R3, R32 ;", 0, "", 0),
        ("", 1, "FMUL R24, R3, R4 ;", 1),
    ],
)
def test_of_a_text(first, left, second, found):
    text = LINES.format(first=first, left=left, second=second)
    assert len(uses_in_flight(text)) == found


def test_a_group_without_a_product():
    """As ptxas writes it in the place of products that it has deleted."""
    text = LINES.format(first="", left=0, second="")
    assert deleted_products(text) == 0
    assert deleted_products(" HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT, gsb0 ;" + text) == 1


def test_a_loop_is_from_its_label_to_the_branch_back():
    text = """
 MOV R1, R2 ;
.L_x_1:
.L_x_2:
 HADD2 R1, R1, R2 ;
 @P0 BRA `(.L_x_2) ;
 @!P0 BRA `(.L_x_3) ;
.L_x_4:
 HGMMA.64x16x16.F32 R24, R32, gdesc[UR8], R24 ;
 @P0 BRA `(.L_x_1) ;
 EXIT ;
.L_x_3:
 BRA `(.L_x_4) ;
"""
    assert len(loop_with(text, "HADD2")) == 2
    assert len(loop_with(text, "HGMMA")) == 5
    with pytest.raises(ValueError, match="found no loop with MOV"):
        loop_with(text, "MOV")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
def test_results_that_are_stored_one_by_one(dtype):
    """Transposed, no two of them are neighbours: each is converted by itself."""

    @T.prim_func
    def main(
        A: T.Tensor((76, 1024), "bfloat16"),
        B: T.Tensor((2560, 1024), "bfloat16"),
        C: T.Tensor((76, 2560), dtype),
    ):
        with T.Kernel(40, 2, threads=128) as (bx, by):
            A_shared = T.alloc_shared((48, 128), "bfloat16")
            B_shared = T.alloc_shared((64, 128), "bfloat16")
            C_shared = T.alloc_shared((48, 64), dtype)
            local = T.alloc_fragment((64, 48), "float32")
            T.clear(local)
            for k in T.Pipelined(8, num_stages=7):
                T.copy(B[bx * 64, k * 128], B_shared)
                T.copy(A[by * 48, k * 128], A_shared)
                T.gemm(B_shared, A_shared, local, transpose_B=True)
            for i, j in T.Parallel(64, 48):
                C_shared[j, i] = local[i, j]
            T.copy(C_shared, C[by * 48, bx * 64])

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "GMMA.64x48x16" in kernel.sass
    assert uses_in_flight(kernel.sass) == []


def test_products_of_equal_registers_are_several():
    """A, 128 rows of ones, is two products of a warp group; ptxas takes equal products for one."""

    @T.prim_func
    def main(B: T.Tensor((64, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            B_shared = T.alloc_shared((64, 64), "float16")
            A_local = T.alloc_fragment((128, 64), "float16")
            C_local = T.alloc_fragment((128, 64), "float32")
            T.copy(B, B_shared)
            T.fill(A_local, 1)
            T.gemm(A_local, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "tl::wgmma_descriptor_apart(" in kernel.get_kernel_source()
    assert kernel.sass.count("GMMA.64x64x16") == 8
    b = torch.randn(64, 64).half()
    c = torch.empty(128, 64)
    kernel(b, c)
    torch.testing.assert_close(c, b.float().sum(0).expand(128, 64))


def test_products_behind_each_other_are_several(on_sm_90a):
    """Both have the same accumulators, converted behind their waits, in one basic block. ptxas took
    the second one's conversions for the first one's, and deleted a product."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "bfloat16"),
        B: T.Tensor((64, 128), "bfloat16"),
        C: T.Tensor((64, 64), "bfloat16"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 128), "bfloat16")
            B_shared = T.alloc_shared((64, 128), "bfloat16")
            product = T.alloc_fragment((64, 32), "float32")
            halves = [T.alloc_fragment((64, 32), "bfloat16") for _ in range(2)]
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            for n, half in enumerate(halves):
                rows = B_shared[n * 32 : (n + 1) * 32, :]
                T.wgmma_gemm(A_shared, rows, product, transpose_B=True, clear_accum=True)
                T.wait_wgmma(0)
                T.copy(product, half)
            for n, half in enumerate(halves):
                T.copy(half, C[:, n * 32 : (n + 1) * 32])

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a")
    a, b = torch.randn(2, 64, 128).bfloat16()
    c = torch.empty(64, 64).bfloat16()
    kernel(a, b, c)
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=1e-2, atol=1e-2)
    assert deleted_products(kernel.sass) == 0


def test_a_kernel_that_is_called_is_looked_at(monkeypatch):
    monkeypatch.setattr(sass, "uses_in_flight", lambda text: ["FMUL R2, R24, R31 ;"])
    monkeypatch.setattr(JITKernel, "__call__", JITKernel.__call__)  # undone behind the test
    sass.watch()

    @T.prim_func
    def main(B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            B_shared = T.alloc_shared((64, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.copy(B, B_shared)
            T.gemm(B_shared, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    with pytest.raises(AssertionError, match=r"FMUL R2, R24, R31 .* use accumulators"):
        kernel(torch.zeros(64, 64).half(), torch.zeros(64, 64))
