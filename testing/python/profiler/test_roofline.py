"""Work that is counted in programs, against numbers by hand."""

import pytest

import tilelang.language as T
from tilelang.carver import CUDA
from tilelang.profiler import roofline
from tilelang.tools import Analyzer

M, N, K = 512, 256, 1024


@pytest.fixture(scope="module")
def arch():
    return CUDA("cuda -arch=sm_90a")


@pytest.fixture
def product(tiled_gemm):
    return lambda m=M, **options: tiled_gemm(m, N, K, (64, 128, 32), **options)


def test_a_product(arch, product):
    for program in (product(), product(transpose_A=True)):
        found = roofline(program, arch=arch)
        assert found.flop == {"float16": 2 * M * N * K}
        assert found.bytes == 2 * (M * K + K * N) + 4 * M * N
        # A once for each of two columns of tiles, B once for each of eight rows.
        assert found.copied == 2 * (2 * M * K + 8 * K * N) + 4 * M * N
        math = 1e3 * 2 * M * N * K / arch.tensor_flops("float16")
        memory = 1e3 * found.bytes / arch.bandwidth
        assert found.milliseconds == max(math, memory)
        assert found.bound == "memory"
        assert found.share(2 * found.milliseconds) == 0.5
        assert "bound by memory" in str(found)


def test_the_analyzer_says_the_same(arch, product):
    found, wanted = Analyzer.analysis(product(), arch), roofline(product(), arch=arch)
    assert (found.total_flops, found.total_global_bytes) == (2 * M * N * K, wanted.copied)
    assert found.estimated_time == wanted.milliseconds / 1e3
    assert found.expected_tflops * found.estimated_time == pytest.approx(2e-12 * M * N * K)
    gigabytes = found.expected_bandwidth_GBps * found.estimated_time
    assert gigabytes == pytest.approx(wanted.copied / 1e9)


def test_sizes_are_given_by_name(arch, product):
    m = T.dynamic("m")
    program = product(m)
    assert roofline(program, {"m": M}, arch).flop == {"float16": 2 * M * N * K}
    with pytest.raises(ValueError, match="found `m`, which is not known"):
        roofline(program, arch=arch)


def test_what_grows_with_the_block_counts_with_its_mean(arch):
    """As causal attention: block b takes b + 1 steps."""

    @T.prim_func
    def main(A: T.Tensor((512, 512), "float16"), C: T.Tensor((512, 64), "float32")):
        with T.Kernel(8, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            steps = bx + 1
            for k in T.serial(steps):
                T.copy(A[bx * 64, k * 64], a)
                T.gemm(a, a, c)
            T.copy(c, C[bx * 64, 0])

    found = roofline(main, arch=arch)
    assert found.flop["float16"] == 2 * 64**3 * sum(range(1, 9))
    assert found.copied == 2 * 64 * 64 * sum(range(1, 9)) + 4 * 512 * 64


def test_only_kernels_and_programs_have_work():
    with pytest.raises(TypeError, match="expected a kernel or a PrimFunc, got function"):
        roofline(lambda: None)


def test_what_is_known_at_the_run_only_is_refused(arch):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), counts: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            for _ in T.serial(counts[bx]):
                T.copy(A, a)

    with pytest.raises(ValueError, match="which is not known before the run"):
        roofline(main, arch=arch)
