"""The work of programs, counted by hand."""

import pytest

import tilelang.language as T
from tilelang.carver.arch.cuda import CUDA
from tilelang.tools import Analyzer

CHIP = CUDA("cuda -arch=sm_90a")


def test_a_product_and_its_roofline(tiled_gemm):
    found = Analyzer.analysis(tiled_gemm(256, 512, 1024), CHIP)
    assert found.total_flops == 2 * 256 * 512 * 1024
    blocks, steps = 4 * 8, 1024 // 32
    assert found.total_global_bytes == blocks * (steps * 2 * (64 * 32 * 2) + 64 * 64 * 4)
    moved = (256 * 1024 + 1024 * 512) * 2 + 256 * 512 * 4
    math_time, memory_time = (
        found.total_flops / CHIP.tensor_flops("float16"),
        moved / CHIP.bandwidth,
    )
    assert found.estimated_time == pytest.approx(max(math_time, memory_time))
    assert found.expected_tflops == pytest.approx(found.total_flops / found.estimated_time / 1e12)
    assert str(found).startswith("2.684e+08 FLOP, ")


def test_symbolic_sizes(tiled_gemm):
    m = T.dynamic("m")
    found = Analyzer.analysis(tiled_gemm(m, 64, 32), CHIP, {"m": 640})
    assert found.total_flops == 2 * 640 * 64 * 32
    with pytest.raises(ValueError, match="give sizes="):
        Analyzer.analysis(tiled_gemm(m, 64, 32), CHIP)


def test_a_sparse_product_counts_like_a_dense_one():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        E: T.Tensor((64, 8), "int16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_s = T.alloc_shared((64, 64), "float16")
            E_s = T.alloc_shared((64, 8), "int16")
            B_s = T.alloc_shared((128, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, A_s)
            T.copy(E, E_s)
            T.copy(B, B_s)
            T.clear(F)
            T.gemm_sp(A_s, E_s, B_s, F)
            T.copy(F, C)

    assert Analyzer.analysis(main, CHIP).total_flops == 2 * 64 * 64 * 128


def test_tiles_that_are_added_count_as_copied():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(2, threads=128) as bx:
            S = T.alloc_shared((64, 64), "float32")
            T.copy(A[bx * 64, 0], S)
            T.atomic_add(B, S)

    assert Analyzer.analysis(main, CHIP).total_global_bytes == 4 * 64 * 64 * 4


def test_a_program_of_which_nothing_is_known():
    @T.prim_func
    def main(n: T.int32):
        with T.Kernel(1, threads=32):
            T.print(n)

    with pytest.raises(ValueError, match=r"without T\.gemm"):
        Analyzer.analysis(main, CHIP)
