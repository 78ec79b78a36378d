"""The work of programs, counted by hand."""

import pytest

import tilelang.language as T
from tilelang.carver.arch.cuda import CUDA
from tilelang.tools import Analyzer

CHIP = CUDA("cuda -arch=sm_90a")


def product(m, n, k):
    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, i * 32], S)
                T.copy(B[i * 32, bx * 64], W)
                T.gemm(S, W, F)
            T.copy(F, C[by * 64, bx * 64])

    return main


def test_a_product_and_its_roofline():
    found = Analyzer.analysis(product(256, 512, 1024), CHIP)
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


def test_symbolic_sizes():
    m = T.dynamic("m")
    found = Analyzer.analysis(product(m, 64, 32), CHIP, {"m": 640})
    assert found.total_flops == 2 * 640 * 64 * 32
    with pytest.raises(ValueError, match="give sizes="):
        Analyzer.analysis(product(m, 64, 32), CHIP)


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
