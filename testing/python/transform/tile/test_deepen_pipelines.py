"""Pipelines that load few bytes ahead get more stages where a multiprocessor has room."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

PASSES = ("SelectInstructions", "DeepenPipelines")
HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def product(tile, threads, stages, grid=64, steps=64, result="float32", **pipeline):
    m, n, k = tile

    @T.prim_func
    def main(
        A: T.Tensor((m, k * steps), "float16"),
        B: T.Tensor((k * steps, n), "float16"),
        C: T.Tensor((grid, m, n), result),
    ):
        with T.Kernel(grid, threads=threads) as bx:
            a = T.alloc_shared((m, k), "float16")
            b = T.alloc_shared((k, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            T.clear(c)
            for ko in T.Pipelined(steps, num_stages=stages, **pipeline):
                T.copy(A[0, ko * k], a)
                T.copy(B[ko * k, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[bx, 0, 0])

    return main


@pytest.fixture
def stages_of(tile_passes):
    def run(function, arch="sm_90a", config=None):
        text = tile_passes(function, *PASSES, arch=arch, config=config)["main"].script()
        return [int(n) for n in re.findall(r'"num_stages": (?:T\.int32\()?(\d+)', text)]

    return run


@pytest.mark.parametrize(
    ("tile", "threads", "stages", "grid", "wanted"),
    [
        ((128, 128, 32), 128, 2, 1024, 4),  # steps of 16 KB by two blocks
        ((128, 128, 64), 256, 2, 1024, 3),  # of 32 by two
        ((64, 64, 32), 128, 2, 1024, 4),  # of 8 by four
        ((128, 256, 32), 256, 3, 1024, 5),  # of 24 by one
        ((128, 128, 32), 128, 2, 132, 6),  # all that the multiprocessor gets
        ((128, 128, 32), 128, 1, 1024, 4),
        ((128, 72, 32), 128, 1, 1024, 1),  # a second slot would begin within a swizzle
        ((64, 64, 64), 128, 2, 1024, 3),  # the fourth stage has no room beside four blocks
        ((256, 256, 64), 256, 2, 1024, 3),  # of 64 by one
        ((128, 128, 32), 128, 5, 1024, 5),  # as the program has it
        ((128, 128, 32), 96, 2, 1024, 2),  # no producer
    ],
)
def test_as_many_stages_as_hide_a_loads_time(stages_of, tile, threads, stages, grid, wanted):
    assert stages_of(product(tile, threads, stages, grid)) == [wanted]


def test_a_loop_of_one_iteration_at_most_has_one_stage(stages_of):
    function = product((128, 128, 32), 128, 1, 1024, steps=T.dynamic("n") % 2)
    assert stages_of(function) == [1]


def test_a_tile_of_results_takes_no_room_from_a_second_block(tile_passes):
    """It has bytes that the loop has left."""
    function = product((128, 128, 64), 128, 2, 1024, result="float16")
    text = tile_passes(function, "StageResults", *PASSES, arch="sm_90a")["main"].script()
    assert '"num_stages": 3' in text
    assert "c_result" in text


def two_products(stages, computes=True):
    @T.prim_func
    def main(A: T.Tensor((64, 4096), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a, s = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c, d = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(64, num_stages=stages):
                T.copy(A[0, k * 64], a)
                T.gemm(a, a, d, transpose_B=True, clear_accum=True)
                if computes:
                    T.copy(d, s)
                T.gemm(s if computes else a, a, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(("stages", "wanted"), [(1, 2), (2, 2), (3, 3)])
def test_loops_that_compute_between_products_get_two(stages_of, stages, wanted):
    assert stages_of(two_products(stages)) == [wanted]


def test_loops_that_only_multiply_get_more(stages_of):
    assert stages_of(two_products(2, computes=False)) == [8]


def test_others_keep_their_stages(stages_of):
    plain = product((128, 128, 32), 128, 2)
    assert stages_of(plain, arch="sm_80") == [2]
    assert stages_of(plain, config={"tl.second_choice.spare_shared": True}) == [2]
    assert stages_of(product((128, 128, 32), 128, 2, steps=2)) == [2]
    ordered = product((128, 128, 32), 128, 2, order=[0, 1, 2], stage=[0, 0, 1])
    assert stages_of(ordered) == [2]
    assert stages_of(product((128, 128, 32), 128, 0)) in ([], [0])


def sums(columns, stages, numbers="float32"):
    """Sums of rows of a tile, weighted by a row of numbers."""

    @T.prim_func
    def main(
        X: T.Tensor((128, columns), "float32"),
        W: T.Tensor((columns,), numbers),
        Y: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            x, w = T.alloc_shared((128, 32), "float32"), T.alloc_shared((32,), numbers)
            total = T.alloc_fragment((128,), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(columns, 32), num_stages=stages):
                T.copy(X[0, k * 32], x)
                T.copy(W[k * 32], w)
                for i in T.Parallel(128):
                    for j in T.serial(32):
                        total[i] += x[i, j] * w[j]
            T.copy(total, Y)

    return main


@pytest.mark.parametrize(
    ("columns", "stages", "numbers", "wanted"),
    [
        (1024, 1, "float32", 6),  # a slot of a row begins anywhere
        (1023, 2, "float32", 6),  # no producer, by cp.async
        (1023, 2, "float16", 2),  # which has no copies of 2 bytes
    ],
)
def test_loops_without_products(stages_of, columns, stages, numbers, wanted):
    assert stages_of(sums(columns, stages, numbers)) == [wanted]


@pytest.mark.parametrize("stages", [1, 2])
def test_it_computes_the_same(stages):
    kernel = tilelang.compile(product((64, 64, 32), 128, stages, grid=1, steps=5), target=HOPPER)
    a, b, c = torch.randn(64, 160).half(), torch.randn(160, 64).half(), torch.empty(1, 64, 64)
    assert "a_full = tl::shared<uint64_t, 5>" in kernel.get_kernel_source()
    kernel(a, b, c)
    assert torch.allclose(c[0].double(), a.double() @ b.double(), atol=1e-2)
