"""Layouts that inference gives: by value, and the programs that it refuses."""

import pytest

import tilelang.language as T
from tilelang._ffi import get_function
from tilelang.layout import make_swizzled_layout


def gemm_and_epilogue(m=128, n=128, threads=128):
    @T.prim_func
    def main(
        A: T.Tensor((m, 64), "float16"),
        B: T.Tensor((64, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((m, 64), "float16")
            W = T.alloc_shared((64, n), "float16")
            F = T.alloc_fragment((m, n), "float32")
            G = T.alloc_fragment((m, n), "float32")
            T.copy(A, S)
            T.copy(B, W)
            T.gemm(S, W, F, clear_accum=True)
            for i, j in T.Parallel(m, n):
                G[i, j] = F[i, j] * 2.0
            T.copy(G, C)

    return main


def test_gemm_dictates_and_loops_follow(tile_passes, layouts):
    placed, loops = layouts(tile_passes(gemm_and_epilogue(), "LayoutInference"))
    c = get_function("MakeGemmFragmentC")(128, 128, 2, 2)
    assert placed["F"].is_equal(c)
    assert placed["G"].is_equal(c)
    assert loops[0].is_equal(c)
    assert placed["S"].is_equal(make_swizzled_layout(T.Tensor((128, 64), "float16").as_buffer()))


@pytest.mark.parametrize(("threads", "warps"), [(32, (1, 1)), (64, (1, 2)), (256, (2, 4))])
def test_square_policy_splits_the_warps(tile_passes, layouts, threads, warps):
    placed, _ = layouts(tile_passes(gemm_and_epilogue(64, 128, threads), "LayoutInference"))
    assert placed["F"].is_equal(get_function("MakeGemmFragmentC")(64, 128, *warps))


def test_free_loop_gets_wide_vectors(tile_passes, layouts):
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float16"), C: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((32, 64), "float16")
            T.copy(A, F)
            T.copy(F, C)

    placed, _ = layouts(tile_passes(main, "LayoutInference"))
    assert placed["F"].thread_table()[:24:8] == [0, 1, 2]
    assert [t[0] for t in placed["F"].table()[:8]] == list(range(8))


def test_versions_get_the_layout_of_one(tile_passes, layouts):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                T.copy(B[k * 64, 0], W)
                T.gemm(S, W, F)

    steps = ("PipelinePlanning", "InjectSoftwarePipeline", "LayoutInference")
    placed, _ = layouts(tile_passes(main, *steps))
    one = [
        tuple(t) for t in make_swizzled_layout(T.Tensor((64, 64), "float16").as_buffer()).table()
    ]
    assert placed["S"].table() == [(s, *t) for s in range(2) for t in one]


def test_two_gemms_that_want_two_layouts(tile_passes, layouts):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.gemm(S, S, F, policy=T.GemmWarpPolicy.FullRow)
            T.gemm(S, S, F, policy=T.GemmWarpPolicy.FullCol)

    with pytest.raises(
        ValueError, match=r"(?s)two layouts for F:.*Fragment.*asked for at .*\.py:\d+"
    ):
        tile_passes(main, "LayoutInference")


def test_fragment_outside_of_loops_and_operators(tile_passes, layouts):
    @T.prim_func
    def main(C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((64,), "float32")
            T.clear(F)
            C[0] = F[0]

    with pytest.raises(ValueError, match=r"\.py:\d+: found fragment F used outside .*T\.Parallel"):
        tile_passes(main, "LayoutInference")
