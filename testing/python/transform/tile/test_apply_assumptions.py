"""ApplyAssumptions: what T.assume states decides branches and simplifies indices."""

import pytest

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
