"""Layouts that inference gives: by value, and the programs that it refuses."""

import re

import pytest
import torch

import tilelang
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


def two_layouts(body):
    """Products by rows and by columns of warps, into one accumulator."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.copy(B, W)
            body(S, W, F)
            T.copy(F, C)

    return main


@T.macro
def second_in_a_loop(S, W, F):
    T.gemm(S, W, F, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
    for _ in T.serial(3):
        T.gemm(W, S, F, policy=T.GemmWarpPolicy.FullCol)


@T.macro
def first_in_a_loop(S, W, F):
    T.clear(F)
    for _ in T.serial(3):
        T.gemm(W, S, F, policy=T.GemmWarpPolicy.FullCol)
        T.gemm(W, S, F, policy=T.GemmWarpPolicy.FullCol)
    for _ in T.serial(2):
        T.gemm(S, W, F, policy=T.GemmWarpPolicy.FullRow)


@T.macro
def turns(S, W, F):
    T.clear(F)
    for _ in T.serial(3):
        T.gemm(S, W, F, policy=T.GemmWarpPolicy.FullRow)
        T.gemm(W, S, F, policy=T.GemmWarpPolicy.FullCol)


@pytest.mark.parametrize(
    ("body", "products", "steps"),
    [
        (second_in_a_loop, (1, 3), ["F_1 product", "F_1 to F", "for", "F product"]),
        (
            first_in_a_loop,
            (2, 6),
            ["for", *["F product"] * 2, "F to F_2", "for", "F_2 product", "F_2 to F"],
        ),
        (turns, (3, 3), ["for", "F product", "F to F_2", "F_2 product", "F_2 to F"]),
    ],
)
def test_products_that_dictate_an_accumulator_differently(
    statements, device, body, products, steps
):
    """The ones in most loops keep it; the others have another one, copied around their loop."""
    func = two_layouts(body)
    text = statements(func, "LayoutInference", arch="sm_80")
    found = []
    for line in text.splitlines():
        line = line.strip()
        regions = re.findall(r"\b(F\w*)\[", line)
        if line.startswith("for ") and "in range" in line:
            found.append("for")
        elif "gemm(" in line:
            found.append(f"{regions[-1]} product")
        elif "copy(" in line and len(regions) == 2:
            found.append(f"{regions[0]} to {regions[1]}")
    assert found == steps
    a, b = (torch.randint(-3, 4, (64, 64)).half() for _ in range(2))
    c = torch.full((64, 64), torch.nan, device=device)
    kernel = tilelang.compile(func, target="cuda -arch=sm_80", execution_backend="auto")
    kernel(a.to(device), b.to(device), c)
    x, y = a.float() @ b.float(), b.float() @ a.float()
    assert torch.equal(c.cpu(), products[0] * x + products[1] * y)
    assert "through shared memory, 16384 bytes" in kernel.explain()


def test_accumulators_in_flight_are_waited_for_before_they_are_copied(device):
    """Of warp groups side by side and below each other."""
    if device == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is not sm_90a")

    @T.prim_func
    def main(
        A: T.Tensor((128, 64), "float16"),
        B: T.Tensor((64, 128), "float16"),
        C: T.Tensor((128, 128), "float32"),
    ):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((128, 64), "float16")
            W = T.alloc_shared((64, 128), "float16")
            F = T.alloc_fragment((128, 128), "float32")
            T.copy(A, S)
            T.copy(B, W)
            for _ in T.serial(2):
                T.gemm(S, W, F, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.gemm(S, W, F, policy=T.GemmWarpPolicy.FullCol)
            T.copy(F, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="auto")
    a, b = (torch.randint(-3, 4, shape).half() for shape in ((128, 64), (64, 128)))
    c = torch.full((128, 128), torch.nan, device=device)
    kernel(a.to(device), b.to(device), c)
    assert torch.equal(c.cpu(), 2 * (a.float() @ b.float()))
    assert kernel.explain().count("through shared memory, 65536 bytes") == 2


def test_fragment_outside_of_loops_and_operators(tile_passes, layouts):
    @T.prim_func
    def main(C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((64,), "float32")
            T.clear(F)
            C[0] = F[0]

    with pytest.raises(ValueError, match=r"\.py:\d+: found fragment F used outside .*T\.Parallel"):
        tile_passes(main, "LayoutInference")
