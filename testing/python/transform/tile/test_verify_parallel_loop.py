"""Races of T.Parallel: two iterations that touch one element."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.env import env

HERE = r"test_verify_parallel_loop\.py:\d+"


def stored(index, value=lambda S, A, i, j: 1.0):
    """S[index] = value over 8 x 16 iterations, in the second of two tiles."""

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), n: T.int32):
        with T.Kernel(2, threads=64) as bx:
            S = T.alloc_shared((256,), "float32")
            for i, j in T.Parallel(8, 16):
                S[index(i, j, bx, n)] = value(S, A, i, j)

    return main


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (lambda i, j, bx, n: j, r"\(i, j\) = \(0, 0\) and \(1, 0\) .* S\[0\]"),
        (lambda i, j, bx, n: i * 15 + j + bx * 128, r"\(0, 15\) and \(1, 0\) .* S\[15\]"),
        (lambda i, j, bx, n: (i * 16 + j) % 127, r"\(0, 0\) and \(7, 15\) .* S\[0\]"),
        (lambda i, j, bx, n: 0, r"\(0, 0\) and \(0, 1\)"),
    ],
)
def test_two_writes(tile_passes, index, told):
    with pytest.raises(ValueError, match=rf"{HERE}: found iterations .*{told}.*wanted independent"):
        tile_passes(stored(index), "VerifyParallelLoop")


def test_a_write_and_a_read(tile_passes):
    shifted = stored(lambda i, j, bx, n: i * 16 + j, lambda S, A, i, j: S[i * 16 + j + 1])
    with pytest.raises(ValueError, match=r"\(0, 1\) and \(0, 0\) .* S\[1\].*read from another"):
        tile_passes(shifted, "VerifyParallelLoop")


@pytest.mark.parametrize(
    "index",
    [
        lambda i, j, bx, n: i * 16 + j,
        lambda i, j, bx, n: j * 8 + i + bx * 128,
        lambda i, j, bx, n: 127 - (i * 16 + j),
        lambda i, j, bx, n: i * n + j,  # not known here
    ],
)
def test_independent_iterations(tile_passes, index):
    tile_passes(stored(index, lambda S, A, i, j: A[j]), "VerifyParallelLoop")


def test_conditions_and_inner_loops_count(tile_passes):
    def main(width):
        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(16):
                    if i % 2 == 0:
                        for k in T.serial(width):
                            A[i // 2 * 3 + k] = 1.0

        return main

    tile_passes(main(3), "VerifyParallelLoop")
    with pytest.raises(ValueError, match=r"\(i\) = \(0\) and \(2\) .* A\[3\]"):
        tile_passes(main(4), "VerifyParallelLoop")


def test_who_asks_gets_it(monkeypatch):
    race = stored(lambda i, j, bx, n: j)
    target = "cuda -arch=sm_80"
    tilelang.lower(race, target=target)
    with (
        tilelang.transform.PassContext(config={"tl.disable_data_race_check": False}),
        pytest.raises(ValueError, match="wanted independent iterations"),
    ):
        tilelang.lower(race, target=target)
    monkeypatch.setenv("TILELANG_ENABLE_DATA_RACE_CHECK", "1")
    assert env.TILELANG_ENABLE_DATA_RACE_CHECK
    with pytest.raises(ValueError, match="wanted independent iterations"):
        tilelang.lower(race, target=target)
    with tilelang.transform.PassContext(config={"tl.disable_data_race_check": True}):
        tilelang.lower(race, target=target)
