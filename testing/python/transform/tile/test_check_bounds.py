"""Indices that leave a tile are refused where that is certain, with the place that they reach."""

import re

import pytest

import tilelang.language as T


def kernel(index, extent=64, condition=None, threads=64):
    """Reads S[index(i, tx, n)] of 64 elements in a loop."""

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), n: T.int32):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), "float32")
            T.copy(A[0:64], S)
            for i in T.Parallel(extent):
                if condition is None or condition(i, n):
                    A[i] = S[index(i, tx, n)]

    return main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((lambda i, tx, n: i + 1,), "found index 64 of S in dimension 0 at i = 63, wanted 0 to 63"),
        ((lambda i, tx, n: i, 65), "found index 64 of S .* at i = 64"),
        ((lambda i, tx, n: i - 1,), "found index -1 of S .* at i = 0"),
        ((lambda i, tx, n: i * 7 % 65, 64), "found index 64 of S .* at i = 37"),
        ((lambda i, tx, n: i + 1, 64, lambda i, n: i % 9 == 0), "found index 64 of S .* at i = 63"),
        ((lambda i, tx, n: tx, 8, None, 96), "found index 64 of S .* at tx = 64"),
        # Whenever it happens.
        ((lambda i, tx, n: i + 64, 64, lambda i, n: i < n), "found index 64 of S in dimension 0,"),
        ((lambda i, tx, n: i - 64,), "found index -1 of S in dimension 0,"),
    ],
    ids=range(8),
)
def test_refused(tile_passes, arguments, told):
    with pytest.raises(ValueError, match=rf"test_check_bounds\.py:\d+: {told}"):
        tile_passes(kernel(*arguments), "CheckBounds")


@pytest.mark.parametrize(
    "arguments",
    [
        (lambda i, tx, n: i,),
        (lambda i, tx, n: 63 - i,),
        (lambda i, tx, n: i * 7 % 64,),
        (lambda i, tx, n: i + 1, 64, lambda i, n: i < 63),
        (lambda i, tx, n: T.if_then_else(i < 63, i + 1, 0),),
        # Not known here.
        (lambda i, tx, n: i + n,),
        (lambda i, tx, n: i + 1, 64, lambda i, n: i < n),
    ],
    ids=range(7),
)
def test_accepted(tile_passes, arguments):
    tile_passes(kernel(*arguments), "CheckBounds")


def test_regions_of_operators(tile_passes):
    def copied(first):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            with T.Kernel(1):
                F = T.alloc_fragment((32, 64), "float32")
                for k in T.serial(4):
                    T.copy(A[k * 16 : k * 16 + 16, :], F[first + k * 8 : first + k * 8 + 16, :])

        return main

    with pytest.raises(
        ValueError, match="found index 33 of F in dimension 0 at k = 2, wanted 0 to 31"
    ):
        tile_passes(copied(2), "CheckBounds")
    with pytest.raises(ValueError, match="found index 39 of F"):
        tile_passes(copied(0), "CheckBounds")


def test_a_loop_that_may_be_left_proves_nothing(tile_passes):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            L = T.alloc_local((4,), "float32")
            for k in T.serial(8):
                if A[k] > 0:
                    break
                L[k] = A[k]

    tile_passes(main, "CheckBounds")


def element_of_tensor(index, condition=lambda tx: True, extent=64):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((extent,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if condition(tx):
                B[index(tx)] = A[tx]

    return main


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (lambda tx: -1 - tx, "found index -1 or less of B .* it does not count from the end"),
        (lambda tx: tx + 64, "found index 64 or more of B in dimension 0 whenever it happens"),
    ],
    ids=["negative", "beyond"],
)
def test_an_element_that_no_thread_reaches_is_warned_about(tile_passes, caplog, index, told):
    """Nothing was stored, and nothing was said."""
    with caplog.at_level("WARNING", "tilelang"):
        tile_passes(element_of_tensor(index), "CheckBounds")
    assert re.search(rf"test_check_bounds\.py:\d+: {told}", caplog.text)
    assert "nothing is stored" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        (lambda tx: -1,),
        (lambda tx: tx - 3,),
        (lambda tx: tx - 64, lambda tx: tx >= 64),
        (lambda tx: tx, lambda tx: True, 0),
    ],
    ids=["constant", "partly", "never reached", "empty tensor"],
)
def test_what_may_be_meant_is_not_warned_about(tile_passes, caplog, arguments):
    with caplog.at_level("WARNING", "tilelang"):
        tile_passes(element_of_tensor(*arguments), "CheckBounds")
    assert not caplog.text


def test_a_loop_without_iterations_reaches_nothing(tile_passes):
    """`T.unroll(n - 1)` where n is 1 was refused for what its body never does."""

    @T.prim_func
    def main(B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=32):
            one = T.alloc_local((1,), "float32")
            one[0] = 1
            for k in T.unroll(0):
                one[0] = one[k + 1]
            B[0] = one[0]

    tile_passes(main, "CheckBounds")
