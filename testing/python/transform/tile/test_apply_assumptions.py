"""ApplyAssumptions: what T.assume states decides branches and simplifies indices."""

import pytest

import tilelang
import tilelang.language as T


@pytest.fixture
def applied(statements):
    return lambda func: statements(func, "ApplyAssumptions", "Simplify")


def test_branches_and_quotients(applied):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), at: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=1):
            i = at[0]
            T.assume(0 <= i < 32)
            if i < 32:
                A[i // 32 + i % 32] = T.min(i, 31)
            else:
                A[0] = 1
            if i > 40:
                A[1] = 2
            for j in T.serial(T.max(i, 0)):
                A[j] = 3

    assert applied(main).splitlines() == [
        "i: T.let[T.int32] = at[0]",
        "T.assume(0 <= i and i < 32)",
        "A[i] = i",
        "for j in range(i):",
        "    A[j] = 3",
    ]


def test_it_holds_to_the_end_of_its_body(applied):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), at: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=1):
            i = at[0]
            if i < 9:
                A[1] = T.max(i, 0)
                T.assume(i >= 0)
                A[2] = T.max(i, 0)
            A[3] = T.max(i, 0)

    text = applied(main)
    assert "A[1] = T.max(i, 0)" in text
    assert "A[2] = i" in text
    assert "A[3] = T.max(i, 0)" in text


def test_what_may_change_is_no_fact(applied):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=1):
            T.assume(A[0] < 8)
            A[0] = A[0] + 1
            if A[0] < 8:
                A[1] = 1

    assert "if A[0] < 8:" in applied(main)


def test_without_assumptions_nothing_changes(tile_passes):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(8):
                A[i % 8] = 1

    before = tile_passes(main)["main"]
    assert "i % 8" in tile_passes(main, "ApplyAssumptions")["main"].script()
    assert "i % 8" in before.script()


def test_the_bounds_of_loops_decide(applied):
    """The last tile ends where the tensor does, so its mask, which is all of its loop, is gone."""

    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"),), "float32"), most: T.Tensor((1,), "int32")):
        n = A.shape[0]
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((32,), "float32")
            T.assume(n % 32 == 0)
            for b in T.serial(T.ceildiv(n, 32)):
                for i in T.Parallel(32):
                    tile[i] = T.if_then_else(b * 32 + i < n, tile[i], 0)
                T.copy(tile, A[b * 32])
            c = T.min(T.max(most[0], 0), T.ceildiv(n, 32) - 1)
            for i in T.Parallel(32):
                tile[i] = T.if_then_else(c * 32 + i < n, 1.0, 0.0)
            for i in T.Parallel(32):
                tile[i] = T.if_then_else(c * 32 + i < n - 1, tile[i], 0.0)

    text = applied(main)
    assert text.count("if_then_else") == 1
    assert "c * 32 + i + 1 < n" in text
    assert text.count("T.parallel") == 2


def test_a_mask_that_may_mask_stays(applied):
    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"),), "float32")):
        n = A.shape[0]
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((32,), "float32")
            T.assume(n % 16 == 0)
            for b in T.serial(T.ceildiv(n, 32)):
                for i in T.Parallel(32):
                    tile[i] = T.if_then_else(b * 32 + i < n, tile[i], 0)

    assert "if_then_else" in applied(main)


def test_a_clamp_without_a_least_value_says_nothing(applied):
    """The range from the least int32 on has no extent of its type."""

    @T.prim_func
    def main(A: T.Tensor((T.dynamic("n"),), "int32")):
        n = A.shape[0]
        with T.Kernel(1, threads=32):
            T.assume(n >= 1)
            count = T.min(A[0], n - 1)
            if count > 0:
                A[0] = 1

    assert "if 0 < count:" in applied(main)


@pytest.mark.parametrize("mask", ["b * 128 + j < N", "N > b * 128 + j", "b * 128 + j <= N - 1"])
def test_a_mask_that_is_proved_is_none(define, mask):
    """It stayed, although the guards of the same elements were proved away."""
    main = define(f"""
    N = T.dynamic("N")

    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(N // 128, threads=128) as b:
            T.assume(N % 128 == 0)
            for j in T.Parallel(128):
                B[b * 128 + j] = T.if_then_else({mask}, A[b * 128 + j], 0)
    """)["main"]
    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert "tl::store(B + bx * " in source
    assert "0.0f" not in source, "what the mask has in the place of elements"
